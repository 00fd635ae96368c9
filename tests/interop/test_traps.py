"""The traps of plateau 4.6 and of the format (seen with plateau 4.6 and kartothek 5.3), and how our tables come out of
them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import (
    commit_dataset,
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)

from kubothek.catalog import Dataset, Lake
from kubothek.errors import PartitionInvalid, SchemaMismatch, VersionIncomplete
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.log import DatasetLog, Operation
from kubothek.table.log.update_indexes import reindex
from tests.interop.kinds import REGIONS, Kind, model, ours, rows, theirs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

NUMBERS = {"sku": IndexKind.KARTOTHEK}
ALL = {"carrier": IndexKind.KARTOTHEK, "sku": IndexKind.KARTOTHEK, "name": IndexKind.NATIVE}


def indexed(lake: Lake, wanted: dict[str, IndexKind], dialect: Dialect, *partition_on: str) -> Dataset:
    """Two commits, the second with the indices in place."""
    dataset = Kind("", partition_on).make(lake)
    dataset.append(rows(0, 24))
    reindex(lake.store, DatasetLog(lake.store, "sales"), wanted, dialect=dialect)
    dataset.append(rows(24, 24))
    return dataset


def append_theirs(url: str, start: int = 48) -> pa.Table:
    table = rows(start, 4)  # no region with "/", which plateau writes wrong
    update_dataset_from_dataframes([table.to_pandas()], store=url, dataset_uuid="sales")
    return table


def check(dataset: Dataset, url: str, expected: list[dict[str, Any]]) -> None:
    """Both see the rows, whole and through each index."""
    assert by_name(ours(dataset)) == by_name(expected)
    assert by_name(theirs(read_table("sales", url))) == by_name(expected)
    for column, value in (("sku", 1002), ("carrier", "Zürich"), ("carrier", ""), ("name", "näme 9")):
        found = by_name([row for row in expected if row[column] == value])
        literal = f"'{value}'" if isinstance(value, str) else value
        assert by_name(ours(dataset, where=f"{column} = {literal}")) == found
        assert by_name(theirs(read_table("sales", url, predicates=[[(column, "==", value)]]))) == found


def by_name(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(sorted(row.items())) for row in table]


def index_type(dataset: Dataset, column: str) -> pa.DataType:
    key = dataset.snapshot().head.indices[column]
    schema: pa.Schema = pq.read_schema(pa.BufferReader(dataset._store.get(key)))
    found: pa.DataType = schema.field(column).type
    return found


# --- indices in both dialects -------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_on", [(), pytest.param(("year", "day"), marks=pytest.mark.slow)])
def test_plateau_dialect_index_on_strings_survives_plateau_update(
    lake: Lake, url: str, partition_on: tuple[str, ...]
) -> None:
    dataset = indexed(lake, ALL, Dialect.PLATEAU, *partition_on)
    assert index_type(dataset, "carrier") == pa.large_string()
    expected = model(rows(0, 48))
    check(dataset, url, expected)

    expected = model(rows(0, 48), append_theirs(url))
    check(dataset, url, expected)

    commit_dataset(store=url, dataset_uuid="sales", delete_scope=[{"sku": 1003}])
    gone = [row for row in expected if row["id"] not in {r["id"] for r in theirs(read_table("sales", url))}]
    assert {row["id"] for row in expected if row["sku"] == 1003} <= {row["id"] for row in gone}
    expected = [row for row in expected if row not in gone]

    dataset.append(rows(72, 24))
    expected = sorted([*expected, *rows(72, 24).to_pylist()], key=lambda row: row["id"])
    check(dataset, url, expected)
    assert index_type(dataset, "carrier") == pa.large_string()
    garbage_collect_dataset("sales", url)
    check(dataset, url, expected)
    operations = [record.operation for record in dataset.history()]
    assert operations[:3] == [Operation.APPEND, Operation.EXTERNAL, Operation.APPEND] or operations[1:3] == [
        Operation.EXTERNAL,
        Operation.EXTERNAL,
    ]


def test_kartothek_dialect_string_index_fails_plateau_update_without_loss(lake: Lake, url: str) -> None:
    """It fails after it has overwritten ``_common_metadata``: with types that lock kartothek 5.3 out."""
    dataset = indexed(lake, ALL, Dialect.KARTOTHEK)
    assert index_type(dataset, "carrier") == pa.string()
    check(dataset, url, model(rows(0, 48)))
    with pytest.raises(TypeError, match="different types"):
        append_theirs(url)
    assert common_metadata(dataset).field("name").type == pa.large_string()
    check(dataset, url, model(rows(0, 48)))
    DatasetLog(lake.store, "sales").settle()
    assert common_metadata(dataset).field("name").type == pa.string()
    dataset.append(rows(48, 4))
    check(dataset, url, model(rows(0, 52)))


def test_kartothek_dialect_index_on_other_types_survives_plateau_update(lake: Lake, url: str) -> None:
    dataset = indexed(lake, NUMBERS, Dialect.KARTOTHEK)
    expected = model(rows(0, 48), append_theirs(url))
    check(dataset, url, expected)
    dataset.append(rows(52, 4))
    check(dataset, url, model(rows(0, 56)))


def test_plateau_table_indices_are_kept_and_usable_by_plateau(lake: Lake, url: str) -> None:
    """Its dialect is plateau's own as long as nobody asks for the other one."""
    store_dataframes_as_dataset(url, "sales", [rows(0, 4).to_pandas()], secondary_indices=["carrier", "sku"])
    dataset = lake.dataset("sales")
    dataset.append(rows(4, 44))
    check(dataset, url, model(rows(0, 48)))
    assert index_type(dataset, "carrier") == pa.large_string()
    check(dataset, url, model(rows(0, 48), append_theirs(url)))
    reindex(lake.store, DatasetLog(lake.store, "sales"), dialect=Dialect.KARTOTHEK)
    assert index_type(dataset, "carrier") == pa.string()
    check(dataset, url, model(rows(0, 52)))


