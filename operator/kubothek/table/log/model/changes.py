"""What a caller asks a transaction to commit."""

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
from kubothek.table.skipping.change import NO_SKIPPING_CHANGE, SkippingChange


class Operation(StrEnum):
    """What kind of change a commit is, as history shows it."""

    CREATE = "Create"
    APPEND = "Append"
    REPLACE = "Replace"
    DELETE = "Delete"
    UPDATE = "Update"
    OVERWRITE = "Overwrite"
    ROLLBACK = "Rollback"
    DROP = "Drop"
    """The dataset was deleted; its head is a tombstone."""
    RESTORE = "Restore"
    """The tombstone was taken back."""
    INDEX = "Index"
    """Indices were made, dropped or tidied up; no row changed."""
    EXPIRE = "Expire"
    """Versions below a number can no longer be asked for; no row changed."""
    TAG = "Tag"
    """Versions were given names, or lost them; no row changed."""
    LAYOUT = "Layout"
    """Files are laid out in another way from now on; no row changed."""
    COMPACT = "Compact"
    """Rows were written once more, into fewer files; none of them changed."""
    LEDGER = "Ledger"
    """The chain of a ledger got blocks that bring no rows, or was moved; or its table was made anew from it."""
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
        Operation.OVERWRITE,
        Operation.ROLLBACK,
    }
)
"""What changes rows at a user's wish; those of a ledger change by its sources only."""


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One data file: the label under which the head lists it, its key, and its size in rows and bytes.

    ``sha3``  SHA3-256 of its bytes in hex, made as it was written; None of a file that another program wrote
    """

    label: str
    key: str
    rows: int
    bytes: int
    sha3: str | None = None

    def to_json(self) -> list[Any]:
        """As it stands in records: the arguments that make it."""
        return [self.label, self.key, self.rows, self.bytes, self.sha3]


@dataclass(frozen=True, slots=True)
class Freed:
    """The size of files that a change takes away, where whoever makes it knows it already."""

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
    """The change depends on all files that may hold rows which match, as far as their partition paths tell.

    ``predicate``   bound, on partition columns only: :meth:`of` leaves out what paths say nothing about
    ``partitions``  the partition columns and their stored types
    """

    predicate: Predicate
    partitions: pa.Schema

    @classmethod
    def of(cls, predicate: Predicate, schema: pa.Schema, partition_keys: Sequence[str]) -> Self:
        """The files that may hold rows of a table which match the predicate."""
        fields = (schema.field(name) for name in partition_keys)
        # A record can name no type with a time zone, which only a foreign writer partitions on.
        partitions = pa.schema([f for f in fields if not (pa.types.is_timestamp(f.type) and f.type.tz)])
        on_paths = Predicate(
            tuple(tuple(t for t in terms if t.column in partitions.names) for terms in predicate.conjunctions)
        )
        return cls(on_paths.bind(partitions), partitions)

    def may_hold(self, path: str) -> bool:
        """Whether files of this partition path may hold such rows; they may if the path makes no sense."""
        try:
            return self.predicate.verdict(parse_path(path, self.partitions)) is not False
        except PartitionInvalid:
            return True


ReadPredicate = Nothing | Everything | Partitions | Matching
NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a dataset, relative to the snapshot that the transaction showed.

    ``added``           new files, in the order in which readers shall meet them; each under a new label
    ``removed``         labels of that snapshot that go
    ``freed``           rows and bytes of ``removed``; None = their footers are read
    ``reads``           what the change depends on; decides with ``removed`` which concurrent commits conflict
    ``positions``       where each of ``added`` stands in the result (ascending); None = all at the end. Only for a
                        change that reads everything, as others may have added files meanwhile
    ``schema``          the stored schema of the added rows; None if the change brings none
    ``replaces_schema`` ``schema`` and ``partition_keys`` take the place of the table's, whatever those were: for a
                        change after which no file of before is left
    ``evolves``         the table may get columns of ``schema`` that it does not have, and wider types
    ``restores``        the version that it brings back, which must not expire before the swap
    ``partition_keys``  needed by the first change of a dataset; later it may repeat them. None = as they are
    ``index``           indices to make or drop, and index entries of ``added``; by default every index that is there is
                        kept exact, from the files themselves
    ``skipping``        skipping metadata of ``added``, and what else changes of it; by default what is there stays
    ``table``           name of the table in the dataset; only for the commit that creates it. None = the usual one
    ``metadata``        user metadata to set; None removes a key. ``kubothek_*`` is the protocol's own
    ``layout``          how later writers lay out files, in the JSON form of ``lake.table.layout``; None = as it is
    ``zones``           time zones of the added rows, by column (``lake.zones``); of a column that it does not name
                        nothing is known
    ``intake``          by standing source, the new page of what it has taken (``lake.intake.ledger``); in the way of
                        the change is any other commit that turned that page
    ``ledger``          how it moves the dataset's chain; in the way of the change is any other commit that moved it
    ``horizon``         the oldest version that can be asked for after it; it is only ever raised
    ``spares``          the records of tagged versions below ``horizon``; any other tag there is in its way
    ``purges``          its own version becomes the oldest that can be asked for; every tag is in its way
    ``by``              who: a resource, a user; for history only
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
    zones: Mapping[str, str] = field(default_factory=dict)
    intake: Mapping[str, str] = field(default_factory=dict)
    ledger: LedgerChange | None = None
    horizon: int = 0
    spares: frozenset[str] = frozenset()
    purges: bool = False
    by: str = ""


def depends_on(reads: ReadPredicate, path: str) -> bool:
    """Whether a change with this read predicate depends on files of this partition path."""
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
