"""Commit records: what a commit did, written once and never changed.

Source: commit-protocol, "Objects". A record is committed if and only if it is reachable from the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa

from kubothek.errors import InputError, InvalidKey, VersionIncomplete
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.table.checked_types import check_all, checked
from kubothek.table.expressions import parse
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import (
    Everything,
    Matching,
    Nothing,
    Operation,
    PartitionFile,
    Partitions,
    ReadPredicate,
)
from kubothek.table.log.model.ledgers import ChainMove
from kubothek.table.log.model.paths import directory
from kubothek.table.schema import parse_type, type_name

_FORMAT: Final = 1
_INVALID: Final = (
    orjson.JSONDecodeError,
    AttributeError,
    KeyError,
    TypeError,
    ValueError,
    InvalidKey,
    InputError,
)
"""What reading a document raises that is not a record."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The size of a dataset at one version, or of what a commit added; ``bytes`` of the data files."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    partitions: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the form in records and markers."""
        return {"rows": self.rows, "files": self.files, "bytes": self.bytes, "partitions": self.partitions}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """The complete difference from one head to the next: applying it again gives the same bytes.

    ``added``            new partitions, in order
    ``positions``        position of each of ``added`` in the result (ascending); None = all at the end
    ``removed``          label and key of each removed partition
    ``indices``          new file by column; None removes the column's index
    ``metadata``         keys to set, without those that version, record key and schema determine
    ``dropped``          metadata keys to remove
    ``partition_keys``   None = unchanged
    ``schema``           hash of the schema object; None = unchanged
    """

    added: tuple[PartitionFile, ...] = ()
    positions: tuple[int, ...] | None = None
    removed: tuple[tuple[str, str], ...] = ()
    indices: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] | None = None
    schema: str | None = None

    @property
    def files(self) -> frozenset[tuple[str, str]]:
        """Label and key of each partition it touches."""
        return frozenset(self.removed) | {(file.label, file.key) for file in self.added}

    @property
    def entries(self) -> int:
        """How many partitions it touches."""
        return len(self.added) + len(self.removed)


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance from the last checkpoint: commits, and partitions that they touched. Zero: there is one here."""

    commits: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The record of a commit, or of an attempt at one.

    ``key``          its key in the store, which is not part of it
    ``parent``       key of the record it builds on; None for a dataset's first
    ``restores``     key of the record whose state the delta applies to, if that is not the parent's (Restore)
    ``recovers``     key of the overwritten record that this one merges again
    ``head_digest``  of the head it makes: a head with another digest was not written by Kubothek
    ``totals``       of the dataset after it
    ``ledger``       the move of a ledger's chain
    ``replaced``     keys that the adopted head of a foreign writer named, and that neither this version nor the parent
                     names: the collector keeps them for one grace period from this commit
    """

    key: str
    version: int
    id: str
    digest: str
    operation: Operation
    time: datetime
    by: str
    parent: str | None
    restores: str | None = None
    recovers: str | None = None
    delta: Delta
    reads: ReadPredicate
    totals: Totals
    since_checkpoint: Distance
    head_digest: str
    ledger: ChainMove | None = None
    replaced: tuple[str, ...] = ()

    @property
    def added(self) -> Totals:
        """The size of what it added."""
        return size_of(self.delta.added)

    @property
    def content_parent(self) -> str | None:
        """The record whose state the delta applies to."""
        return self.restores or self.parent

    def render(self) -> bytes:
        """Return the stored form, which stays readable for ever: the format only gains fields."""
        delta = self.delta
        return orjson.dumps(
            {
                "format": _FORMAT,
                "version": self.version,
                "id": self.id,
                "digest": self.digest,
                "operation": self.operation,
                "time": self.time.isoformat(),
                "by": self.by,
                "parent": self.parent,
                "restores": self.restores,
                "recovers": self.recovers,
                "reads": _render_reads(self.reads),
                "added": [file.to_json() for file in delta.added],
                "positions": delta.positions,
                "removed": delta.removed,
                "indices": delta.indices,
                "metadata": delta.metadata,
                "dropped_metadata": delta.dropped,
                "partition_keys": delta.partition_keys,
                "schema": delta.schema,
                "counts": self.added.to_json(),
                "totals": self.totals.to_json(),
                "since_checkpoint": [self.since_checkpoint.commits, self.since_checkpoint.entries],
                "head_digest": self.head_digest,
                "ledger": self.ledger.to_json() if self.ledger else None,
                "replaced": self.replaced,
            }
        )

    @classmethod
    def parse(cls, key: str, data: bytes) -> Record:
        """Parse the stored form. Raises VersionIncomplete for invalid bytes, and for keys of another dataset."""
        record = _unchecked(key, data)
        try:
            _check_keys(checked(record))
        except _INVALID as error:
            raise VersionIncomplete(f"{key}: not a commit record: {error!r}") from error
        return record


def parse_all(stored: Mapping[str, bytes]) -> dict[str, Record]:
    """Return records of stored forms by their keys, without those that :meth:`Record.parse` rejects.

    Their types are checked together, which takes half of the time of parsing one after another.
    """
    records = {}
    for key, data in stored.items():
        with suppress(VersionIncomplete):
            records[key] = _unchecked(key, data)
    try:
        check_all([*records.values()])
        for record in records.values():
            _check_keys(record)
    except _INVALID:
        records.clear()
        for key, data in stored.items():
            with suppress(VersionIncomplete):
                records[key] = Record.parse(key, data)
    return records


def _unchecked(key: str, data: bytes) -> Record:
    """Return a record whose types and keys are not checked yet. Raises VersionIncomplete."""
    try:
        found = orjson.loads(data)
        if found["format"] != _FORMAT:
            raise VersionIncomplete(f"{key}: record format {found['format']!r} needs a newer Kubothek")
        return Record(
            key=key,
            version=found["version"],
            id=found["id"],
            digest=found["digest"],
            operation=Operation(found["operation"]),
            time=datetime.fromisoformat(found["time"]),
            by=found["by"],
            parent=found["parent"],
            restores=found["restores"],
            recovers=found["recovers"],
            reads=_parse_reads(found["reads"]),
            delta=Delta(
                added=tuple(PartitionFile(*file) for file in found["added"]),
                positions=None if found["positions"] is None else tuple(found["positions"]),
                removed=tuple((label, file) for label, file in found["removed"]),
                indices=found["indices"],
                metadata=found["metadata"],
                dropped=tuple(found["dropped_metadata"]),
                partition_keys=None if (k := found["partition_keys"]) is None else tuple(k),
                schema=found["schema"],
            ),
            totals=Totals(**found["totals"]),
            since_checkpoint=Distance(*found["since_checkpoint"]),
            head_digest=found["head_digest"],
            ledger=ChainMove.of_json(found.get("ledger")),
            replaced=tuple(map(str, found.get("replaced", ()))),
        )
    except _INVALID as error:
        raise VersionIncomplete(f"{key}: not a commit record: {error!r}") from error


def _check_keys(record: Record) -> None:
    """Raise InvalidKey unless all keys are those of the record's own dataset."""
    uuid, delta = record.key.split("/")[1], record.delta
    files = [*(file.key for file in delta.added), *(key for _, key in delta.removed)]
    check_foreign_keys(files, *keys.data_prefixes(uuid))
    check_foreign_keys([key for key in delta.indices.values() if isinstance(key, str)], keys.dataset(uuid))
    for key in (record.parent, record.restores, record.recovers):
        if key is not None and keys.parse_record(uuid, key) is None:
            raise InvalidKey(f"{key!r:.200} is not the key of a record of {uuid!r}")


