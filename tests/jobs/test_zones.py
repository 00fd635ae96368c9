"""Time zones of sources and query results, as the head of the dataset remembers them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import kubothek
from kubothek.api.jobs import ExitCode
from kubothek.dataset import Dataset
from kubothek.table.log.prepare import draft
from kubothek.table.time_zones import zones_of
from tests.jobs.conftest import UUID, Here
from tests.jobs.test_query import becomes, done, query_job

pytestmark = pytest.mark.slow

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)


def parquet(zone: str | None) -> pa.Table:
    return pa.table({"n": [1], "t": pa.array([NOON], pa.timestamp("us", zone))})


SOURCES: dict[str, tuple[Any, Any]] = {
    "CSV": ("n,t\n1,2025-01-01T13:00:00+01:00\n", "n,t\n1,2025-01-01T12:00:00\n"),
    "JSONLines": ('{"n": 1, "t": "2025-01-01T12:00:00Z"}\n', '{"n": 1, "t": "2025-01-01T12:00:00"}\n'),
    "Parquet": (parquet("UTC"), parquet(None)),
}


def dataset(here: Here, name: str = UUID) -> Dataset:
    return kubothek.open(here.root.as_uri()).dataset(name)


def refused(here: Here, source: str, **options: Any) -> str:
    result, code = here.run(here.commit_job(source, commit_id="refused", **options))
    assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch"), result
    return result.message


@pytest.mark.parametrize("form", SOURCES)
def test_zoned_source_keeps_zone_and_refuses_naive_times(here: Here, form: str) -> None:
    zoned, naive = (here.put(name, data) for name, data in zip(("in/zoned", "in/naive"), SOURCES[form], strict=True))
    here.commit(zoned, format=form)
    here.commit(zoned, commit_id="c2", format=form)
    assert dataset(here).scan().read_all()["t"].to_pylist() == [NOON, NOON]
    assert "column 't'" in (message := refused(here, naive, format=form))
    assert "has no time zone, and the times of the column are in 'UTC'" in message
    assert here.snapshot().version == 2


@pytest.mark.parametrize("form", SOURCES)
def test_naive_source_table_refuses_zoned_times(here: Here, form: str) -> None:
    zoned, naive = (here.put(name, data) for name, data in zip(("in/zoned", "in/naive"), SOURCES[form], strict=True))
    here.commit(naive, format=form)
    assert here.snapshot().head.metadata["kubothek_zones"] == {"t": ""}
    assert "has a time zone, and the times of the column have none" in refused(here, zoned, format=form)
    declared = [{"name": "n", "type": "int64"}, {"name": "t", "type": "timestamp[us]"}]
    assert "has a time zone" in refused(here, zoned, format=form, columns=declared)
    here.commit(naive, commit_id="c2", format=form, columns=declared)


@pytest.mark.parametrize("form", SOURCES)
def test_old_table_without_zone_record_accepts_zoned_and_naive_times(
    here: Here, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    zoned, naive = (here.put(name, data) for name, data in zip(("in/zoned", "in/naive"), SOURCES[form], strict=True))
    monkeypatch.setattr(draft, "_zones", lambda *_: {})
    here.commit(zoned, format=form)
    monkeypatch.undo()
    here.commit(zoned, commit_id="c2", format=form)
    here.commit(naive, commit_id="c3", format=form)
    assert here.snapshot().head.metadata.get("kubothek_zones", {}) == {}
    assert dataset(here).scan().read_all()["t"].to_pylist() == [NOON.replace(tzinfo=None)] * 3


def test_declared_naive_type_records_no_zone(here: Here) -> None:
    columns = [{"name": "n", "type": "int64"}, {"name": "t", "type": "timestamp[us]"}]
    for number, data in enumerate(SOURCES["CSV"]):
        here.commit(here.put(f"in/{number}", data), commit_id=f"c{number}", table={"columns": columns})
    assert here.snapshot().head.metadata.get("kubothek_zones", {}) == {}


@pytest.mark.parametrize("where", ["source", "table"])
@pytest.mark.parametrize("form", SOURCES)
def test_declared_zone_sets_zone_and_refuses_naive_times(here: Here, form: str, where: str) -> None:
    zoned, naive = (here.put(name, data) for name, data in zip(("in/zoned", "in/naive"), SOURCES[form], strict=True))
    columns = [{"name": "n", "type": "int64"}, {"name": "t", "type": "timestamp[us, tz=Europe/Berlin]"}]
    declared: dict[str, Any] = {"columns": columns} if where == "source" else {"table": {"columns": columns}}
    assert "are in 'Europe/Berlin'" in refused(here, naive, format=form, **declared)
    here.commit(zoned, format=form, **declared)
    assert zones_of(here.snapshot().head.metadata) == {"t": "Europe/Berlin"}
    here.commit(zoned, commit_id="c2", format=form, **declared)
    assert dataset(here).scan().read_all()["t"].to_pylist() == [NOON, NOON]


@pytest.mark.parametrize("kind", [0, 1])
def test_declared_zone_keeps_zone_of_existing_column(here: Here, kind: int) -> None:
    columns = [{"name": "n", "type": "int64"}, {"name": "t", "type": "timestamp[us, tz=Europe/Berlin]"}]
    here.commit(here.put("in/a", SOURCES["CSV"][kind]))
    before = zones_of(here.snapshot().head.metadata)
    here.commit(here.put("in/a", SOURCES["CSV"][kind]), commit_id="c2", table={"columns": columns})
    assert zones_of(here.snapshot().head.metadata) == before == {"t": ("UTC", "")[kind]}


def test_declared_zone_that_is_unknown_or_on_partition_is_refused(here: Here) -> None:
    columns = [{"name": "n", "type": "int64"}, {"name": "t", "type": "timestamp[us, tz=Europe/Nowhere]"}]
    source = here.put("in/a", SOURCES["CSV"][0])
    assert "unknown time zone" in refused(here, source, table={"columns": columns})
    columns[1]["type"] = "timestamp[us, tz=Europe/Bärlin]"  # no manifest can have it
    result, code = here.run(here.commit_job(source, table={"columns": columns}))
    assert (code, result.reason) == (ExitCode.INVALID, "InvalidInput")
    columns[1]["type"] = "timestamp[us, tz=UTC]"
    result, code = here.run(here.commit_job(source, table={"columns": columns, "partition_on": ["t"]}))
    assert (code, result.reason) == (ExitCode.INVALID, "PartitionInvalid")


def test_new_column_of_source_records_its_zone(here: Here) -> None:
    here.commit(here.put("in/a", "n\n1\n"))
    here.commit(here.put("in/b", SOURCES["CSV"][0]), commit_id="c2", table={"schema_evolution": "Compatible"})
    assert dataset(here).scan().read_all()["t"].to_pylist() == [None, NOON]


def test_time_without_zone_in_zoned_column_names_file_and_row(here: Here) -> None:
    here.commit(here.put("in/a", SOURCES["CSV"][0]))
    message = refused(here, here.put("in/b", SOURCES["CSV"][0] + "2,2025-01-01T12:00:00\n"))
    assert message.startswith("'in/b', column 't', row 2: '2025-01-01T12:00:00' has no time zone")


def test_source_files_with_zoned_and_naive_times_are_refused(here: Here) -> None:
    for name, data in zip(("in/a", "in/b"), SOURCES["CSV"], strict=True):
        here.put(name, data)
    result, code = here.run(here.commit_job("in/a", "in/b"))
    assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch")
    assert "column 't' is timestamp[us, tz=UTC] in 'in/a' and timestamp[us] in 'in/b'" in result.message


def test_zoned_partition_column_records_no_zone(here: Here) -> None:
    here.commit(here.put("in/a", SOURCES["CSV"][0]), table={"partition_on": ["t"]})
    assert here.snapshot().head.metadata.get("kubothek_zones", {}) == {}


def test_overwrite_with_allowed_schema_change_changes_zone_kind(here: Here) -> None:
    zoned, naive = (here.put(name, data) for name, data in zip(("in/zoned", "in/naive"), SOURCES["CSV"], strict=True))
    here.commit(zoned)
    job = here.commit_job(naive, commit_id="c2") | {"operation": "Overwrite"}
    result, code = here.run(job)
    assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch")
    result, code = here.run(job | {"allow_schema_change": True})
    assert code == ExitCode.DONE, result
    assert dataset(here).schema.field("t").type == pa.timestamp("us")


def test_query_result_keeps_zone_of_columns(here: Here) -> None:
    here.commit(here.put("in/a", SOURCES["CSV"][0]))
    done(here, query_job(here, "SELECT * FROM flights", **becomes(here)))
    assert dataset(here, "top").scan().read_all()["t"].to_pylist() == [NOON]
    naive = query_job(here, "SELECT n, t::TIMESTAMP AS t FROM flights", **becomes(here, commit_id="query:ns/r"))
    result, code = here.run(naive)
    assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch")
    assert "column 't'" in result.message


@pytest.mark.parametrize(("cast", "zone"), [("TIMESTAMPTZ", "Europe/Berlin"), ("TIMESTAMP", None)])
def test_query_result_converts_only_zoned_times_to_declared_zone(here: Here, cast: str, zone: str | None) -> None:
    here.commit(here.put("in/a", "n\n1\n"))
    columns = [{"name": "t", "type": "timestamp[us, tz=Europe/Berlin]"}]
    sql = f"SELECT {cast} '2025-01-01 12:00:00+00' AS t FROM {UUID}"
    job = query_job(here, sql, **becomes(here, columns=columns))
    result, code = here.run(job)
    if zone is None:
        assert (code, result.reason) == (ExitCode.INVALID, "SchemaMismatch")
    else:
        assert code == ExitCode.DONE, result
        assert dataset(here, "top").schema.field("t").type == pa.timestamp("us", zone)
