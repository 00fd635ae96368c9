"""Data collected in the pass that writes rows: entries of secondary indices, and skipping metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.table.indexes import Collected, IndexCollector
from kubothek.table.log import Snapshot
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.skipping.collect.collectors import Describing, SkippingCollector
from kubothek.table.skipping.model import Part, SkippingState


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
        ``begins``  initial skipping metadata of the table, see :func:`~kubothek.table.skipping.initial.beginning`
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
        partition = parse_path(partition_path(key), self._partitions) if len(self._partitions) else {}
        self._skipping.wrote(label, key, content, footer, partition)

    def add(self, other: Gathered) -> None:
        """Add what another observer collected, in another task."""
        self._index.add(other.index)
        self._skipping.add(other.skipping)

    def finish(self) -> Gathered:
        """Store what is still in memory, once all files are in the store; return all that was collected."""
        return Gathered(self._index.finish(), self._skipping.finish())
