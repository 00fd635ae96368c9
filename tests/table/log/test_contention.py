"""Many processes commit to one dataset at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import AlreadyApplied, DatasetLog
from tests.sampling import SOAK
from tests.table.log.table import UUID, append_many, ids, present, replays

WRITERS = 16
EACH = 25 if SOAK else 8


def race(config: StoreConfig, pool: Executor, each: int) -> None:
    list(pool.map(append_many, [config] * WRITERS, range(WRITERS), [each] * WRITERS))


def assert_each_landed_once(config: StoreConfig, each: int) -> None:
    store = open_store(config)
    expected = sorted(writer * 1000 + n for writer in range(WRITERS) for n in range(each))
    assert sorted(present(store)) == expected
    log = DatasetLog(store, UUID)
    landed = ids(log)
    assert len(landed) == len(set(landed)) == len(expected)
    totals = log.snapshot().totals
    assert totals is not None
    assert (totals.rows, totals.files) == (len(expected), len(expected))
    assert all(isinstance(outcome, AlreadyApplied) for outcome in replays(config, landed))


@pytest.mark.slow
def test_sixteen_processes_on_one_directory_keep_all_commits(config: StoreConfig) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.table.log.table"])
    with ProcessPoolExecutor(WRITERS, mp_context=context) as processes:
        race(config, processes, EACH)
    assert_each_landed_once(config, EACH)


@pytest.mark.s3
def test_sixteen_writers_on_s3_keep_all_commits(bucket_config: StoreConfig) -> None:
    with ThreadPoolExecutor(WRITERS) as threads:
        race(bucket_config, threads, 5)
    assert_each_landed_once(bucket_config, 5)
