"""Times with a zone come back in it, and never mix with times that have none."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import minimalkv
import pandas as pd
import pyarrow as pa
import pytest
from plateau.io.eager import read_table, update_dataset_from_dataframes

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import PartitionInvalid, SchemaMismatch
from kubothek.table import operations

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YEAR = datetime(2025, 1, 1, tzinfo=BERLIN)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


def times(*values: datetime) -> pd.DataFrame:
    return pd.DataFrame({"n": range(len(values)), "t": list(values)})


def test_zoned_column_keeps_zone_in_arrow_pandas_and_sql(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(times(NEW_YEAR, NEW_YEAR + timedelta(hours=5)))
    assert table.schema.field("t").type == pa.timestamp("us", "Europe/Berlin")
    found = table.scan(["t", "n"])
    assert found.schema.names == ["t", "n"]
    assert found.read_all()["t"].to_pylist()[0] == NEW_YEAR
    frame = table.scan().read_pandas()
    assert str(frame["t"].dt.tz) == "Europe/Berlin"
    assert frame["t"].iloc[0] == pd.Timestamp(NEW_YEAR)
    assert table.scan(where="t = '2024-12-31 23:00:00'").read_all().num_rows == 1, "filters compare UTC"
    rows = lake.sql("SELECT t, hour(t) h FROM t WHERE t < TIMESTAMPTZ '2025-01-01 01:00:00+01'").read_all()
    assert rows.to_pylist() == [{"t": NEW_YEAR, "h": 23}]
    assert lake.sql("SELECT * FROM t WHERE t >= '2025-01-01 04:00'").read_all()["n"].to_pylist() == [1]


def test_zoned_table_accepts_append_of_its_own_rows(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(times(NEW_YEAR))
    table.append(table.scan().read_pandas())
    table.append(times(datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=-5)))))
    assert [str(each) for each in table.scan().read_all()["t"].to_pylist()] == [
        "2025-01-01 00:00:00+01:00",
        "2025-01-01 00:00:00+01:00",
        "2025-01-01 06:00:00+01:00",
    ]


@pytest.mark.parametrize("verb", ["append", "replace", "overwrite"])
def test_naive_and_zoned_times_in_one_column_are_refused(lake: Lake, verb: str) -> None:
    zoned, naive = lake.create_dataset("zoned", ["n"]), lake.create_dataset("naive", ["n"])
    zoned.append(times(NEW_YEAR))
    naive.append(times(NEW_YEAR.replace(tzinfo=None)))
    with pytest.raises(SchemaMismatch, match=r"column 't': .* have no zone.*tz_localize\('Europe/Berlin'\)"):
        getattr(zoned, verb)(times(NEW_YEAR.replace(tzinfo=None)))
    with pytest.raises(SchemaMismatch, match=r"in the zone 'Europe/Berlin'.*tz_convert\('UTC'\)"):
        getattr(naive, verb)(times(NEW_YEAR))
    naive.overwrite(times(NEW_YEAR), allow_schema_change=True)
    assert str(naive.schema.field("t").type) == "timestamp[us, tz=Europe/Berlin]"


def test_concurrent_first_append_with_another_kind_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_dataset("t")
    write = operations.write_rows

    def meanwhile(*args: Any, **options: Any) -> Any:
        made = write(*args, **options)
        monkeypatch.undo()
        lake.dataset("t").append(times(NEW_YEAR))
        return made

    monkeypatch.setattr(operations, "write_rows", meanwhile)
    with pytest.raises(SchemaMismatch, match="have no zone"):
        table.append(times(NEW_YEAR.replace(tzinfo=None)))
    assert table.snapshot().head.metadata["kubothek_zones"] == {"t": "Europe/Berlin"}


def test_declared_zone_applies_before_first_row(lake: Lake) -> None:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("t", pa.timestamp("us", "UTC"))])
    table = lake.create_dataset("t", schema=schema)
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    with pytest.raises(SchemaMismatch, match="have no zone"):
        table.append(times(datetime(2025, 1, 1)))
    table.append(times(NEW_YEAR))
    assert table.scan().read_all()["t"].to_pylist() == [datetime(2024, 12, 31, 23, tzinfo=UTC)]
    with pytest.raises(PartitionInvalid, match="has no time zone"):
        lake.create_dataset("u", ["t"], schema=schema)


def test_evolving_append_records_zone_of_new_column(lake: Lake) -> None:
    table = lake.create_dataset("t")
    table.append(pd.DataFrame({"n": [1]}))
    table.append(times(NEW_YEAR), evolve=True)
    assert table.scan().read_all()["t"].to_pylist() == [None, NEW_YEAR]


def test_table_without_zone_record_accepts_zoned_and_naive_times(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an older Kubothek, whose head says nothing of zones."""
    monkeypatch.setattr(sys.modules["kubothek.table.operations.rows"], "zones_in", lambda _given: {})
    old = lake.create_dataset("t")
    old.append(times(NEW_YEAR))
    monkeypatch.undo()
    assert old.schema.field("t").type == pa.timestamp("us")
    old.append(times(NEW_YEAR.replace(tzinfo=None)))
    old.append(times(NEW_YEAR))
    assert old.schema.field("t").type == pa.timestamp("us")


def test_plateau_reads_and_appends_zoned_column_in_utc(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_dataset("t")
    table.append(times(NEW_YEAR))

    def store() -> Any:
        return minimalkv.get_store_from_url(f"hfs://{tmp_path}")

    frame = read_table("t", store=store)
    assert frame["t"].tolist() == [pd.Timestamp("2024-12-31 23:00:00")]
    update_dataset_from_dataframes([frame], store=store, dataset_uuid="t")
    assert table.scan().read_all()["t"].to_pylist() == [NEW_YEAR, NEW_YEAR]
