"""SQL over files that are no dataset's, by the name of their skipping metadata."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import QueryInvalid
from kubothek.external.files import PlainFiles
from kubothek.external.refresh import Place, describe_here, refresh
from kubothek.sql import prepare
from kubothek.table.skipping.model import IndexDefinition, SkippingState

DEFINITIONS = SkippingState((IndexDefinition("MinMax", ("id",)), IndexDefinition("ValueList", ("city",))))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    for number in range(4):
        path = tmp_path / f"landing/trips/year=202{number}/a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": range(10 * number, 10 * number + 10), "city": [f"c{number}"] * 10}), path)
    lake = kubothek.open(f"file://{tmp_path}")
    place = Place(lake.store, lake.store, "team.trips")
    refresh(place, PlainFiles("landing/trips"), DEFINITIONS, build=lambda _bytes: describe_here(place))
    return lake


@pytest.mark.parametrize(
    ("where", "files", "rows"),
    [
        ("id = 23", 1, 1),
        ("id BETWEEN 18 AND 21", 2, 4),
        ("city = 'c3'", 1, 10),
        ("year = 2020", 1, 10),
        ("year >= 2021 AND city IN ('c0', 'c1')", 1, 10),
        ("id % 10 = 0", 4, 4),
        ("id > 1000", 0, 0),
    ],
)
def test_sql_over_plain_files_opens_only_files_that_may_match(lake: Lake, where: str, files: int, rows: int) -> None:
    query = prepare(lake.store, f"SELECT count(*) AS n FROM trips WHERE {where}", lake.look(), lake.datasets)
    (scan,) = query.scans
    assert (scan.name, scan.version, scan.files) == ("trips", 0, files)
    assert query.rows().read_all().to_pylist() == [{"n": rows}]


def test_sql_join_of_plain_files_and_dataset_reports_skipped_files(lake: Lake) -> None:
    lake.create_dataset("cities").append(pa.table({"city": ["c0", "c1"], "name": ["Basel", "Bern"]}))
    statement = """SELECT c.name, max(t.id) AS top FROM "team.trips" t JOIN cities c USING (city)
        WHERE t.id < 15 GROUP BY 1 ORDER BY 1"""
    query = prepare(lake.store, statement, lake.look(), lake.datasets)
    trips = next(scan for scan in query.scans if scan.name == "team.trips")
    assert (trips.read.considered, trips.read.skipped, trips.files) == (4, 2, 2)
    assert trips.read.filters == ("id:Range",)
    assert query.rows().read_all().to_pylist() == [{"name": "Basel", "top": 9}, {"name": "Bern", "top": 14}]


def test_sql_name_of_dataset_precedes_plain_files(lake: Lake) -> None:
    lake.create_dataset("trips").append(pa.table({"own": [1]}))
    assert lake.sql("SELECT own FROM trips").read_all().to_pylist() == [{"own": 1}]


def test_sql_over_plain_files_with_version_is_refused(lake: Lake) -> None:
    with pytest.raises(QueryInvalid, match="no dataset 'trips'"):
        prepare(lake.store, "SELECT 1 FROM trips AS OF VERSION 1", lake.look(), lake.datasets)
