"""Settings that all writers of a store obey (commit-protocol, "Objects": ``.kubothek/store.json``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import orjson

from kubothek.errors import InputError, ObjectNotFound, PreconditionFailed
from kubothek.storage import Store
from kubothek.table.log.interop.unconditional import OneWriterStore
from kubothek.table.log.model import keys
from kubothek.words import duration

MINIMUM_GRACE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The content of the file, or the defaults.

    ``grace``  minimum age of unreferenced objects before they are deleted, and how long a deletion can be undone
    ``by``     the policy that requested it, and that may shorten it; empty: set by a user, or by default
    """

    grace: timedelta = timedelta(days=1)
    by: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.grace < MINIMUM_GRACE:
            raise InputError(
                f"grace period {duration(self.grace)}: less than {duration(MINIMUM_GRACE)}, the least; "
                "garbage collection would delete files of commits in flight"
            )


def read_settings(store: Store) -> StoreSettings:
    """Return the store's settings, or the defaults. Raises InputError if unreadable: a guess could lose data."""
    try:
        return _parse(store, store.get(keys.SETTINGS))
    except ObjectNotFound:
        return StoreSettings()


def write_settings(store: Store, settings: StoreSettings) -> None:
    """Set them for all writers, which read them at each commit that takes long enough for it to matter."""
    store.put(keys.SETTINGS, _render(settings))


def ask_for_grace(
    store: Store, grace: timedelta, *, by: str, shorten: bool = True, conditional_writes: bool = True
) -> StoreSettings:
    """Request a grace period, and return the one that holds afterwards.

    A longer one holds at once. A shorter one holds only with ``shorten``, and only if the current one is the default or
    has the same ``by``: of several requests, the longest wins. Raises InputError for a period that is too short.
    """
    wanted = StoreSettings(grace, by)
    if not conditional_writes:
        store = OneWriterStore(store)
    while True:
        try:
            data, info = store.get_with_info(keys.SETTINGS)
        except ObjectNotFound:
            found, etag = StoreSettings(by=by), None
        else:
            found, etag = _parse(store, data), info.etag
        if grace == found.grace or (grace < found.grace and not (shorten and found.by == by)):
            return found
        try:
            if etag is None:
                store.put_if_absent(keys.SETTINGS, _render(wanted))
            else:
                store.put_if_match(keys.SETTINGS, _render(wanted), etag)
        except PreconditionFailed:
            continue  # another writer was faster, or the answer to our own write was lost
        return wanted


def _parse(store: Store, data: bytes) -> StoreSettings:
    try:
        found = orjson.loads(data)
        return StoreSettings(timedelta(seconds=found["grace_seconds"]), str(found.get("by", "")))
    except (orjson.JSONDecodeError, AttributeError, KeyError, OverflowError, TypeError) as error:
        raise InputError(f'{keys.SETTINGS} in {store.url}: expected {{"grace_seconds": number}}: {error!r}') from error


def _render(settings: StoreSettings) -> bytes:
    by = {"by": settings.by} if settings.by else {}
    return orjson.dumps({"grace_seconds": settings.grace.total_seconds(), **by})
