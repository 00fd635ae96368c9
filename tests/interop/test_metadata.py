"""User metadata, names of tables and types of DataFrames, as plateau has them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from plateau.core.dataset import DatasetMetadata
from plateau.io.eager import read_table

import kubothek
from kubothek.catalog import Lake
from kubothek.errors import InputError

ROWS = pa.table({"n": [1, None], "t": [datetime(2024, 2, 29), None], "s": ["x", None], "f": [0.5, 1.5]})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path.as_uri())


@pytest.fixture
def plateau(tmp_path: Path) -> Any:
    return lambda: minimalkv.get_store_from_url(f"hfs://{tmp_path}")


def test_user_metadata_is_equal_in_plateau(lake: Lake, plateau: Any) -> None:
    table = lake.create_dataset("t", metadata={"source": "register", "rows": {"from": 1}})
    table.append(ROWS, metadata={"source": "again", "by": ["me"]})
    expected = {"source": "again", "rows": {"from": 1}, "by": ["me"]}
    shown = DatasetMetadata.load_from_store("t", plateau()).metadata
    assert {key: value for key, value in shown.items() if key in expected} == expected
    assert {key: value for key, value in table.metadata.items() if key != "creation_time"} == expected
    table.append(pa.table({}), metadata={"by": None})
    assert "by" not in table.metadata
    with pytest.raises(InputError, match=r"kubothek_\* is Kubothek's own"):
        table.append(ROWS, metadata={"kubothek_tags": {}})


def test_table_uses_requested_name(lake: Lake) -> None:
    table = lake.create_dataset("t", ["n"], table="core")
    table.append(ROWS.slice(0, 1))
    assert all(key.startswith("t/core/n=1/") for key in table.snapshot().head.files().values())
    assert "t/core/_common_metadata" in [info.key for info in lake.store.list("t/")]
    assert kubothek.open(lake.store.url).dataset("t", table="core").scan().read_all().num_rows == 1
    table.compact()
    table.delete("TRUE")
    table.append(ROWS.slice(0, 1))
    assert table.snapshot().head.tables == ("core",)
    for name in ("indices", "a/b", ""):
        with pytest.raises(InputError, match="table "):
            lake.create_dataset("u", table=name)


def test_pandas_frame_equals_frame_of_plateau(lake: Lake, plateau: Any) -> None:
    table = lake.create_dataset("t")
    table.append(ROWS)
    ours = table.read_pandas()
    assert_frame_equal(ours, read_table("t", store=plateau))
    assert [str(kind) for kind in ours.dtypes] == ["float64", "Int64", "object", "datetime64[ns]"]
    assert table.read_pandas("n", "n = 1")["n"].tolist() == [1]
    table.append(pa.table({"n": [5], "t": [datetime(1066, 10, 14)], "s": ["y"], "f": [0.0]}))
    assert table.read_pandas(where="n = 5")["t"].iloc[0] == pd.Timestamp("1066-10-14")
