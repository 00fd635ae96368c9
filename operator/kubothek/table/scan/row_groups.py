"""Rows of a few small row groups on a local disk, which Arrow decodes without a scanner and DuckDB without a query.

A scanner and a query each take about a millisecond to begin, which is as long as a small row group takes to decode. The
columns of the predicate are decoded first, the others only if a row matches. Texts that a file holds in a dictionary
stay in it until rows are selected, which takes half of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.table.expressions import Predicate
from kubothek.table.scan.statistics import has_short_dictionary

MOST_VALUES: Final = 1 << 19
"""The most values, rows by columns, that take no longer than a query would; each file counts as more of them."""
VALUES_A_FILE: Final = 1 << 17
MOST_FILES: Final = 3
"""More of them leave no values."""
MOST_BYTES: Final = 4 << 20
"""The most uncompressed bytes, for few but long values."""
MOST_ROW_GROUPS: Final = 64
"""The most row groups, of all files, whose statistics are compared with the predicate one by one in Python."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups of one file, and how to select their rows.

    ``numbers``    of the row groups that may hold matching rows
    ``positions``  of the file's columns in a row group, by name
    ``constants``  values of the columns that the path contains; other columns that the file lacks are NULL
    ``where``      the terms that path and statistics leave open; None: all rows match
    """

    path: str
    footer: pq.FileMetaData
    numbers: list[int]
    positions: Mapping[str, int]
    constants: Mapping[str, Any]
    where: Predicate | None

    @property
    def rows(self) -> int:
        """The number of rows before the predicate."""
        return sum(self.footer.row_group(number).num_rows for number in self.numbers)

    @property
    def size(self) -> int:
        """The number of uncompressed bytes of all columns."""
        return sum(self.footer.row_group(number).total_byte_size for number in self.numbers)

    def select(self, schema: pa.Schema) -> pa.Table:
        """Return the matching rows with the columns of this schema. Raises OSError, ArrowException."""
        stored = [field for field in schema if field.name in self.positions and field.name not in self.constants]
        if not self.numbers:
            return schema.empty_table()
        found, count = self._all(stored) if self.where is None else self._matching(stored, self.where)
        columns = [
            found[field.name] if field.name in found else pa.repeat(self._constant(field), count) for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _all(self, fields: Sequence[pa.Field[Any]]) -> tuple[dict[str, Any], int]:
        names = [field.name for field in fields]
        with pq.ParquetFile(self.path, metadata=self.footer, pre_buffer=False) as file:
            table = file.read_row_groups(self.numbers, names)
        return {name: table.column(name) for name in names}, self.rows

    def _matching(self, fields: Sequence[pa.Field[Any]], where: Predicate) -> tuple[dict[str, Any], int]:
        first = sorted(where.columns)
        later = [field.name for field in fields if field.name not in where.columns]
        texts = [field.name for field in fields if field.name in later and self._has_short_dictionary(field)]
        with pq.ParquetFile(self.path, metadata=self.footer, pre_buffer=False, read_dictionary=texts) as file:
            tested = file.read_row_groups(self.numbers, first, use_threads=False)
            truth: Any = where.truth({name: tested.column(name) for name in first})
            if not (count := pc.sum(truth).as_py() or 0):
                return {}, 0
            others = file.read_row_groups(self.numbers, later, use_threads=False)
        columns = {}
        for field in fields:
            column: Any = (others if field.name in later else tested).column(field.name)
            columns[field.name] = (column if count == len(truth) else column.filter(truth)).cast(field.type)
        return columns, count

    def _has_short_dictionary(self, field: pa.Field[Any]) -> bool:
        if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            return False
        position = self.positions[field.name]
        return all(has_short_dictionary(self.footer.row_group(number).column(position)) for number in self.numbers)

    def _constant(self, field: pa.Field[Any]) -> Any:
        return pa.scalar(self.constants.get(field.name), field.type)
