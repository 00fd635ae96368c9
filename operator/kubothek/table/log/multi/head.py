"""The head of a cube, its intent and its records: which versions of the members belong together.

Source: commit-protocol, "The cube transaction". All of a cube's own objects are below ``.kubothek/++cubes/<prefix>/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

from kubothek.errors import CubeInvalid, HeadUnreadable, InvalidKey, VersionIncomplete
from kubothek.table.checked_types import checked
from kubothek.table.log.model import keys
from kubothek.table.log.model.record import Totals
from kubothek.table.log.multi.spec import CubeSpec

_FORMAT: Final = 1
_INVALID: Final = (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, CubeInvalid, InvalidKey)


@dataclass(frozen=True, slots=True)
class MemberVersion:
    """One version of a member: its number, and the key of its record."""

    version: int
    record: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The change of one member by a transaction: the record of the commit, and that of the head below it.

    ``base``  None: there is no head
    """

    record: str
    base: str | None


@dataclass(frozen=True, slots=True)
class Intent:
    """A transaction that has begun: it happens completely or not at all, whichever process carries it out.

    ``transaction``  its own id, which is never used again
    ``record``       the record of the cube version that it makes
    ``taken_back``   it cannot be carried out, and what happened of it is being undone
    """

    transaction: str
    record: str
    members: Mapping[str, Planned]
    taken_back: bool = False


@dataclass(frozen=True, slots=True)
class CubeHead:
    """The version of each member that belongs to the cube now.

    ``version``  0 while a new cube's first transaction runs
    ``record``   of that version; None for 0
    ``members``  by name; empty if there is no cube, or no longer
    ``since``    the version below this incarnation of the cube: markers up to it belong to an earlier one
    ``time``     of the commit
    """

    spec: CubeSpec
    version: int = 0
    record: str | None = None
    members: Mapping[str, MemberVersion] = field(default_factory=dict)
    since: int = 0
    time: datetime | None = None
    intent: Intent | None = None

    def render(self) -> bytes:
        """Return the stored form."""
        document: dict[str, Any] = {
            "format": _FORMAT,
            "prefix": self.spec.uuid_prefix,
            "spec": self.spec.to_json(),
            "version": self.version,
            "record": self.record,
            "members": _render_members(self.members),
            "since": self.since,
            "time": None if self.time is None else self.time.isoformat(),
        }
        if self.intent is not None:
            document["intent"] = {
                "transaction": self.intent.transaction,
                "record": self.intent.record,
                "members": {name: [each.record, each.base] for name, each in self.intent.members.items()},
                "taken_back": self.intent.taken_back,
            }
        return orjson.dumps(document)

    @classmethod
    def parse(cls, prefix: str, data: bytes) -> CubeHead:
        """Parse the stored form. Raises HeadUnreadable unless it is a head of a known format."""
        try:
            found = orjson.loads(data)
            if found["format"] != _FORMAT:
                raise HeadUnreadable(f"{head_key(prefix)}: format {found['format']!r} needs a newer Kubothek")
            intent = found.get("intent")
            head = cls(
                spec=CubeSpec.from_json(prefix, found["spec"]),
                version=found["version"],
                record=found["record"],
                members=_parse_members(found["members"]),
                since=found["since"],
                time=None if found["time"] is None else datetime.fromisoformat(found["time"]),
                intent=None
                if intent is None
                else Intent(
                    transaction=intent["transaction"],
                    record=intent["record"],
                    members={name: Planned(record, base) for name, (record, base) in intent["members"].items()},
                    taken_back=intent["taken_back"],
                ),
            )
            _check_records(checked(head).spec, head.record, head.members)
            if head.intent is not None:
                _check_record(own(prefix), head.intent.record)
                for name, planned in head.intent.members.items():
                    _check_record(head.spec.uuid(name), planned.record)
                    _check_record(head.spec.uuid(name), planned.base)
        except _INVALID as error:
            raise HeadUnreadable(f"{head_key(prefix)}: not the head of a cube: {error!r}") from error
        return head


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeRecord:
    """One version of a cube, or an attempt at one; written once and never changed.

    ``key``        where it is stored; not part of it
    ``operation``  the verb of the cube, or the operation of a commit to a single member
    ``parent``     the record below; None for a cube's first
    ``added``      the size of what it added, by changed member
    """

    key: str
    version: int
    id: str
    digest: str
    operation: str
    time: datetime
    by: str
    parent: str | None
    spec: CubeSpec
    members: Mapping[str, MemberVersion]
    added: Mapping[str, Totals] = field(default_factory=dict)

    def render(self) -> bytes:
        """Return the stored form, which stays readable for ever: the format only gains fields."""
        return orjson.dumps(
            {
                "format": _FORMAT,
                "prefix": self.spec.uuid_prefix,
                "version": self.version,
                "id": self.id,
                "digest": self.digest,
                "operation": self.operation,
                "time": self.time.isoformat(),
                "by": self.by,
                "parent": self.parent,
                "spec": self.spec.to_json(),
                "members": _render_members(self.members),
                "added": {name: totals.to_json() for name, totals in self.added.items()},
            }
        )

    @classmethod
    def parse(cls, key: str, data: bytes) -> CubeRecord:
        """Parse the stored form. Raises VersionIncomplete unless it is a record of a known format."""
        try:
            found = orjson.loads(data)
            if found["format"] != _FORMAT:
                raise VersionIncomplete(f"{key}: record format {found['format']!r} needs a newer Kubothek")
            record = cls(
                key=key,
                version=found["version"],
                id=found["id"],
                digest=found["digest"],
                operation=found["operation"],
                time=datetime.fromisoformat(found["time"]),
                by=found["by"],
                parent=found["parent"],
                spec=CubeSpec.from_json(found["prefix"], found["spec"]),
                members=_parse_members(found["members"]),
                added={name: Totals(**totals) for name, totals in found["added"].items()},
            )
            _check_records(checked(record).spec, record.parent, record.members)
        except _INVALID as error:
            raise VersionIncomplete(f"{key}: not the record of a cube: {error!r}") from error
        return record


def own(prefix: str) -> str:
    """Return the uuid to use in :mod:`kubothek.table.log.model.keys`, which no dataset can have."""
    return f"++cubes/{prefix}"


def head_key(prefix: str) -> str:
    """Return the key of the head."""
    return f"{keys.side(own(prefix))}head.json"


def _check_records(spec: CubeSpec, record: str | None, members: Mapping[str, MemberVersion]) -> None:
    """Raise InvalidKey or CubeInvalid unless the records are those of the cube, and of its members."""
    _check_record(own(spec.uuid_prefix), record)
    for name, member in members.items():
        _check_record(spec.uuid(name), member.record)


def _check_record(uuid: str, key: str | None) -> None:
    if key is not None and keys.parse_record(uuid, key) is None:
        raise InvalidKey(f"{key!r:.200} is not the key of a record of {uuid!r}")


def _render_members(members: Mapping[str, MemberVersion]) -> dict[str, list[Any]]:
    return {name: [each.version, each.record] for name, each in members.items()}


def _parse_members(found: Mapping[str, Any]) -> dict[str, MemberVersion]:
    return {name: MemberVersion(version, record) for name, (version, record) in found.items()}
