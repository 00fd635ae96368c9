"""Choose the encodings of a data file's columns, by a sample of its first rows.

A dictionary is the default (Parquet format, "Encodings": RLE_DICTIONARY), and the writer falls back to plain values
where it grows too large. Numbers that ascend, such as keys and times of appended rows, are smaller as differences
(DELTA_BINARY_PACKED) and take less time to read. Other numbers of which few are equal are smaller as plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kubothek.table.indexes.types import distinct_of
from kubothek.table.layout import Layout

_SAMPLE: Final = 1 << 11
"""Rows that decide."""
_LEAST: Final = 1 << 12
"""In a file of fewer rows, to look at a column takes as long as to encode it."""
_LONGEST_RUN: Final = 8
"""Mean length of runs of one value from which a dictionary with run lengths is smaller than differences."""
_ASCENTS: Final = 0.9
"""The least share of ascents among the changes from one row to the next."""
_MOST_DISTINCT: Final = 1 / 3
"""Distinct numbers for each row, above which a dictionary takes more bytes and time than plain values."""


def dictionary_and_deltas(batches: Sequence[pa.RecordBatch], layout: Layout) -> tuple[list[str] | bool, list[str]]:
    """Return the Parquet columns to encode with a dictionary (True: all), and those to encode as differences.

    ``batches``  the first rows of the file, in its schema

    The columns of ``layout.dictionary_columns`` keep their dictionaries. Equal rows give equal answers.
    """
    table, chosen = pa.Table.from_batches(batches), layout.dictionary_columns
    schema, rows = table.schema, table.num_rows
    if rows < _LEAST:
        return (True if chosen is None else list(chosen)), []
    first = table.slice(0, _SAMPLE)
    deltas, plain = [], []
    for position, field in enumerate(schema):
        if not _is_number(field.type) or field.name in (chosen or ()):
            continue
        sample = pa.concat_arrays(first.column(position).chunks).drop_null()
        if not pa.types.is_floating(field.type) and _ascends(sample):
            deltas.append(field.name)
        elif distinct_of(sample, rows) > _MOST_DISTINCT * rows:
            plain.append(field.name)
    if chosen is not None:
        return list(chosen), deltas
    if not deltas and not plain:
        return True, deltas
    paths = (path for field in schema for path in _paths(field.name, field.type))
    return [path for path in paths if path not in deltas and path not in plain], deltas


def _is_number(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(data_type) or types.is_floating(data_type) or types.is_timestamp(data_type)


def _ascends(values: pa.Array[Any]) -> bool:
    numbers = (values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_numpy()
    ascents = np.count_nonzero(numbers[1:] > numbers[:-1])
    changes = np.count_nonzero(numbers[1:] != numbers[:-1])
    return bool(changes * _LONGEST_RUN > len(numbers) and ascents >= _ASCENTS * changes)


def _paths(name: str, data_type: pa.DataType) -> list[str]:
    """Return the names of a field's Parquet columns."""
    if pa.types.is_struct(data_type):
        return [path for field in data_type for path in _paths(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(data_type):
        return _paths(f"{name}.list.element", data_type.value_type)
    return [name]
