"""Files that were written for a change, what was collected about their rows, and the change that appends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.table.indexes import Collected, Dialect, IndexChange, IndexCollector, IndexKind
from kubothek.table.log import Change, Operation, PartitionFile, Snapshot
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.schema import merge
from kubothek.table.skipping.collect.collectors import Describing, SkippingCollector
from kubothek.table.skipping.model import Part, SkippingChange, SkippingState

# Data collected in the pass that writes rows: entries of secondary indices, and skipping metadata.


@dataclass(frozen=True, slots=True)
class Gathered:
    """Collected data of some files: ``index`` their index entries, ``skipping`` the parts with their descriptions."""

    index: Collected = field(default_factory=Collected)
    skipping: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to send from a task to the driver."""
        return {"index": self.index.to_json(), "skipping": [part.to_json() for part in self.skipping]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Read the form of :meth:`to_json`."""
        return cls(Collected.from_json(found["index"]), tuple(map(Part.from_json, found["skipping"])))

    @classmethod
    def joined(cls, parts: Iterable[Gathered]) -> Self:
        """Return the joined data of several writers."""
        some = list(parts)
        return cls(
            Collected.joined(part.index for part in some),
            tuple(each for part in some for each in part.skipping),
        )


@dataclass(frozen=True, slots=True)
class Gathering:
    """The definition of what to collect; sent to executors.

    ``indexed``  columns whose values are collected for indices
    """

    indexed: tuple[str, ...] = ()
    describing: Describing = field(default_factory=Describing)

    @classmethod
    def of(
        cls, snapshot: Snapshot, schema: pa.Schema, more: Iterable[str] = (), begins: SkippingState | None = None
    ) -> Self:
        """Return what the table of this snapshot requires of rows of this stored schema.

        ``more``    further columns to index
        ``begins``  initial skipping metadata of the table, see :func:`~kubothek.table.skipping.refresh.beginning`
        """
        head = snapshot.head
        columns = dict.fromkeys([*head.index_state.wanted(), *more])
        indexed = tuple(c for c in columns if c in schema.names and not pa.types.is_null(schema.field(c).type))
        return cls(indexed, Describing.of(begins or head.skipping, len(head.partitions)))

    def gatherer(self, store: Store, uuid: str, table: str, schema: pa.Schema, partition_on: Sequence[str]) -> Gatherer:
        """Return an observer of rows of this stored schema while they are written to files of the table."""
        index = IndexCollector(store, uuid, {column: schema.field(column).type for column in self.indexed})
        skipping = SkippingCollector(store, uuid, table, schema, partition_on, self.describing)
        return Gatherer(index, skipping, pa.schema([schema.field(name) for name in partition_on]))


class Gatherer:
    """Observes written rows for indices and skipping metadata."""

    def __init__(self, index: IndexCollector, skipping: SkippingCollector, partitions: pa.Schema) -> None:
        self._index = index
        self._skipping = skipping
        self._partitions = partitions

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Note rows that are written, as one row group, to the file of this label, which may get more."""
        self._index.observe(label, batches)
        self._skipping.observe(label, batches)

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        """Note a complete file; ``footer`` is part of ``content``."""
        if self._skipping.is_idle:
            return
        partition = parse_path(partition_path(key), self._partitions) if len(self._partitions) else {}
        self._skipping.wrote(label, key, content, footer, partition)

    def add(self, other: Gathered) -> None:
        """Add what another observer collected, in another task."""
        self._index.add(other.index)
        self._skipping.add(other.skipping)

    def finish(self) -> Gathered:
        """Store what is still in memory, once all files are in the store; return all that was collected."""
        return Gathered(self._index.finish(), self._skipping.finish())


@dataclass(frozen=True, slots=True)
class Written:
    """New data files.

    ``schema``        the stored schema of their rows
    ``evolves``       whether the table may evolve to it, see :func:`kubothek.table.schema.merge`
    ``partition_on``  the columns that partition them
    ``layout``        for later writers, in the JSON form of :class:`~kubothek.table.layout.Layout`; None = unchanged
    ``gathered``      collected while they were written: index entries, descriptions
    ``wanted``        initial indices of a new table, by column, and ``dialect`` of its string indices
    ``begins``        initial skipping metadata of a new table
    ``zones``         time zones of the rows, by column, see :mod:`kubothek.table.time_zones`
    """

    files: tuple[PartitionFile, ...]
    schema: pa.Schema
    partition_on: tuple[str, ...]
    layout: Mapping[str, Any] | None = None
    evolves: bool = False
    gathered: Gathered = field(default_factory=Gathered)
    wanted: Mapping[str, IndexKind] = field(default_factory=dict)
    dialect: Dialect | None = None
    begins: SkippingState | None = None
    zones: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the joined result of several writes for one change, each for the schema that the ones before left."""
        first, *others = parts
        schema, columns = first.schema, first.gathered.index.files.keys()
        for other in others:
            schema = merge(schema, other.schema, evolve=first.evolves)
        gathered = Gathered.joined(part.gathered for part in parts)
        return replace(
            first,
            files=tuple(file for part in parts for file in part.files),
            schema=schema,
            zones={name: zone for part in reversed(parts) for name, zone in part.zones.items()},
            # A column that some writers saw as null, and did not observe, is read from the files again.
            gathered=gathered
            if all(part.gathered.index.files.keys() == columns for part in parts)
            else replace(gathered, index=Collected()),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all objects that were written, data files first."""
        indices = (file.key for each in self.gathered.index.files.values() for file in each)
        return (*(file.key for file in self.files), *indices)

    @property
    def index(self) -> IndexChange:
        """The change of indices, with the entries that the commit need not read from the files again."""
        return IndexChange(collected=self.gathered.index, wanted=self.wanted, dialect=self.dialect)

    @property
    def skipping(self) -> SkippingChange:
        """The descriptions of the files."""
        return SkippingChange(written=self.gathered.skipping, begins=self.begins)


# Append: adds rows, removes nothing. It reads nothing, so it conflicts with no concurrent commit.


def append(written: Written, *, by: str = "") -> Change:
    """Return the change that adds these files, on any head."""
    return Change(
        operation=Operation.APPEND,
        added=written.files,
        schema=written.schema,
        partition_keys=written.partition_on,
        layout=written.layout,
        zones=written.zones,
        evolves=written.evolves,
        index=written.index,
        skipping=written.skipping,
        by=by,
    )
