"""Rows in Python: heads, conversions, Arrow streams, and HTML in notebooks, for datasets and for results of SQL."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import kubothek
from kubothek import QueryResult
from kubothek.catalog import Dataset, Lake
from kubothek.errors import InputError, QueryInvalid, SchemaMismatch, VersionNotFound

BIG = 2**53 + 1
ROWS = pa.table(
    {
        "<b>id": pa.array([BIG, None, 3]),
        "text": ["<script>alert(1)</script>", 'a & "b"', "\x1b[31mred"],
        "at": pa.array([datetime(2025, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("us", tz="Europe/Berlin")),
    }
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path)


@pytest.fixture
def table(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t")
    dataset.append(ROWS)
    return dataset


Source = Callable[[Lake], Any]
SOURCES = {"dataset": lambda lake: lake.dataset("t"), "result": lambda lake: lake.sql("SELECT * FROM t")}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_conversions_keep_large_integers_and_moments(lake: Lake, table: Dataset, source: Source) -> None:
    assert source(lake).to_arrow().column("<b>id").to_pylist() == [BIG, None, 3]
    frame = source(lake).to_pandas()
    assert frame["<b>id"].tolist()[0] == BIG
    assert str(frame["<b>id"].dtype) == "Int64"
    assert frame["at"].dt.tz_convert("UTC").dt.tz_localize(None).tolist() == [datetime(2025, 1, 1)] * 3
    assert pa.table(source(lake)).num_rows == 3
    given = source(lake)
    assert duckdb.sql("SELECT count(*) FROM given").fetchall() == [(3,)]
    assert given is not None


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_html_escapes_names_and_values_and_writes_iso_times(lake: Lake, table: Dataset, source: Source) -> None:
    shown = source(lake)._repr_html_()
    for raw in ("<b>", "<script", 'a & "b"', "\x1b"):
        assert raw not in shown
    for escaped in ("&lt;b&gt;id", "&lt;script&gt;", "a &amp; &quot;b&quot;", "\\x1b[31mred", "NULL"):
        assert escaped in shown
    assert "2025-01-01 0" in shown
    assert ("2025-01-01 01:00:00+01:00" in shown) == isinstance(source(lake), Dataset)


def test_html_cuts_long_cells_and_long_results(lake: Lake) -> None:
    lake.create_dataset("t").append(pa.table({"x": ["<" * 1000] * 11}))
    shown = lake.sql("SELECT * FROM t")._repr_html_()
    assert shown.count("<tr>") == 11, "a header and ten rows"
    assert "the first 10 rows" in shown
    assert "&lt;" * 199 + "…" in shown
    assert "&lt;" * 200 not in shown


def test_html_of_dataset_without_rows_and_of_deleted_one(lake: Lake) -> None:
    empty = lake.create_dataset("empty")
    assert empty._repr_html_().endswith(", version 1, 0 rows</p>")
    lake.drop("empty")
    assert "was deleted at" in empty._repr_html_()


def test_head_reads_first_rows_of_selection(table: Dataset) -> None:
    assert table.head(2).num_rows == 2
    assert table.head(0).schema == table.schema
    assert table.head(5, "text", where="text IS NOT NULL").column_names == ["text"]
    assert table.head(as_of=2).num_rows == 3
    with pytest.raises(InputError, match="head of -1 rows"):
        table.head(-1)


def test_result_head_and_html_take_no_rows(lake: Lake, table: Dataset) -> None:
    for _ in range(3):
        table.append(ROWS)
    result = lake.sql("SELECT text FROM t")
    assert result.head(1).num_rows == 1
    assert "<table>" in result._repr_html_()
    assert result.head(100).num_rows == 12
    assert result.read_next_batch().num_rows <= 12
    rest = sum(batch.num_rows for batch in lake.sql("SELECT text FROM t"))
    assert rest == 12


def test_result_that_was_read_says_so(lake: Lake, table: Dataset) -> None:
    result = lake.sql("SELECT * FROM t")
    assert isinstance(result, QueryResult)
    assert result.to_arrow().num_rows == 3
    for again in (result.to_arrow, result.to_pandas, result.head, result.read_all, lambda: pa.table(result)):
        with pytest.raises(InputError, match="were read already: run the query again"):
            again()
    assert "all rows were read" in result._repr_html_()


def test_result_can_be_appended_and_names_errors(lake: Lake, table: Dataset) -> None:
    table.append(lake.sql("SELECT * FROM t"))
    assert table.rows == 6
    with pytest.raises(QueryInvalid, match="Could not convert"):
        lake.sql("SELECT CAST(text AS INTEGER) AS x FROM t").to_arrow()
    with pytest.raises(QueryInvalid, match="Could not convert"):
        lake.create_dataset("u").append(lake.sql("SELECT CAST(text AS INTEGER) AS x FROM t"))


def test_frames_refuse_two_columns_of_one_name() -> None:
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]).to_reader()
    with pytest.raises(SchemaMismatch, match="'a' occurs more than once"):
        QueryResult(twice).to_pandas()


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_polars_frame_has_rows(lake: Lake, table: Dataset, source: Source) -> None:
    pytest.importorskip("polars")
    assert source(lake).to_polars()["<b>id"].to_list() == [BIG, None, 3]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_missing_polars_is_named(lake: Lake, table: Dataset, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(InputError, match="polars is not installed; pip install polars"):
        source(lake).to_polars()


def test_as_of_takes_iso_text(lake: Lake, table: Dataset) -> None:
    now = datetime.now(UTC)
    late, early = (moment.isoformat() for moment in (now + timedelta(days=1), now - timedelta(days=1)))
    assert table.to_arrow(as_of=late).num_rows == 3
    assert lake.sql("SELECT * FROM t", as_of=late).to_arrow().num_rows == 3
    with pytest.raises(VersionNotFound, match="no version as old as"):
        table.to_arrow(as_of=early)
    with pytest.raises(InputError, match=r"'2025-13-01' is neither a tag, .* nor a time like 2026-11-21T14:00"):
        table.snapshot("2025-13-01")
