"""Findings of a verification about the current version, noted beside the dataset until they are repaired.

Inspections are frequent and cheap; from this note they learn whether bytes are those that were committed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Self

import orjson

from kubothek.errors import AccessDenied, ObjectNotFound
from kubothek.odf import Level
from kubothek.storage import Store
from kubothek.table.checked_types import checked
from kubothek.table.log import Snapshot
from kubothek.table.log.model import keys
from kubothek.verify.datasets import DatasetVerdict

_SHOWN_FILES = 1000


@dataclass(frozen=True, slots=True)
class Damage:
    """Known damage.

    ``version``  the verified one; ``level`` the depth of the verification
    ``text``     the first finding, for users
    ``files``    the damaged data files; empty if anything else is damaged as well, or if they are too many
    """

    version: int | None
    level: int
    text: str
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, verdict: DatasetVerdict) -> Self:
        """Return the damage of a verdict that is not sound."""
        assert verdict.first is not None, "something is wrong"
        more = f", and {verdict.wrong - 1:,} other things" if verdict.wrong > 1 else ""
        where = "" if verdict.version is None else f" in version {verdict.version}"
        wrong = [each.object for each in verdict.findings if each.code.startswith("File") and each.object]
        only_files = len(wrong) == verdict.wrong <= _SHOWN_FILES
        text = f"a verification found{where}: {verdict.first}{more}"
        return cls(verdict.version, int(verdict.level), text, tuple(wrong) if only_files else ())

    def __str__(self) -> str:
        return self.text


def keep_damage(store: Store, uuid: str, verdict: DatasetVerdict) -> None:
    """Note findings; delete the note if all of the current version was found sound, at no lower level than the note's.

    A lack of write permission is not a failure. Raises StoreError.
    """
    with suppress(AccessDenied):
        if not verdict.sound and verdict.present:
            store.put(keys.damage(uuid), orjson.dumps(asdict(Damage.of(verdict))))
        elif verdict.sound and verdict.whole:
            noted = _noted(store, uuid)
            if noted is not None and verdict.level >= noted.level:
                store.delete([keys.damage(uuid)])


def known_damage(store: Store, uuid: str, snapshot: Snapshot) -> Damage | None:
    """Return the note, as long as it concerns the current version. One request."""
    noted = _noted(store, uuid)
    if noted is None or not noted.files:
        return noted
    present = set(snapshot.head.files().values())
    return None if present.isdisjoint(noted.files) else noted


def _noted(store: Store, uuid: str) -> Damage | None:
    """Return the note; None also if it cannot be read."""
    with suppress(ObjectNotFound, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        found = orjson.loads(store.get(keys.damage(uuid)))
        return checked(Damage(found["version"], int(Level(found["level"])), found["text"], tuple(found["files"])))
    return None