def test_plateau_delete_on_native_index_is_undone_by_rollback(lake: Lake, url: str) -> None:
    """Plateau knows no index on ``name``, and ignores what it does not know."""
    dataset = indexed(lake, ALL, Dialect.PLATEAU)
    version = dataset.version
    commit_dataset(store=url, dataset_uuid="sales", delete_scope=[{"name": "näme 9"}])
    assert ours(dataset) == []
    dataset.rollback(version)
    check(dataset, url, model(rows(0, 48)))


def test_null_lookup_finds_files_with_only_nulls_in_indexed_column(lake: Lake, url: str) -> None:
    """Plateau's index has no nulls, so it finds none of these rows."""
    dataset = indexed(lake, ALL, Dialect.PLATEAU, "year")
    nulls = rows(48, 24).filter(rows(48, 24)["carrier"].is_null())
    dataset.append(nulls)
    expected = [row for row in model(rows(0, 48), nulls) if row["carrier"] is None]
    assert by_name(ours(dataset, where="carrier IS NULL")) == by_name(expected)
    some = [row for row in model(rows(0, 48), nulls) if row["carrier"] in (None, "Zürich")]
    assert by_name(ours(dataset, where="carrier = 'Zürich' OR carrier IS NULL")) == by_name(some)


# --- schemas ------------------------------------------------------------------------------------------------


def common_metadata(dataset: Dataset) -> pa.Schema:
    return pq.read_schema(pa.BufferReader(dataset._store.get("sales/table/_common_metadata")))


def test_plateau_types_are_converted_to_types_readable_by_kartothek(lake: Lake, url: str) -> None:
    dataset = Kind("").make(lake)
    dataset.append(rows(0, 4))
    append_theirs(url)
    assert common_metadata(dataset).field("name").type == pa.large_string()
    DatasetLog(lake.store, "sales").settle()
    found = common_metadata(dataset)
    assert found.field("name").type == pa.string()
    assert str(found.field("tags").type) == "list<item: string>"


