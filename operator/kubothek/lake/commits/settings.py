"""What all writers of a store obey (commit-protocol, "Objects": ``.kubothek/store.json``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import orjson

from kubothek.lake.commits import keys
from kubothek.lake.errors import InputError, ObjectNotFound
from kubothek.lake.store import Store

MINIMUM_GRACE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """``grace``: how old anything unreferenced must be before it is swept, and how long a deletion can be undone."""

    grace: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.grace < MINIMUM_GRACE:
            raise InputError(f"grace period {self.grace}: at least {MINIMUM_GRACE}, or commits in flight are swept")


def read_settings(store: Store) -> StoreSettings:
    """The store's settings, or the defaults. Raises InputError if they are not readable: guessing loses data."""
    try:
        found = orjson.loads(store.get(keys.SETTINGS))
        return StoreSettings(timedelta(seconds=found["grace_seconds"]))
    except ObjectNotFound:
        return StoreSettings()
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f'{keys.SETTINGS} in {store.url}: expected {{"grace_seconds": number}}: {error!r}') from error


def write_settings(store: Store, settings: StoreSettings) -> None:
    """Set them for all writers, who read them at each commit that takes long enough for it to matter."""
    store.put(keys.SETTINGS, orjson.dumps({"grace_seconds": settings.grace.total_seconds()}))
