"""The partition columns of all files of a head, as arrays, for planning before any file is read.

A column is held as the distinct values and one number per file: four bytes a file, plus the values. It lives as long as
the head, whose strings take a hundred times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import unquote
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import PartitionInvalid
from kubothek.table.expressions import Term
from kubothek.table.expressions.arrow import truth
from kubothek.table.log.model.head import Head, partition_keys_in
from kubothek.table.log.model.paths import NOT_A_VALUE, parse_path, value_parser

Mask = npt.NDArray[np.bool_]

_NOWHERE: Final = -1
"""The number of a value that the file's path does not contain."""


@dataclass(frozen=True, slots=True)
class PathColumn:
    """``codes``: for each file, in head order, the position of its value in ``values``, or -1 if it is unknown."""

    codes: npt.NDArray[np.int32]
    values: pa.Array[Any]

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.codes.nbytes) + self.values.nbytes

    def where(self, term: Term, *, unknown: bool) -> Mask:
        """Return the files for which the bound term is TRUE in all rows; ``unknown`` where paths lack the column."""
        found = pc.fill_null(truth(term, self.values), False).to_numpy(zero_copy_only=False)
        result: Mask = np.append(found, unknown)[self.codes]
        return result


PathColumns = Mapping[str, PathColumn]


def path_columns(head: Head, schema: pa.Schema, needed: Set[str]) -> PathColumns:
    """Return the columns that the paths of the head's files contain, by name; computed once for each head, if needed.

    Columns that only some of the paths contain, in tables of other writers, may be left out. Raises PartitionInvalid
    for a path with a column that is not in the schema, or a value that is not of its column's type.
    """
    first = next(iter(head.partitions), None)
    if first is None or needed.isdisjoint((*head.partition_keys, *partition_keys_in(head.file(first)))):
        return {}
    name = id(head)
    known = _KNOWN.get(name)
    if known is not None and known.head() is head and known.schema.equals(schema):
        return known.columns
    columns = read_columns(list(head.files().values()), schema)

    def forget(_: object) -> None:
        _KNOWN.pop(name, None)

    _KNOWN[name] = _Known(ref(head, forget), schema, columns)
    return columns


def read_columns(keys: list[str], schema: pa.Schema) -> PathColumns:
    """Return the columns for these keys. The cost in Python is per distinct directory name, not per key."""
    columns: dict[str, _Reading] = {}
    split: pa.Array[Any] = pc.split_pattern(pa.array(keys, pa.large_string()), "/")
    depths: npt.NDArray[np.int64] = pc.list_value_length(split).to_numpy()
    for depth in np.unique(depths).tolist():
        positions = np.flatnonzero(depths == depth)
        alike = split if len(positions) == len(split) else split.take(positions)
        for level in range(2, depth - 1):
            segments = pc.list_element(alike, level).dictionary_encode()
            _note(
                columns,
                cast("list[str]", segments.dictionary.to_pylist()),
                segments.indices.to_numpy(),
                positions,
                len(keys),
            )
    return {name: each.column(name, schema) for name, each in columns.items()}


class _Reading:
    """A column while the keys are parsed; ``texts`` numbers its values as they are written in paths."""

    def __init__(self, count: int) -> None:
        self.codes = np.full(count, _NOWHERE, np.int32)
        self.texts: dict[str, int] = {}

    def column(self, name: str, schema: pa.Schema) -> PathColumn:
        if name not in schema.names:
            raise PartitionInvalid(f"partition column {name!r} of a file's path is not a column of the table")
        data_type = schema.field(name).type
        try:
            values = pa.array(map(value_parser(data_type), self.texts), data_type)
        except NOT_A_VALUE:
            for text in self.texts:
                parse_path(f"{name}={text}", schema)  # raises the error that names the value
            raise
        return PathColumn(self.codes, values)


def _note(
    columns: dict[str, _Reading],
    segments: list[str],
    indices: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int64],
    count: int,
) -> None:
    """Record the column values in these directory names, which are at ``indices`` in the keys at ``positions``.

    Names that are not ``<column>=<value>`` are ignored, as in kartothek.
    """
    found: dict[str, tuple[npt.NDArray[np.int32], _Reading]] = {}
    for number, segment in enumerate(segments):
        name, equals, text = segment.partition("=")
        if not equals or "=" in text:
            continue
        if name not in found:
            column = columns.setdefault(unquote(name), _Reading(count))
            found[name] = np.full(len(segments), _NOWHERE, np.int32), column
        codes, column = found[name]
        codes[number] = column.texts.setdefault(text, len(column.texts))
    for codes, column in found.values():
        here = codes[indices]
        is_known = here != _NOWHERE
        column.codes[positions[is_known]] = here[is_known]


@dataclass(frozen=True, slots=True)
class _Known:
    head: ref[Head]
    schema: pa.Schema
    columns: PathColumns


_KNOWN: Final[dict[int, _Known]] = {}
"""By the identity of the head, its cheapest key."""
