"""Files that were written for a change, and what is known about their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from kubothek.lake.commits import PartitionFile, Snapshot
from kubothek.lake.indices import Collected, Dialect, IndexChange, IndexCollector, IndexKind
from kubothek.lake.schema import merge
from kubothek.lake.store import Store


@dataclass(frozen=True, slots=True)
class Written:
    """New data files.

    ``schema``        the stored schema of their rows
    ``evolves``       whether the table may evolve to it, see :func:`kubothek.lake.schema.merge`
    ``partition_on``  the columns that partition them
    ``layout``        what later writers shall keep, in the JSON form of :class:`~kubothek.lake.table.layout.Layout`;
                      None = as it is
    ``collected``     index entries that were gathered while they were written
    ``wanted``        indices that a new table gets with them, by column, and ``dialect`` of its string indices
    """

    files: tuple[PartitionFile, ...]
    schema: pa.Schema
    partition_on: tuple[str, ...]
    layout: Mapping[str, Any] | None = None
    evolves: bool = False
    collected: Collected = field(default_factory=Collected)
    wanted: Mapping[str, IndexKind] = field(default_factory=dict)
    dialect: Dialect | None = None

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """What was written for one change in several goes, each for the schema that the ones before it left."""
        first, *others = parts
        schema, columns = first.schema, first.collected.files.keys()
        for other in others:
            schema = merge(schema, other.schema, evolve=first.evolves)
        return replace(
            first,
            files=tuple(file for part in parts for file in part.files),
            schema=schema,
            # A column that some saw as null, and so did not observe, is read from the files again.
            collected=Collected.joined(part.collected for part in parts)
            if all(part.collected.files.keys() == columns for part in parts)
            else Collected(),
        )

    @property
    def index(self) -> IndexChange:
        """What the commit need not read from the files again."""
        return IndexChange(collected=self.collected, wanted=self.wanted, dialect=self.dialect)


def index_collector(store: Store, snapshot: Snapshot, schema: pa.Schema) -> IndexCollector:
    """What observes rows of this stored schema for the indices that the table has by now."""
    columns = {column: schema.field(column).type for column in indexed_columns(snapshot, schema)}
    return IndexCollector(store, snapshot.head.uuid, columns)


def indexed_columns(snapshot: Snapshot, schema: pa.Schema) -> tuple[str, ...]:
    """The columns whose values an index wants of rows of this stored schema."""
    return tuple(
        column
        for column in snapshot.head.index_state.wanted()
        if column in schema.names and not pa.types.is_null(schema.field(column).type)
    )
