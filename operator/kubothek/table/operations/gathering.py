"""What is gathered of rows in the pass that writes them: entries of secondary indices, and skipping metadata."""

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
    """What is known of some data files: ``index`` their index entries, ``skipping`` where their descriptions are."""

    index: Collected = field(default_factory=Collected)
    skipping: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the way from a task to the driver."""
        return {"index": self.index.to_json(), "skipping": [part.to_json() for part in self.skipping]}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`."""
        return cls(Collected.from_json(found["index"]), tuple(map(Part.from_json, found["skipping"])))

    @classmethod
    def joined(cls, parts: Iterable[Gathered]) -> Self:
        """What several writers gathered."""
        some = list(parts)
        return cls(
            Collected.joined(part.index for part in some),
            tuple(each for part in some for each in part.skipping),
        )


@dataclass(frozen=True, slots=True)
class Gathering:
    """What there is to gather; travels to executors.

    ``indexed``  columns whose values are gathered for indices
    """

    indexed: tuple[str, ...] = ()
    describing: Describing = field(default_factory=Describing)

    @classmethod
    def of(
        cls, snapshot: Snapshot, schema: pa.Schema, more: Iterable[str] = (), begins: SkippingState | None = None
    ) -> Self:
        """What the table of this snapshot wants of rows of this stored schema.

        ``more``    columns to be indexed
        ``begins``  the skipping metadata that it begins with, see :func:`~kubothek.table.skipping.initial.beginning`
        """
        head = snapshot.head
        columns = dict.fromkeys([*head.index_state.wanted(), *more])
        indexed = tuple(c for c in columns if c in schema.names and not pa.types.is_null(schema.field(c).type))
        return cls(indexed, Describing.of(begins or head.skipping, len(head.partitions)))

    def gatherer(self, store: Store, uuid: str, table: str, schema: pa.Schema, partition_on: Sequence[str]) -> Gatherer:
        """What observes rows of this stored schema on their way into files of the table."""
        index = IndexCollector(store, uuid, {column: schema.field(column).type for column in self.indexed})
        skipping = SkippingCollector(store, uuid, table, schema, partition_on, self.describing)
        return Gatherer(index, skipping, pa.schema([schema.field(name) for name in partition_on]))


class Gatherer:
    """Observes rows for all who want to know something of them."""

    def __init__(self, index: IndexCollector, skipping: SkippingCollector, partitions: pa.Schema) -> None:
        self._index = index
        self._skipping = skipping
        self._partitions = partitions

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """These rows go, as one row group, into the file of this label, which may get more."""
        self._index.observe(label, batches)
        self._skipping.observe(label, batches)

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        """The file is whole; ``footer`` is part of ``content``."""
        partition = parse_path(partition_path(key), self._partitions) if len(self._partitions) else {}
        self._skipping.wrote(label, key, content, footer, partition)

    def add(self, other: Gathered) -> None:
        """Take over what another one gathered, in a task elsewhere."""
        self._index.add(other.index)
        self._skipping.add(other.skipping)

    def finish(self) -> Gathered:
        """Store what is held, once all files are in the store; all that was gathered."""
        return Gathered(self._index.finish(), self._skipping.finish())
