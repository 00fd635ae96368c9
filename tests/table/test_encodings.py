"""Numbers that ascend are stored as differences, and every reader reads them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kubothek
from kubothek.storage import Store
from kubothek.table.encodings import dictionary_and_deltas
from kubothek.table.files import PartitionedWriter
from kubothek.table.layout import Layout
from tests.table.log.memory import MemoryStore

ROWS = 5000
_START = datetime(2026, 11, 28)

COLUMNS: dict[str, tuple[Any, bool]] = {
    "ascending": (pa.array(range(10, 10 + ROWS)), True),
    "unsigned": (pa.array(range(2**63, 2**63 + ROWS), pa.uint64()), True),
    "moments": (pa.array([_START + timedelta(seconds=n) for n in range(ROWS)], pa.timestamp("us")), True),
    "with nulls": (pa.array([None if n % 7 == 0 else n for n in range(ROWS)]), True),
    "now and then lower": (pa.array([n - 50 * (n % 20 == 0) for n in range(ROWS)]), True),
    "shuffled": (pa.array([n * 617 % 1000 for n in range(ROWS)]), False),
    "long runs": (pa.array([n // 100 for n in range(ROWS)]), False),
    "constant": (pa.array([7] * ROWS), False),
    "null": (pa.array([None] * ROWS, pa.int64()), False),
    "doubles": (pa.array([float(n % 1000) for n in range(ROWS)]), False),
    "texts": (pa.array([f"{n:06}" for n in range(ROWS)]), False),
    "nested": (pa.array([{"n": n, "l": [n]} for n in range(ROWS)]), False),
}


def one_file(store: Store, table: pa.Table, layout: Layout) -> pq.ParquetFile:
    with PartitionedWriter(store, "ds", table.schema, layout) as writer:
        writer.write(table)
        (file,) = writer.finish()
    return pq.ParquetFile(pa.BufferReader(store.get(file.key)))


def encodings(file: pq.ParquetFile) -> dict[str, set[str]]:
    group = file.metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_ascending_numbers_are_stored_as_differences_and_others_with_dictionary() -> None:
    table = pa.table({name: values for name, (values, _) in COLUMNS.items()})
    file = one_file(MemoryStore(), table, Layout())
    assert file.read().equals(table)
    found = encodings(file)
    for name, (_, ascends) in COLUMNS.items():
        if name != "nested":
            assert ("DELTA_BINARY_PACKED" in found[name]) == ascends, name
            assert ("RLE_DICTIONARY" in found[name]) != ascends, name
    assert "RLE_DICTIONARY" in found["nested.l.list.element"]


@pytest.mark.parametrize("rows", [ROWS, 100_000])
def test_numbers_of_which_few_are_equal_are_stored_plain(rows: int) -> None:
    random = np.random.default_rng(7)
    columns: dict[str, Any] = {
        "few equal": random.integers(0, rows, rows),
        "few equal doubles": random.integers(0, rows, rows) / 8,
        "many equal": random.integers(0, rows // 8, rows),
        "texts": [f"{n:09}" for n in random.integers(0, rows, rows)],
    }
    found = encodings(one_file(MemoryStore(), pa.table(columns), Layout()))
    assert {name for name, used in found.items() if "RLE_DICTIONARY" in used} == {"many equal", "texts"}
    kept = Layout(dictionary_columns=tuple(columns))
    assert all(
        "RLE_DICTIONARY" in used for used in encodings(one_file(MemoryStore(), pa.table(columns), kept)).values()
    )


def test_dictionary_columns_of_layout_keep_their_dictionary() -> None:
    table = pa.table(dict.fromkeys("ab", COLUMNS["ascending"][0]))
    found = encodings(one_file(MemoryStore(), table, Layout(dictionary_columns=("a",))))
    assert "RLE_DICTIONARY" in found["a"]
    assert "DELTA_BINARY_PACKED" in found["b"]


def test_duckdb_reads_differences(tmp_path: Path) -> None:
    store = kubothek.open(f"file://{tmp_path}").store
    table = pa.table({name: COLUMNS[name][0] for name in ("ascending", "unsigned", "moments", "with nulls")})
    with PartitionedWriter(store, "ds", table.schema, Layout()) as writer:
        writer.write(table)
        (file,) = writer.finish()
    path = f"{store.url.removeprefix('file://')}/{file.key}"
    assert duckdb.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table().cast(table.schema).equals(table)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_numbers_are_read_as_written_and_files_are_deterministic(data: st.DataObject) -> None:
    kind: Any = data.draw(st.sampled_from([pa.int64(), pa.uint64(), pa.timestamp("us")]))
    low, high = (0, 2**64 - 1) if kind == pa.uint64() else (-(2**63), 2**63 - 1)
    ends = st.sampled_from([low, low + 1, 0, 1, high - 1, high])
    steps = data.draw(st.lists(ends | st.integers(low, high), min_size=1, max_size=8))
    numbers = np.resize(np.array(steps, np.uint64 if low == 0 else np.int64), data.draw(st.integers(4000, 5000)))
    if data.draw(st.booleans()):
        numbers.sort()
    values = pa.array(numbers).view(kind)
    table = pa.table({"x": values})
    stores = MemoryStore(), MemoryStore()
    first, again = (one_file(store, table, Layout()) for store in stores)
    assert first.read().equals(table)
    assert encodings(first) == encodings(again)
    assert dictionary_and_deltas(table.to_batches(), Layout()) == dictionary_and_deltas(
        table.combine_chunks().to_batches(max_chunksize=500), Layout()
    )