def size_of(files: Iterable[PartitionFile]) -> Totals:
    """Return the sum over files."""
    given = tuple(files)
    return Totals(
        rows=sum(file.rows for file in given),
        files=len(given),
        bytes=sum(file.bytes for file in given),
        partitions=len({directory(file.key) for file in given}),
    )


def after(totals: Totals, added: Totals, removed: Totals, *, partitions: int) -> Totals:
    """Return the totals after a change, given the number of partitions after it."""
    return replace(
        totals,
        rows=totals.rows + added.rows - removed.rows,
        files=totals.files + added.files - removed.files,
        bytes=totals.bytes + added.bytes - removed.bytes,
        partitions=partitions,
    )


def utc(time: datetime) -> datetime:
    """Return the time in UTC; a naive time is taken as UTC."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _render_reads(reads: ReadPredicate) -> Any:
    if isinstance(reads, Nothing):
        return "nothing"
    if isinstance(reads, Everything):
        return "everything"
    if isinstance(reads, Matching):
        types = {field.name: type_name(field.type) for field in reads.partitions}
        return {"matching": reads.predicate.to_sql(), "partition_types": types}
    return {"partitions": sorted(reads.paths)}


def _parse_reads(found: Any) -> ReadPredicate:
    if found == "nothing":
        return Nothing()
    if found == "everything":
        return Everything()
    if "matching" in found:
        partitions = pa.schema([(name, parse_type(text)) for name, text in found["partition_types"].items()])
        return Matching(parse(found["matching"]).bind(partitions), partitions)
    return Partitions(frozenset(found["partitions"]))
