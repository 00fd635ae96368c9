"""Real Xskipper's metadata and its 32 queries: ours skip what it skipped, and no file that holds a match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kubothek.sql.filters import needed_rows
from kubothek.sql.statement import parse
from kubothek.table.expressions import Predicate
from kubothek.table.skipping.files.reading import current, load_location
from kubothek.table.skipping.prune.plan import may_hold
from tests.table.log.memory import MemoryStore
from tests.table.skipping import golden

DATASETS = json.loads((golden.GOLDEN / "expected.json").read_text())["datasets"]
CASES = [(name, query) for name, found in DATASETS.items() for query in found["queries"]]
MORE = {
    "mm_in_11",  # Xskipper makes one range of ten values or more
    "mm_isnotnull_allnull",
    "mm_cast",
    "mm_flag",
    "mm_flag_eq",
    "vl_like_infix",
    "p_part_and_id",  # partition columns, which Spark prunes by itself
    "p_vid_dt",
}
"""Where ours skips more than Xskipper does."""


def asked(sql: str, schema: pa.Schema) -> Predicate:
    """What the planner makes of the query; DuckDB has another sign for ``IS NOT DISTINCT FROM``."""
    with duckdb.connect() as database:
        statement = parse(database, sql.replace("<=>", "IS NOT DISTINCT FROM"))
    return needed_rows(statement, {"t": schema})["t"].bind(schema)


def rows_of(name: str, file: str) -> pa.Table:
    """The rows of a data file, with its partition columns."""
    table, schema = pq.read_table(golden.GOLDEN / name / file), golden.data_schema(name)
    for column, text in (part.split("=") for part in file.split("/")[:-1]):
        value = pa.scalar(text).cast(schema.field(column).type)
        table = table.append_column(column, pa.array([value] * len(table), value.type))
    return table


@pytest.mark.parametrize(("name", "query"), CASES, ids=[query["name"] for _, query in CASES])
def test_golden_query_skips_every_file_that_xskipper_skips(name: str, query: dict[str, Any]) -> None:
    store = MemoryStore()
    store.put("md/part-0.parquet", golden.metadata_path(name).read_bytes())
    metadata = load_location(store, "md/")
    expected = DATASETS[name]
    where = asked(query["sql"], golden.data_schema(name))
    held = may_hold(where, metadata.definitions, metadata.rows)
    names = sorted(str(path.relative_to(golden.GOLDEN / name)) for path in (golden.GOLDEN / name).rglob("*.parquet"))
    moments = {each: expected["mtime"].get(each, expected["mtime"].get(Path(each).name)) for each in names}
    rows = current(metadata, [(f"{expected['root']}/{each}", moments[each]) for each in names])
    assert not rows.null_count
    skipped = {each for each, row in zip(names, rows.to_pylist(), strict=True) if not held[row]}
    wanted = {each for each in names if Path(each).name in query["skipped"] or each in query["skipped"]}
    assert skipped >= wanted
    assert (skipped > wanted) == (query["name"] in MORE)
    for each in skipped:
        assert not ds.dataset(rows_of(name, each)).count_rows(filter=where.expression())
