"""What an append casts to the table's types: whatever loses nothing, and nothing else."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.dataset import Dataset
from kubothek.errors import SchemaMismatch
from kubothek.ingest.write import decide_schemas

D = Decimal
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
CASES: dict[str, tuple[pa.DataType, Any, list[Any]]] = {
    "fewer-digits": (pa.decimal128(6, 2), pa.array([D("1.50"), None]), [D("1.50"), None]),
    "more-digits": (pa.decimal128(6, 2), pa.array([D("1.5000")], pa.decimal128(20, 4)), [D("1.50")]),
    "integer-to-decimal": (pa.decimal128(6, 2), pa.array([7, None], pa.int32()), [D("7.00"), None]),
    "unsigned-to-decimal": (pa.decimal128(20, 0), pa.array([2**64 - 1], pa.uint64()), [D(2**64 - 1)]),
    "whole-floats": (pa.int64(), pa.array([1.0, None, -0.0, 2.0**60]), [1, None, 0, 2**60]),
    "whole-decimals": (pa.int64(), pa.array([D("3.00")]), [3]),
    "small-integers-to-double": (pa.float64(), pa.array([2**53, None]), [2.0**53, None]),
    "unsigned": (pa.uint64(), pa.array([0, 5]), [0, 5]),
    "signed": (pa.int64(), pa.array([5], pa.uint64()), [5]),
    "struct": (STRUCT, pa.array([{"b": "x", "a": 2.0}, None], pa.struct([("b", pa.string()), ("a", pa.float64())])),
               [{"a": 2, "b": "x"}, None]),
    "struct-of-floats": (pa.struct([("a", pa.float32())]), pa.array([{"a": 0.5}]), [{"a": 0.5}]),
    "list": (pa.list_(pa.int64()), pa.array([[1.0, None], None]), [[1, None], None]),
}  # fmt: skip
LOSSY: dict[str, tuple[pa.DataType, Any, str]] = {
    "digits": (pa.decimal128(6, 2), pa.array([D("1.500"), D("1.501")]), "1.501 in row 2"),
    "large-decimal": (pa.decimal128(6, 2), pa.array([D("1.5"), D("12345.6")]), "12345.6 in row 2"),
    "large-integer": (pa.decimal128(6, 2), pa.array([1, 2, 99999]), "99999 in row 3"),
    "broken-float": (pa.int64(), pa.array([1.0, None, 2.5, 3.5]), "2.5 in row 3"),
    "nan": (pa.int64(), pa.array([1.0, float("nan")]), "nan in row 2"),
    "huge-float": (pa.int64(), pa.array([2.0**63]), "9.223372036854776e.18 in row 1"),
    "huge-integer": (pa.float64(), pa.array([2**53 + 1]), "9007199254740993 in row 1"),
    "negative": (pa.uint64(), pa.array([3, -1]), "-1 in row 2"),
    "struct": (STRUCT, pa.array([{"a": 1.0, "b": ""}, {"a": 1.5, "b": ""}]), "1.5.* in row 2"),
    "narrow-float": (pa.struct([("a", pa.float32())]), pa.array([{"a": 0.1}]), "0.1.* in row 1"),
}
APART: list[tuple[pa.DataType, Any]] = [
    (pa.string(), pa.array([1])),
    (pa.int64(), pa.array(["1"])),
    (pa.decimal128(6, 2), pa.array([1.5])),
    (pa.int64(), pa.array([True])),
    (STRUCT, pa.array([{"a": 1, "b": "", "c": 1}])),
    (STRUCT, pa.array([{"a": 1}])),
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


def table_of(lake: Lake, data_type: pa.DataType) -> Dataset:
    return lake.create_dataset("t", schema=pa.schema([pa.field("n", pa.int64()), pa.field("x", data_type)]))


def rows(column: Any) -> pa.Table:
    return pa.table({"n": range(len(column)), "x": column})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_append_casts_values_without_loss(lake: Lake, case: str, streamed: bool) -> None:
    data_type, column, expected = CASES[case]
    table = table_of(lake, data_type)
    table.append(rows(column).to_reader() if streamed else rows(column), evolve=streamed and case == "whole-floats")
    found = table.scan().read_all()
    assert found.schema.field("x").type == data_type
    assert found.sort_by("n").column("x").to_pylist() == expected


@pytest.mark.parametrize("evolve", [False, True])
@pytest.mark.parametrize("case", LOSSY)
def test_append_with_lossy_value_is_refused_by_name_before_writing(lake: Lake, case: str, evolve: bool) -> None:
    data_type, column, named = LOSSY[case]
    if evolve and pa.types.is_decimal(column.type):
        pytest.skip("decimals of more digits are what evolve is for")
    table = table_of(lake, data_type)
    before = [info.key for info in lake.store.list("t/")]
    with pytest.raises(SchemaMismatch, match=f"column 'x': .*{named}.*cast to the table's types"):
        table.append(rows(column), evolve=evolve)
    assert [info.key for info in lake.store.list("t/")] == before


@pytest.mark.parametrize(("data_type", "column"), APART, ids=lambda each: str(getattr(each, "type", each)))
def test_append_with_incompatible_type_is_refused(lake: Lake, data_type: pa.DataType, column: Any) -> None:
    table = table_of(lake, data_type)
    for evolve in (False, True):
        with pytest.raises(SchemaMismatch, match="another type"):
            table.append(rows(column), evolve=evolve)


def test_append_of_frames_with_decimals_and_nulls_keeps_values(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pd.DataFrame({"price": [D("1234.50")], "n": [1]}))
    table.append(pd.DataFrame({"price": [D("1.50")], "n": [2]}))
    table.append(pd.DataFrame({"price": [7, 8], "n": [3, np.nan]}))
    found = table.scan().read_all().sort_by("price")
    assert found.to_pydict() == {"n": [2, 3, None, 1], "price": [D("1.50"), D("7.00"), D("8.00"), D("1234.50")]}


@pytest.mark.parametrize(
    "empty", [pd.DataFrame(), pa.table({}), pa.table({"n": pa.array([], pa.int64())}), [], pd.DataFrame({"other": []})],
    ids=["frame", "table", "column", "iterable", "strange"],
)  # fmt: skip
def test_append_without_rows_commits_unchanged_table(lake: Lake, empty: Any) -> None:
    table = lake.create_dataset("t")
    table.append(pd.DataFrame({"n": [1]}))
    before = table.snapshot()
    done = table.append(empty, id="nothing", evolve=True)
    after = table.snapshot()
    assert after.version == before.version + 1 == done.version
    assert (after.schema, dict(after.head.partitions)) == (before.schema, dict(before.head.partitions))
    assert table.append(pd.DataFrame({"n": [5]}), id="nothing").version == done.version, "it happened"


def test_source_with_declared_types_is_stored_in_types_of_table() -> None:
    declared = pa.table({"x": pa.array([], pa.decimal128(3, 2)), "n": pa.array([], pa.float64())}).schema
    table = pa.table({"n": pa.array([], pa.int64()), "x": pa.array([], pa.decimal128(6, 2))}).schema
    reading, stored = decide_schemas(
        declared=declared, table=table, contract=None, partition_on=(), infer=lambda: declared
    )
    assert stored == table
    assert [reading.field(name).type for name in ("x", "n")] == [pa.decimal128(3, 2), pa.float64()]
