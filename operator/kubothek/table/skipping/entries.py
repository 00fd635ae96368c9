"""Entries in memory: a table with a row for each data file; and the description of a file.

Its columns are ``key`` (of the data file, relative to the store), ``modified`` (of the file, in ms since the epoch; 0
is unknown), ``virtual_…`` for each partition column, and one for each index, named as in the metadata files. In an
index column, null means "unknown". A struct of nulls or an empty list means that the file holds no values.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid
from kubothek.table.skipping.bloom.index_type import BloomFilter
from kubothek.table.skipping.columns import leaf, path_of
from kubothek.table.skipping.indexes import Collector, Values, check, index_type, types_of
from kubothek.table.skipping.model import Encryption, IndexDefinition
from kubothek.table.skipping.names import VIRTUAL

KEY: Final = "key"
MODIFIED: Final = "modified"


@dataclass(frozen=True)
class EntrySchema:
    """The schema of a table's entries.

    ``definitions``  the indices that have entries, in the order of their columns
    ``types``        types of the table's columns that each index is on
    ``paths``        paths of these columns
    ``partitions``   type of the ``virtual_`` column by partition column
    """

    definitions: tuple[IndexDefinition, ...]
    types: tuple[tuple[pa.DataType, ...], ...]
    paths: tuple[tuple[tuple[str, ...], ...], ...]
    partitions: Mapping[str, pa.DataType]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of a table of entries."""
        fields: list[pa.Field[Any]] = [pa.field(KEY, pa.string()), pa.field(MODIFIED, pa.int64())]
        fields += [pa.field(VIRTUAL + name, data_type) for name, data_type in self.partitions.items()]
        return pa.schema([*fields, *self.indices])

    @cached_property
    def indices(self) -> list[pa.Field[Any]]:
        """The columns of the indices."""
        return [
            pa.field(each.column, index_type(each.type).entry_type(each, types))
            for each, types in zip(self.definitions, self.types, strict=True)
        ]

    def row(
        self, key: str, modified: int, partition: Mapping[str, Any], described: Sequence[pa.Array[Any] | None]
    ) -> pa.Table:
        """Return the entry of one file, as a table. ``partition``: values of its partition columns, None for NULL."""
        columns: list[Any] = [pa.array([key], pa.string()), pa.array([modified], pa.int64())]
        columns += [virtual_value(partition.get(name), kind) for name, kind in self.partitions.items()]
        columns += [
            pa.nulls(1, field.type) if found is None else found
            for field, found in zip(self.indices, described, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.arrow)


def fields(
    definitions: Sequence[IndexDefinition], schema: pa.Schema, partition_keys: Sequence[str] = ()
) -> EntrySchema:
    """Return the entry schema for a table, or files, of this schema; an index on an untyped column has no entries.

    Raises SkippingInvalid as :func:`~.indexes.check` does.
    """
    check(definitions, schema, partition_keys)
    if missing := [name for name in partition_keys if name not in schema.names]:
        raise SkippingInvalid(f"partition column {missing[0]!r} is not a column of the table; correct the head")
    usable = [each for each in definitions if not any(map(pa.types.is_null, types_of(each, schema)))]
    return EntrySchema(
        tuple(usable),
        tuple(tuple(types_of(each, schema)) for each in usable),
        tuple(tuple(path_of(schema, column) for column in each.columns) for each in usable),
        {name: virtual_type(schema.field(name).type) for name in partition_keys},
    )


def complete(schema: EntrySchema, entries: pa.Table) -> pa.Array[Any]:
    """Return which entries have a value for each of Xskipper's indices: Xskipper reads null as "no values"."""
    found: pa.Array[Any] = pa.repeat(pa.scalar(True), entries.num_rows)
    for definition in schema.definitions:
        if index_type(definition.type).foreign:
            found = pc.and_(found, entries.column(definition.column).combine_chunks().is_valid())
    return found


def definitions_tag(schema: EntrySchema, encryption: Encryption | None = None) -> str:
    """Return a short digest of all that determines the columns of a metadata file: files of one id can be merged."""
    facts = [
        [[each.to_json(), str(field.type)] for each, field in zip(schema.definitions, schema.indices, strict=True)],
        [[name, str(kind)] for name, kind in schema.partitions.items()],
        [encryption.footer_key, encryption.plaintext_footer] if encryption else None,
    ]
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


class Describer:
    """Describer of one data file from its rows, in one pass and bounded memory.

    ``only``  the indices to collect, if the entries of the others come from elsewhere
    ``fpp``   false-positive probability of Bloom filters whose definition leaves it open
    """

    def __init__(
        self, schema: EntrySchema, only: Collection[IndexDefinition] | None = None, *, fpp: float | None = None
    ) -> None:
        self._schema = schema
        self._collectors = [
            _collector(each, types, fpp) if only is None or each in only else None
            for each, types in zip(schema.definitions, schema.types, strict=True)
        ]

    def update(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add some of the file's rows; a column that they lack is NULL."""
        if not batch.num_rows:
            return
        seen: dict[tuple[str, ...], Values] = {}
        for collector, paths, types in zip(self._collectors, self._schema.paths, self._schema.types, strict=True):
            if collector is None:
                continue
            for path, data_type in zip(paths, types, strict=True):
                if path not in seen:
                    seen[path] = Values(leaf(batch, path, data_type))
            collector.update([seen[path] for path in paths])

    def finish(self) -> list[pa.Array[Any] | None] | None:
        """Return the entry of each index; None for one that was not collected, or of an own type without a result.

        Return None if an index of Xskipper's types has no result: the file then has no entries.
        """
        found: list[pa.Array[Any] | None] = []
        for collector, definition in zip(self._collectors, self._schema.definitions, strict=True):
            entry = None if collector is None else collector.finish()
            if collector is not None and entry is None and index_type(definition.type).foreign:
                return None
            found.append(entry)
        return found


def _collector(definition: IndexDefinition, types: Sequence[pa.DataType], fpp: float | None) -> Collector:
    kind = index_type(definition.type)
    if fpp is not None and isinstance(kind, BloomFilter):
        return kind.collector(definition, types, fpp)
    return kind.collector(definition, types)


# --- partition columns -----------------------------------------------------------------------------------------


def virtual_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that Spark infers for a partition column from paths.

    See Xskipper's Metadatastore Spec, "Per-Index Columns".
    """
    types = pa.types
    if types.is_integer(data_type):
        return pa.int32()
    if types.is_floating(data_type):
        return pa.float64()
    if types.is_timestamp(data_type):
        return pa.timestamp("us", "UTC")
    return data_type if types.is_date32(data_type) else pa.string()


def virtual_value(value: Any, kind: Any) -> pa.Array[Any]:
    """Return the value as an array; NULL if the type cannot hold it: Xskipper reads such a file."""
    if pa.types.is_string(kind) and not isinstance(value, str) and value is not None:
        value = str(value) if isinstance(value, bool) else None
    try:
        found: pa.Array[Any] = pa.array([value], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        found = pa.nulls(1, kind)
    return found
