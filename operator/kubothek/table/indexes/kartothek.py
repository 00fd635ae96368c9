"""Kartothek's index files: one Parquet file lists the labels of each value (Kartothek specification, "Index files").

It has two columns: the indexed one, and ``partition`` with lists of labels. Files of other writers differ in the type
of strings, the order, the row groups and extra columns. Kubothek's are sorted by value, so that readers that use row
group statistics, such as Kubothek and Arrow, find a value without reading the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import IndexStale, ObjectNotFound, PreconditionFailed
from kubothek.storage import Store
from kubothek.table.indexes import model
from kubothek.table.indexes.entries import LABEL, LABEL_TYPE, VALUE, no_entries, sort_distinct
from kubothek.table.indexes.integrity import check_bytes
from kubothek.table.indexes.model import Dialect
from kubothek.table.indexes.types import file_type
from kubothek.table.untrusted_parquet import DAMAGED, open_parquet_file

PARTITION: Final = "partition"
_GROUP_VALUES: Final = 10_000
"""Values in a row group, as in both libraries."""


def read(store: Store, column: str, index: Any, stored: pa.DataType) -> tuple[pa.Table, pa.DataType | None]:
    """Return the sorted entries of an index as a head lists it, and the type of its values; None for a legacy map.

    Raises IndexStale for an index that is missing or cannot be read.
    """
    if isinstance(index, Mapping):
        return from_legacy(column, index, stored), None
    try:
        data = store.get(str(index))
        check_bytes(str(index), data)
        reader = open_parquet_file(pa.BufferReader(data))
        tables = [
            flattened(reader.read_row_group(number, columns=[column, PARTITION]), column, stored)
            for number in range(reader.num_row_groups)
        ]
        file_type = reader.schema_arrow.field(column).type
    except ObjectNotFound as error:
        raise unreadable(column, f"its file {index!r} is gone") from error
    except DAMAGED as error:
        raise unreadable(column, f"{index}: {error}") from error
    return sort_distinct([no_entries(stored), *tables]), file_type


def dialect_of(store: Store, indices: Mapping[str, Any], schema: pa.Schema) -> Dialect:
    """Return the dialect of another library's indices: Kartothek's unless an index on strings is plateau's."""
    for column, index in indices.items():
        if column in schema.names and pa.types.is_string(stored := schema.field(column).type):
            try:
                _, found = read(store, column, index, stored)
            except IndexStale:
                continue
            if found == file_type(stored, Dialect.PLATEAU):
                return Dialect.PLATEAU
    return Dialect.KARTOTHEK


def flattened(table: pa.Table, column: str, stored: pa.DataType) -> pa.Table:
    """Return the entries of a piece of an index file: a row for each label of each value. Raises pyarrow's errors."""
    lists = table.column(PARTITION).combine_chunks()
    lists = lists if isinstance(lists, pa.Array) else pa.concat_arrays(lists.chunks)
    labels = pc.list_flatten(lists).cast(pa.string()).dictionary_encode()
    values = table.column(column).take(pc.list_parent_indices(lists)).cast(stored)
    flat = pa.Table.from_arrays([values, pa.chunked_array([labels.cast(LABEL_TYPE)])], names=[VALUE, LABEL])
    return flat.filter(pc.is_valid(flat.column(VALUE)))


def from_legacy(column: str, index: Mapping[str, Any], stored: pa.DataType) -> pa.Table:
    """Return the entries of a legacy index inside a head: a map of values, in JSON text, to labels.

    Raises IndexStale if the values do not parse as values of the column.
    """
    try:
        values = _parsed(pa.array(list(index), pa.string()), stored)
        lists = pa.array(list(index.values()), pa.list_(pa.string()))
        return sort_distinct([flattened(pa.table({column: values, PARTITION: lists}), column, stored)])
    except DAMAGED as error:
        raise unreadable(column, f"the map in the head does not fit to the column: {error}") from error


def write(store: Store, uuid: str, column: str, entries: pa.Table, file_type: pa.DataType, moment: datetime) -> str:
    """Store sorted entries as an index file under a new key, and return the key."""
    data = render(column, entries, file_type)
    digest = model.digest_of(memoryview(data))
    while True:
        key = model.kartothek_key(uuid, column, moment, digest)
        try:
            store.put_if_absent(key, memoryview(data))
        except PreconditionFailed:
            moment += timedelta(microseconds=1)
        else:
            return key


def render(column: str, entries: pa.Table, file_type: pa.DataType) -> pa.Buffer:
    """Return the bytes of an index file with these sorted entries."""
    schema = pa.schema([(column, file_type), (PARTITION, pa.list_(pa.field("item", pa.string())))])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        version="2.4",
        compression="snappy",
        coerce_timestamps="us",
        use_compliant_nested_type=False,
    ) as writer:
        values, labels = entries.column(VALUE), entries.column(LABEL)
        ends = _ends(values)
        for first in range(0, len(ends), _GROUP_VALUES):
            group = ends.slice(first, _GROUP_VALUES)
            start = ends[first - 1].as_py() if first else 0
            stop = group[-1].as_py()
            offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.subtract(group, start).cast(pa.int32())])
            names_of_files = labels.slice(start, stop - start).cast(pa.string()).combine_chunks()
            lists = pa.ListArray.from_arrays(cast("Any", offsets), _array(names_of_files)).cast(
                schema.field(PARTITION).type
            )
            distinct = values.take(pc.subtract(group, 1)).cast(file_type)
            writer.write_table(pa.table([_array(distinct.combine_chunks()), lists], schema=schema))
    return sink.getvalue()


def _ends(values: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return the position after the last entry of each of the sorted values."""
    count = len(values)
    if not count:
        return pa.array([], pa.int64())
    changes = pc.not_equal(values.slice(1), values.slice(0, count - 1))
    inner = pc.add(pc.indices_nonzero(changes).cast(pa.int64()), 1)
    return pa.concat_arrays([_array(inner), pa.array([count], pa.int64())])


def _parsed(texts: pa.Array[Any], stored: pa.DataType) -> pa.Array[Any]:
    if pa.types.is_boolean(stored):
        texts = pc.utf8_lower(texts)
    return texts.cast(stored)


def _array(values: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    return pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values


def unreadable(column: str, why: str) -> IndexStale:
    """Return the error for an index that exists but is unusable."""
    return IndexStale(f"index on {column!r}: {why}; rebuild it: kubothek index --rebuild")
