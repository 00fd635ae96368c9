"""Engines read a table while a writer commits, compacts and collects: no read fails, and none sees half a commit.

A few seconds in CI, through the catalogue and from files; five minutes for each engine with ``KUBOTHEK_SOAK=1``.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import kubothek
from kubothek import Dataset, Lake
from kubothek.table.log import StoreSettings, write_settings
from tests.engines.engine import Engine
from tests.engines.reads import Catalog, Read
from tests.engines.test_catalog import FILES_ONLY, catalogue_of
from tests.gateway.running import READER
from tests.sampling import SOAK
from tests.table.iceberg.test_export import multiset

pytestmark = pytest.mark.slow

IN_CI = ("duckdb", "rust")
"""Engines that read in CI too."""
SECONDS = 300 if SOAK else 0
COMMITS = 6
"""At least."""
ROWS = 6
"""Of each batch, in two partitions."""


def write(dataset: Dataset) -> None:
    """Append batches, delete some of them, compact and collect."""
    random, started, batch = Random(0), time.monotonic(), 0
    while batch < COMMITS or time.monotonic() - started < SECONDS:
        dataset.append(pa.table({"part": ["ö/%", "b"] * (ROWS // 2), "batch": [batch] * ROWS}))
        batch += 1
        if batch % 2 == 0:
            dataset.compact()
        if batch % 3 == 0:
            dataset.delete(f"batch = {random.randrange(batch)}", row_level=True)
        if batch % 5 == 0:
            dataset.collect(keep_versions=5, enforce=True)


def test_no_read_fails_or_sees_half_of_a_commit(engine: Engine, tmp_path: Path) -> None:
    if not SOAK and engine.name not in IN_CI:
        pytest.skip("reads in a soak")
    lake = kubothek.open(tmp_path)
    dataset = lake.create_dataset("t", "part", {"part": "string", "batch": "int64"})
    dataset.set_iceberg("Refuse", version_hint=engine.name in FILES_ONLY)
    if SOAK:
        write_settings(lake.store, StoreSettings(grace=timedelta(minutes=1)))
    with catalogue_of(lake.store) as uri, ThreadPoolExecutor(1) as pool:

        def read() -> Counter[str]:
            found = engine.read(
                from_files(lake) if engine.name in FILES_ONLY else Read("t", "", catalog=Catalog(uri, READER))
            )
            return multiset(found.select(["batch"]))

        writer = pool.submit(write, dataset)
        while not writer.done():
            batches = read()
            assert set(batches.values()) <= {ROWS}, batches
        writer.result()
        assert read() == multiset(dataset.scan().read_all().select(["batch"]))


def from_files(lake: Lake) -> Read:
    """Return the read of the last export, as its hint names it."""
    table = f"{lake.store.url}/.kubothek/t/iceberg"
    hint = lake.store.get(".kubothek/t/iceberg/metadata/version-hint.text").decode()
    return Read(table, f"{table}/metadata/v{hint}.metadata.json")
