"""Files that were written for a change, and what was collected about their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from kubothek.table.indexes import Collected, Dialect, IndexChange, IndexKind
from kubothek.table.log import PartitionFile
from kubothek.table.operations.gathering import Gathered
from kubothek.table.schema import merge
from kubothek.table.skipping.change import SkippingChange
from kubothek.table.skipping.model import SkippingState


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
