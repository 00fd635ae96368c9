"""Random tables: columns of every kind that a table can have, and values that make trouble."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]

TEXTS: Final = ["", " ", "a", "A", "a/b", "a=b", "a%2Fb", "100%", "é", "東京", "it's", '"q"', "x\\y", "\x00", "None"]
POOLS: Final[dict[pa.DataType, list[Any]]] = {
    pa.int64(): [0, 1, -1, 2**53 + 1, -(2**63), 2**63 - 1],
    pa.float64(): [0.0, -0.0, 0.1, -1.5, 1e300, float("inf"), float("-inf")],
    pa.string(): TEXTS,
    pa.date32(): [date(1999, 12, 31), date(2024, 2, 29), date(1960, 1, 1)],
    pa.timestamp("us"): [datetime(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1960, 1, 1, 0, 0, 0, 5)],
    pa.bool_(): [True, False],
    pa.binary(): [b"", b"\x00\xff", b"abc"],
    pa.decimal128(9, 2): [Decimal("0.00"), Decimal("-1234567.89"), Decimal("1.10")],
    pa.list_(pa.string()): [[], ["a", None], ["é/%"]],
}
"""Few of each type, so that rows, partitions and predicates meet. No NaN, which pandas takes for a null."""
PARTITIONING: Final = [pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us")]
INDEXABLE: Final = [*PARTITIONING, pa.bool_(), pa.binary()]
NAMES: Final = ["p", "q r", "größe", "it's", 'say "x"', "%41"]


@dataclass(frozen=True)
class Shape:
    """The columns of a table; ``id`` numbers its rows and is always there."""

    columns: dict[str, pa.DataType]
    partition_on: tuple[str, ...]
    layout: dict[str, Any]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.columns.items(), ("id", pa.int64())])

    @property
    def payload(self) -> list[str]:
        """What can be indexed."""
        return [n for n, t in self.columns.items() if n not in self.partition_on and t in INDEXABLE]

    @property
    def flat(self) -> list[str]:
        """What has literals."""
        return [name for name, data_type in self.columns.items() if not pa.types.is_nested(data_type)]

    def table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.schema)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Some columns, none to two of which partition the table."""
    types = draw(st.lists(st.sampled_from(list(POOLS)), min_size=1, max_size=len(NAMES) - 1))
    columns = dict(zip(NAMES, types, strict=False))
    able = [name for name, data_type in columns.items() if data_type in PARTITIONING]
    chosen = draw(st.lists(st.sampled_from(able), unique=True, max_size=2)) if able else []
    rest = [name for name in columns if name not in chosen and not pa.types.is_nested(columns[name])]
    return Shape(columns, tuple(chosen), draw(layouts([*rest, "id"])))


@st.composite
def layouts(draw: st.DrawFn, columns: list[str]) -> dict[str, Any]:
    """What is said of a table's files: sorted or not, in buckets or not, small or large, of one row group or many."""
    some = st.lists(st.sampled_from(columns), unique=True, max_size=2)
    buckets = draw(some)
    return {
        "sort_by": draw(some),
        "bucket_by": buckets,
        "num_buckets": draw(st.integers(1, 3)) if buckets else 0,
        "target_file_size": draw(st.sampled_from([1, 1 << 20])),
        "row_group_rows": draw(st.sampled_from([1, 2, 1 << 20])),
    }


@st.composite
def row_values(draw: st.DrawFn, shape: Shape) -> Row:
    """One row without its id; partition columns have no nulls."""
    return {
        name: draw(st.sampled_from(POOLS[data_type]) if name in shape.partition_on else nullable(data_type))
        for name, data_type in shape.columns.items()
    }


def nullable(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """A value of the type, or null."""
    return st.one_of(st.none(), st.sampled_from(POOLS[data_type]))
