"""Changes: what a caller asks a transaction to commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import pyarrow as pa

from kubothek.errors import PartitionInvalid
from kubothek.table.expressions import Predicate
from kubothek.table.indexes.model import NO_CHANGE, IndexChange
from kubothek.table.log.model.ledgers import LedgerChange
from kubothek.table.log.model.paths import parse_path
from kubothek.table.log.model.writers import Grant
from kubothek.table.skipping.model import NO_SKIPPING_CHANGE, SkippingChange


class Operation(StrEnum):
    """The kind of change that a commit makes, as history shows it."""

    CREATE = "Create"
    APPEND = "Append"
    REPLACE = "Replace"
    DELETE = "Delete"
    UPDATE = "Update"
    MERGE = "Merge"
    OVERWRITE = "Overwrite"
    ROLLBACK = "Rollback"
    DROP = "Drop"
    """The dataset was deleted; its head is a tombstone."""
    RESTORE = "Restore"
    """The deletion was undone."""
    INDEX = "Index"
    """Indices were created, dropped or compacted; no row changed."""
    EXPIRE = "Expire"
    """Versions below a number expired; no row changed."""
    TAG = "Tag"
    """Tags were set or removed; no row changed."""
    LAYOUT = "Layout"
    """The layout of later files, the export for other engines, or the writers were set; no row changed."""
    COMPACT = "Compact"
    """Compaction: rows were rewritten into fewer files; no row changed."""
    LEDGER = "Ledger"
    """The chain of a ledger got blocks without rows, or was moved; or the table was rebuilt from it."""
    EXTERNAL = "External"
    """A foreign writer's change of the head, adopted."""
    RECOVERED = "Recovered"
    """A commit that a foreign writer had overwritten, merged again."""


ROW_OPERATIONS: Final = frozenset(
    {
        Operation.CREATE,
        Operation.APPEND,
        Operation.REPLACE,
        Operation.DELETE,
        Operation.UPDATE,
        Operation.MERGE,
        Operation.OVERWRITE,
        Operation.ROLLBACK,
    }
)
"""Operations of users that change rows; the rows of a ledger change through its sources only."""


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One data file: the label under which the head lists it, its key, and its size in rows and bytes.

    ``sha3``  SHA3-256 of its bytes in hex, computed while they were written; None for a file of another program
    """

    label: str
    key: str
    rows: int
    bytes: int
    sha3: str | None = None

    def to_json(self) -> list[Any]:
        """Return the form in records: the constructor's arguments."""
        return [self.label, self.key, self.rows, self.bytes, self.sha3]


@dataclass(frozen=True, slots=True)
class Freed:
    """The size of files that a change removes, where the caller knows it already."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """The change does not depend on what the table holds."""


@dataclass(frozen=True, slots=True)
class Everything:
    """The change depends on the whole table."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """The change depends on all files below these partition paths, e.g. ``month=1`` or ``month=1/day=2``.

    Paths are in the form that :func:`~kubothek.table.log.model.paths.partition_path` gives.
    """

    paths: frozenset[str]


@dataclass(frozen=True, slots=True)
class Matching:
    """The change depends on all files that may hold matching rows, as far as their partition paths tell.

    ``predicate``   bound, and on partition columns only: :meth:`of` drops terms on others
    ``partitions``  the partition columns and their stored types
    """

    predicate: Predicate
    partitions: pa.Schema

    @classmethod
    def of(cls, predicate: Predicate, schema: pa.Schema, partition_keys: Sequence[str]) -> Self:
        """Return the dependency on the files of a table that may hold rows matching the predicate."""
        fields = (schema.field(name) for name in partition_keys)
        # A record cannot name a type with a time zone; only foreign writers partition on one.
        partitions = pa.schema([f for f in fields if not (pa.types.is_timestamp(f.type) and f.type.tz)])
        on_paths = Predicate(
            tuple(tuple(t for t in terms if t.column in partitions.names) for terms in predicate.conjunctions)
        )
        return cls(on_paths.bind(partitions), partitions)

    def may_hold(self, path: str) -> bool:
        """Return whether files of this partition path may hold such rows; True for an invalid path."""
        try:
            return self.predicate.verdict(parse_path(path, self.partitions)) is not False
        except PartitionInvalid:
            return True


ReadPredicate = Nothing | Everything | Partitions | Matching
NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a dataset, relative to the snapshot that the transaction showed.

    ``added``           new files, in the order in which readers meet them; each under a new label
    ``removed``         labels of that snapshot that are removed
    ``freed``           rows and bytes of ``removed``; None = their footers are read
    ``reads``           what the change depends on; decides with ``removed`` which concurrent commits conflict
    ``positions``       position of each of ``added`` in the result (ascending); None = all at the end. Only for a
                        change that reads everything, as others may have added files meanwhile
    ``schema``          the stored schema of the added rows; None if the change brings none
    ``replaces_schema`` ``schema`` and ``partition_keys`` replace the table's: for a change that leaves no earlier file
    ``evolves``         the table may get new columns of ``schema``, and wider types
    ``restores``        the version that it restores, which must not expire before the swap
    ``partition_keys``  required for the first change of a dataset; later ones may repeat them. None = unchanged
    ``index``           indices to create or drop, and index entries of ``added``; by default every existing index is
                        kept exact, from the files themselves
    ``skipping``        skipping metadata of ``added``, and other changes of it; by default unchanged
    ``table``           name of the table in the dataset; only for the commit that creates it. None = the usual one
    ``metadata``        user metadata to set; None removes a key. ``kubothek_*`` is the protocol's own
    ``layout``          layout of later files, in the JSON form of :mod:`kubothek.table.layout`; None = unchanged
    ``grant``           what the owner permits other writers; None = unchanged
    ``zones``           time zones of the added rows, by column (:mod:`kubothek.table.time_zones`); of other columns
                        they are unknown
    ``intake``          by standing source, the new page of what it has ingested (:mod:`kubothek.ingest.watch.ledger`);
                        conflicts with any other commit that replaced that page
    ``ledger``          how it moves the dataset's chain; conflicts with any other commit that moved it
    ``horizon``         the oldest version that readers can request afterwards; it only rises
    ``spares``          the records of tagged versions below ``horizon``; any other tag there makes the change fail
    ``purges``          its own version becomes the horizon; any tag makes the change fail
    ``by``              the resource or user that commits; for history only
    """

    operation: Operation
    added: tuple[PartitionFile, ...] = ()
    removed: tuple[str, ...] = ()
    freed: Freed | None = None
    reads: ReadPredicate = NOTHING
    positions: tuple[int, ...] | None = None
    schema: pa.Schema | None = None
    replaces_schema: bool = False
    evolves: bool = False
    restores: int | None = None
    partition_keys: tuple[str, ...] | None = None
    index: IndexChange = NO_CHANGE
    skipping: SkippingChange = NO_SKIPPING_CHANGE
    table: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    layout: Mapping[str, Any] | None = None
    grant: Grant | None = None
    zones: Mapping[str, str] = field(default_factory=dict)
    intake: Mapping[str, str] = field(default_factory=dict)
    ledger: LedgerChange | None = None
    horizon: int = 0
    spares: frozenset[str] = frozenset()
    purges: bool = False
    by: str = ""


def depends_on(reads: ReadPredicate, path: str) -> bool:
    """Return whether a change with this read predicate depends on files of this partition path."""
    if isinstance(reads, Nothing):
        return False
    if isinstance(reads, Everything):
        return True
    if isinstance(reads, Matching):
        return reads.may_hold(path)
    while path:
        if path in reads.paths:
            return True
        path = path.rpartition("/")[0]
    return "" in reads.paths
