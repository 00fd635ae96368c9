"""What a verification found wrong in the present version, noted beside the dataset until it is put right.

Inspections look at little and often; whether bytes are those that were committed, they learn from this note.
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
    """What is known to be wrong.

    ``version``  in which it was found, ``level`` how closely was looked
    ``text``     the first wrong thing, for people
    ``files``    the data files that are wrong; empty if it is something else as well, or too many
    """

    version: int | None
    level: int
    text: str
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, verdict: DatasetVerdict) -> Self:
        """Of a verdict that is not sound."""
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
    """Note what is wrong, or take the note away if all of the present version was found sound, as closely looked at.

    Credentials that may only read are no reason to fail. Raises StoreError.
    """
    with suppress(AccessDenied):
        if not verdict.sound and verdict.present:
            store.put(keys.damage(uuid), orjson.dumps(asdict(Damage.of(verdict))))
        elif verdict.sound and verdict.whole:
            noted = _noted(store, uuid)
            if noted is not None and verdict.level >= noted.level:
                store.delete([keys.damage(uuid)])


def known_damage(store: Store, uuid: str, snapshot: Snapshot) -> Damage | None:
    """What was noted, as long as the present version is concerned. One request, and no more if nothing was."""
    noted = _noted(store, uuid)
    if noted is None or not noted.files:
        return noted
    present = set(snapshot.head.files().values())
    return None if present.isdisjoint(noted.files) else noted


def _noted(store: Store, uuid: str) -> Damage | None:
    """None also for a note that cannot be read."""
    with suppress(ObjectNotFound, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        found = orjson.loads(store.get(keys.damage(uuid)))
        return checked(Damage(found["version"], int(Level(found["level"])), found["text"], tuple(found["files"])))
    return None
