"""Data files say of themselves what pandas shall make of them, as kartothek and plateau write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import build_dataset_indices, read_table, update_dataset_from_dataframes

import kubothek
from kubothek.catalog import Lake
from kubothek.dataset import Dataset

LARGE = 2**53 + 1


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def plateau(tmp_path: Path) -> Any:
    return lambda: minimalkv.get_store_from_url(f"hfs://{tmp_path}")


def footers(lake: Lake, table: Dataset) -> list[pq.FileMetaData]:
    keys = table.snapshot().head.files().values()
    return [pq.read_metadata(pa.BufferReader(lake.store.get(key))) for key in keys]


def test_plateau_builds_indices_of_unpartitioned_table(lake: Lake, plateau: Any) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"n": [90, None, LARGE], "b": [True, None, False], "s": ["x", None, "y"]}))
    table.append(pa.table({"n": [7], "b": [True], "s": ["z"]}))
    build_dataset_indices(plateau, "t", ["n", "s"])
    assert table.scan(where=f"n = {LARGE}").read_all().num_rows == 1
    assert sorted(table.snapshot().head.indices) == ["n", "s"]


def test_plateau_reads_large_integers_beside_nulls_exactly(lake: Lake, plateau: Any) -> None:
    table = lake.create_dataset("t", ["p"])
    table.append(pa.table({"p": [1, 1, 1], "n": [90, None, LARGE], "u": pa.array([None, 1, 2], pa.uint64())}))
    frame = read_table("t", store=plateau)
    assert str(frame["n"].dtype) == "Int64"
    assert frame["n"].dropna().tolist() == [90, LARGE]
    assert read_table("t", store=plateau, predicates=[[("n", "in", [LARGE])]])["n"].tolist() == [LARGE]
    with pytest.raises(ValueError, match="missing values"):  # plateau's limit, of which docs/layout.md tells
        read_table("t", store=plateau, predicates=[[("n", "==", 90)]])
    update_dataset_from_dataframes([frame], store=plateau, dataset_uuid="t", partition_on=["p"])
    assert sorted(v for v in table.scan().read_all()["n"].to_pylist() if v) == [90, 90, LARGE, LARGE]


def test_plateau_reads_columns_without_nulls_as_numpy_types(lake: Lake, plateau: Any) -> None:
    table = lake.create_dataset("t")
    table.append(pa.table({"n": [1, 2], "b": [True, None], "f": [0.5, None]}))
    frame = read_table("t", store=plateau)
    assert [str(kind) for kind in frame[["n", "b", "f"]].dtypes] == ["int64", "object", "float64"]


def test_every_write_operation_adds_pandas_metadata(lake: Lake) -> None:
    table = lake.create_dataset("t", sort_by=["n"])
    for n in range(3):
        table.append(pa.table({"n": [n, None], "m": [n, n]}))
    table.update({"m": 7}, where="n = 0", row_level=True)
    kinds = [footers(lake, table)]
    table.compact()
    kinds.append(footers(lake, table))
    cube = lake.create_cube("c", dimension_columns=["m"], partition_columns=["p"])
    cube.build(pa.table({"m": [1, 2], "p": [1, 1], "n": pa.array([1, None], pa.int64())}))
    kinds.append(footers(lake, lake.dataset("c++seed")))
    for footer in [each for some in kinds for each in some]:
        assert footer.metadata is not None
        stated = json.loads(footer.metadata[b"pandas"])
        assert {column["name"]: column["numpy_type"] for column in stated["columns"]} == {"m": "int64", "n": "Int64"}
        assert (footer.schema.to_arrow_schema().metadata or {})[b"pandas"] == footer.metadata[b"pandas"]


def test_parquet_footer_keeps_arrow_only_types(lake: Lake) -> None:
    data = pa.table({"d": pa.array([5], pa.duration("us")), "l": [[1]], "s": [{"x": 1}], "z": pa.nulls(1)})
    table = lake.create_dataset("t")
    table.append(data)
    (key,) = table.snapshot().head.files().values()
    found = pq.read_table(pa.BufferReader(lake.store.get(key)))
    assert found.select(data.column_names).schema.types[:1] == [pa.duration("us")]
    assert found.to_pandas()["d"].tolist() == [pd.Timedelta(5, "us")]
