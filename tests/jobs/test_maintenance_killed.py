"""Maintenance jobs die anywhere, are killed at any moment, and stand beside plateau: nothing that counts is lost."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import read_table, update_dataset_from_dataframes

from kubothek.api.jobs import JOB, CollectJob, CompactJob, ExitCode
from kubothek.errors import StoreUnavailable
from kubothek.jobs import collect, compact
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Operation
from kubothek.table.log.model import keys
from tests.faultstore import Crash, FaultStore, every_crash
from tests.jobs import test_collect as collecting
from tests.jobs import test_compact as compacting
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

KEPT = {4: [3], 3: [2]}
"""The two versions of :func:`tests.jobs.test_collect.filled` that the policy keeps, and what they hold."""


def values(store: Store, name: str, version: int, column: str) -> list[int]:
    """What a version holds; reads every file."""
    found: list[Any] = []
    for key in DatasetLog(store, name).snapshot(version).head.files().values():
        found += pq.read_table(io.BytesIO(store.get(key))).column(column).to_pylist()
    return sorted(found)


def collect_on(store: Store, here: Here) -> None:
    job = JOB.validate_python(collecting.job(here, "a"))
    assert isinstance(job, CollectJob)
    collect.run(job, store, Reporter(here.said))


def compact_on(store: Store, here: Here) -> None:
    job = JOB.validate_python(compacting.job(here))
    assert isinstance(job, CompactJob)
    compact.run(job, store, Reporter(here.said))


# --- dying at any call ------------------------------------------------------------------------------------------------


@pytest.fixture
def garbage(tmp_path: Path) -> Here:
    """A dataset of four versions, of which two are due."""
    here = Here(tmp_path / "garbage")
    collecting.filled(here, "a")
    return here


def assert_kept(here: Here) -> None:
    assert {version: values(here.store, "a", version, "a") for version in KEPT} == KEPT


def assert_collected(here: Here) -> None:
    assert_kept(here)
    assert collecting.data_files(here, "a") == 2
    assert next(here.store.list(keys.records("a"))).key.startswith(keys.records_of("a", 3))
    assert DatasetLog(here.store, "a").inspect().problem is None


def calls_of(here: Here, act: Callable[[Store], None]) -> FaultStore:
    counting = FaultStore(here.store)
    act(counting)
    return counting


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, StoreUnavailable("gone for a moment")], ids=["dies", "fails"])
def test_collection_that_crashes_is_completed_by_next_run(
    garbage: Here, tmp_path: Path, error: StoreUnavailable | None
) -> None:
    """Before and after each call that changes the store; tests/gc does the same with all other calls."""
    counted = garbage.copy(tmp_path / "counted")
    counting = calls_of(counted, lambda store: collect_on(store, counted))
    crashes = list(every_crash(counting.calls))
    assert len(crashes) > 12
    for number, crash in enumerate(crashes):
        if error and crash.after:
            continue
        here = garbage.copy(tmp_path / str(number))
        with suppress(StoreUnavailable) if error else pytest.raises(Crash):
            collect_on(FaultStore(here.store, replace(crash, error=error)), here)
        assert_kept(here)
        collect_on(here.store, here)
        assert_collected(here)
        shutil.rmtree(here.root)


@pytest.mark.slow
def test_compact_job_that_crashes_is_applied_once_on_rerun(tmp_path: Path) -> None:
    original = Here(tmp_path / "original")
    compacting.filled(original, 3, indices=[{"column": "v", "kind": "Native"}])
    rows = original.rows()
    counted = original.copy(tmp_path / "counted")
    counting = calls_of(counted, lambda store: compact_on(store, counted))
    faults = list(every_crash(counting.calls))
    assert len(faults) > 10
    for number, fault in enumerate(faults):
        here = original.copy(tmp_path / str(number))
        with pytest.raises(Crash):
            compact_on(FaultStore(here.store, fault), here)
        assert here.rows() == rows, fault
        _, done = compacting.run(here)
        assert (done.version, done.files_before, done.files_after) == (4, 6, 2), fault
        assert here.rows() == rows, fault
        assert [record.operation for record in here.log.history()].count(Operation.COMPACT) == 1
        shutil.rmtree(here.root)


# --- kill -9 ----------------------------------------------------------------------------------------------------------


class Driver:
    """The program of a driver pod as a process of its own."""

    def __init__(self, here: Here, job: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kubothek.jobs.main", here.write(job)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert b"Starting" in self._process.stdout.readline()
        self._began = time.monotonic()

    def run(self) -> float:
        """To its end; the seconds since it told that it starts."""
        self._process.communicate()
        assert self._process.returncode == ExitCode.DONE
        return time.monotonic() - self._began

    def kill_after(self, seconds: float) -> None:
        """SIGKILL, unless it was faster."""
        timer = threading.Timer(seconds, lambda: os.killpg(self._process.pid, signal.SIGKILL))
        timer.start()
        self._process.communicate()
        timer.cancel()
        assert self._process.returncode in (-signal.SIGKILL, ExitCode.DONE)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_collection_killed_at_random_time_keeps_referenced_files(garbage: Here, tmp_path: Path) -> None:
    for number in range(400):
        garbage.store.put(f"a/table/litter-{number:04}.parquet", b"PAR1")
    collecting.age(garbage, 3 * collecting.DAY)
    unharmed = garbage.copy(tmp_path / "unharmed")
    seconds = Driver(unharmed, collecting.job(unharmed, "a")).run()
    assert_collected(unharmed)
    here = garbage.copy(tmp_path / "killed")
    Driver(here, collecting.job(here, "a")).kill_after(random.uniform(0, seconds))
    assert_kept(here)
    collect_on(here.store, here)
    assert_collected(here)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compact_job_killed_at_random_time_keeps_rows(tmp_path: Path) -> None:
    original = Here(tmp_path / "original")
    compacting.filled(original, 20)
    rows = original.rows()
    unharmed = original.copy(tmp_path / "unharmed")
    seconds = Driver(unharmed, compacting.job(unharmed)).run()
    here = original.copy(tmp_path / "killed")
    Driver(here, compacting.job(here)).kill_after(random.uniform(0, seconds))
    assert here.rows() == rows
    _, done = compacting.run(here)
    assert (done.version, done.files_after) == (21, 2)
    assert here.rows() == rows
    assert [record.operation for record in here.log.history()].count(Operation.COMPACT) == 1


# --- plateau in the middle of its commit ------------------------------------------------------------------------------


class Plateau:
    """Plateau on the directory of a store; ``before_head`` is called when its files are there and its head is not."""

    def __init__(self, here: Here, before_head: Callable[[], object]) -> None:
        self._store = minimalkv.get_store_from_url(f"hfs://{here.root}")
        put = self._store.put

        def put_hooked(key: str, data: bytes, *args: Any, **kwargs: Any) -> Any:
            if key == keys.head("a"):
                before_head()
            return put(key, data, *args, **kwargs)

        self._store.put = put_hooked

    def append(self, *numbers: int) -> None:
        frame = pd.DataFrame({"a": list(numbers)})
        update_dataset_from_dataframes([frame], store=lambda: self._store, dataset_uuid="a")

    def values(self) -> list[int]:
        return sorted(int(value) for value in read_table("a", store=lambda: self._store)["a"])


def test_plateau_commit_during_collection_loses_no_rows(garbage: Here) -> None:
    """Its file is there, its head comes after a whole collection: also one that expires versions ahead of it."""
    done: list[int] = []

    def collect_meanwhile() -> None:
        _, outcome = collecting.run(garbage, "a")
        done.append(collecting.objects(outcome)["data"])

    plateau = Plateau(garbage, collect_meanwhile)
    plateau.append(7)
    assert done == [2], "the collection had something to do"
    result, code = garbage.run({**garbage.inspect_job("a"), "datasets": [collecting.dataset("a")]})
    assert code == ExitCode.DONE
    assert result.datasets[0].problem is None
    head = DatasetLog(garbage.store, "a").snapshot()
    assert values(garbage.store, "a", head.version, "a") == plateau.values() == [3, 7]
    collecting.run(garbage, "a")
    assert plateau.values() == [3, 7]


def test_plateau_commit_slower_than_compaction_loses_no_rows(tmp_path: Path) -> None:
    """It read the head before small files became large ones, and writes the old ones back: they are still there."""
    here = Here(tmp_path / "lake")
    for number in range(3):
        job = here.commit_job(here.put(f"{number}.csv", f"a\n{number}\n"), commit_id=f"c{number}")
        assert here.run({**job, "dataset": collecting.dataset("a")})[1] == ExitCode.DONE

    def compact_and_collect() -> None:
        job = {**compacting.job(here), "dataset": collecting.dataset("a")}
        assert here.run(job)[1] == ExitCode.DONE
        collecting.run(here, "a", policies=[{"versions": 1}])

    plateau = Plateau(here, compact_and_collect)
    plateau.append(7)
    here.run({**here.inspect_job("a"), "datasets": [collecting.dataset("a")]})
    assert plateau.values() == [0, 1, 2, 7]
    head = DatasetLog(here.store, "a").snapshot()
    assert values(here.store, "a", head.version, "a") == [0, 1, 2, 7]
