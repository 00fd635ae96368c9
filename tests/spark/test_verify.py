"""Verification with Spark: the same verdict as in one process, and the job takes it above the limit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kubothek.catalog import Lake
from kubothek.odf import Layout, verify
from kubothek.odf.spec.events import AddData
from kubothek.spark.sweep import spread_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.verify import verify_dataset
from tests.odf.making import changes, small

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


def test_spark_verification_of_chain_equals_verification_in_process(session: SparkSession, store: Store) -> None:
    """With all passes: a retraction of what is not there is looked for last."""
    maker = small(store)
    maker.data(changes(city=["new", "city 9", "x", "y"], offset=[7, 8, 9, 10], op=[0, 1, 0, 0]), 3)
    heard: list[tuple[int, int]] = []
    spread = spread_with_spark(session, store.config, lambda done, total: heard.append((done, total)))
    there = verify(store, Layout(), spread=spread)
    assert there == verify(store, Layout(), threads=1)
    assert there.first is not None
    assert (there.first.code, there.first.number, there.first.row) == ("DataRetract", 4, 8)
    assert heard
    event = maker.blocks[2].content.event
    assert isinstance(event, AddData)
    assert event.new_data
    store.put(Layout().data(event.new_data.physical_hash), b"x")
    there = verify(store, Layout(), spread=spread)
    assert there == verify(store, Layout(), threads=1)
    assert there.first is not None
    assert (there.first.code, there.first.number) == ("DataPhysical", 2)


def test_spark_verification_of_table_equals_verification_in_process(session: SparkSession, store: Store) -> None:
    letters = Lake(store).create_dataset("letters", ["part"], indices=["n"])
    for n in range(3):
        letters.append(pa.table({"part": [1, 2, 3], "n": [n, n + 10, n + 20]}))
    log = DatasetLog(store, "letters")
    spread = spread_with_spark(session, store.config)
    assert verify_dataset(store, log, spread=spread) == verify_dataset(store, log)
    file = next(iter(letters.snapshot().head.files().values()))
    store.put(file, b"x")
    there = verify_dataset(store, log, spread=spread)
    assert there == verify_dataset(store, log)
    assert there.first is not None
    assert (there.first.code, there.first.object) == ("FileHash", file)