def test_plateau_narrow_and_categorical_columns_are_read_by_schema(lake: Lake, url: str) -> None:
    dataset = Kind("").make(lake)
    dataset.append(rows(0, 4))
    frame = rows(4, 4).to_pandas().astype({"region": "category", "id": "int32", "amount": "float32"})
    update_dataset_from_dataframes([frame], store=url, dataset_uuid="sales")
    assert by_name(ours(dataset)) == by_name(model(rows(0, 8)))
    assert dataset.scan().read_all().schema.field("region").type == pa.string()
    dataset.append(rows(8, 4))
    assert by_name(ours(dataset, where="region = 'Zürich'")) == by_name([model(rows(0, 12))[1]])


def test_plateau_column_with_time_zone_is_read_as_stored(lake: Lake, url: str) -> None:
    """Neither library can ever update such a table (seen with kartothek 5.3 and plateau 4.6)."""
    moment = pd.Timestamp("2024-02-29 12:00", tz="UTC")
    store_dataframes_as_dataset(url, "zoned", [pd.DataFrame({"id": [1], "at": [moment]})])
    dataset = lake.dataset("zoned")
    expected = [{"at": moment.to_pydatetime(), "id": 1}]
    assert dataset.scan().read_all().to_pylist() == expected
    with pytest.raises(SchemaMismatch, match="another type"):
        dataset.append(pa.table({"at": pa.array([datetime(2024, 2, 29)], pa.timestamp("us")), "id": [2]}))
    assert dataset.scan().read_all().to_pylist() == expected


def test_plateau_boolean_partition_values_are_read_correctly(lake: Lake, url: str) -> None:
    """Plateau reads each as True; ours are refused."""
    frame = pd.DataFrame({"ok": [True, False], "id": [1, 2]})
    store_dataframes_as_dataset(url, "truth", [frame], partition_on=["ok"])
    dataset = lake.dataset("truth")
    assert ours(dataset) == frame.to_dict("records")
    assert ours(dataset, where="ok = FALSE") == [{"ok": False, "id": 2}]
    assert list(read_table("truth", url)["ok"]) == [True, True]
    with pytest.raises(PartitionInvalid, match="bool"):
        lake.create_dataset("mine", ["ok"], {"ok": "bool", "id": "int64"})


def test_plateau_table_name_is_kept(lake: Lake, url: str) -> None:
    store_dataframes_as_dataset(url, "named", [rows(0, 4).to_pandas()], table_name="core", partition_on=["year"])
    dataset = lake.dataset("named")
    dataset.append(rows(4, 4))
    update_dataset_from_dataframes([rows(8, 4).to_pandas()], store=url, dataset_uuid="named", table_name="core")
    dataset.delete("year = 2019")
    assert by_name(ours(dataset)) == by_name(theirs(read_table("named", url)))
    assert [row["id"] for row in ours(dataset)] == [1, 3, 5, 7, 9, 11]
    assert {key.split("/")[1] for key in dataset.snapshot().head.files().values()} == {"core"}


def test_plateau_overwrite_becomes_new_version_and_history_stays_readable(lake: Lake, url: str) -> None:
    dataset = indexed(lake, NUMBERS, Dialect.PLATEAU, "year")
    version = dataset.version
    store_dataframes_as_dataset(url, "sales", [pd.DataFrame({"other": ["x"]})], overwrite=True)
    assert dataset.scan().read_all().to_pylist() == [{"other": "x"}]
    dataset.append(pa.table({"other": ["y"]}))
    assert sorted(read_table("sales", url)["other"]) == ["x", "y"]
    assert by_name(ours(dataset, as_of=version)) == by_name(model(rows(0, 48)))


# --- collection ---------------------------------------------------------------------------------------------


def test_plateau_gc_keeps_current_version_and_past_version_reports_missing(lake: Lake, url: str) -> None:
    dataset = indexed(lake, ALL, Dialect.PLATEAU, "region")
    version = dataset.version
    dataset.delete("region = 'Zürich'")
    garbage_collect_dataset("sales", url)
    assert len(ours(dataset)) == 44
    check(dataset, url, [row for row in model(rows(0, 48)) if row["region"] != REGIONS[1]])
    assert lookup_works(dataset)
    with pytest.raises(VersionIncomplete, match="no longer exist"):
        dataset.scan(as_of=version)


def lookup_works(dataset: Dataset) -> bool:
    """Native index files lie where plateau does not collect."""
    return [step.files_left for step in dataset.plan("name = 'näme 9'").steps][2] == 1
