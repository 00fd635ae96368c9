"""Spark's event log on its way to the store: what is kept, in which order, and that Spark's history server reads it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kubothek.errors import StoreUnavailable
from kubothek.jobs import outcome
from kubothek.storage import Store
from tests.jobs.conftest import Here

pytestmark = pytest.mark.slow

APPLICATION = "eventlog_v2_january-1"


def logged(directory: Path, *sizes: int) -> dict[str, str]:
    """A directory as Spark leaves it, with files of events of these sizes, and the settings of such a job."""
    application = directory / APPLICATION
    application.mkdir(parents=True)
    for number, size in enumerate(sizes, start=1):
        (application / f"events_{number}_january-1.zstd").write_bytes(b"x" * size)
    (application / "appstatus_january-1").touch()
    (application / ".appstatus_january-1.crc").touch()
    return {"spark.eventLog.dir": directory.as_uri(), "spark.kubothek.eventLogLimit": "100"}


def kept(store: Store) -> list[str]:
    prefix = f"{outcome.PREFIX}{APPLICATION}/"
    return sorted(found.key.removeprefix(prefix) for found in store.list(outcome.PREFIX))


@pytest.mark.parametrize(("sizes", "numbers"), [((40, 60), (1, 2)), ((40, 61), (1,)), ((10,) * 11, range(1, 11))])
def test_event_log_beyond_limit_keeps_first_files(
    here: Here, tmp_path: Path, sizes: tuple[int, ...], numbers: tuple[int, ...]
) -> None:
    outcome.keep_event_log(here.store, logged(tmp_path / "spark", *sizes))
    assert kept(here.store) == sorted(["appstatus_january-1", *(f"events_{n}_january-1.zstd" for n in numbers)])


def test_event_log_without_limit_setting_is_not_uploaded(here: Here, tmp_path: Path) -> None:
    conf = logged(tmp_path / "spark", 10)
    del conf["spark.kubothek.eventLogLimit"]
    outcome.keep_event_log(here.store, conf)
    assert kept(here.store) == []


def test_event_log_upload_failure_does_not_fail_job(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def upload(*_: object) -> str:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(here.store, "upload", upload)
    outcome.keep_event_log(here.store, logged(tmp_path / "spark", 10))
    assert "was not kept" in caplog.text


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_event_log_of_job_is_shown_by_spark_history_server(here: Here, tmp_path: Path, spark: SparkSession) -> None:
    """A whole job with a JVM of its own, and the history server's own reader over what it left in the store."""
    here.from_bytes = 0
    here.put("x.csv", "p,v\n" + "".join(f"{i % 5},{i}\n" for i in range(2_000)))
    directory = tmp_path / "spark"
    directory.mkdir()
    job = here.commit_job("x.csv", table={"partition_on": ["p"]})
    job["spark"]["conf"] |= {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.compress": "true",
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.kubothek.eventLogLimit": str(2**24),
    }
    done = subprocess.run(
        [sys.executable, "-m", "kubothek.jobs.main", here.write(job)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(here.rows()) == 2_000
    (application,) = (here.root / outcome.PREFIX).iterdir()
    assert {path.name.partition("_")[0] for path in application.iterdir()} == {"appstatus", "events"}
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    conf = jvm.org.apache.spark.SparkConf(False)
    conf.set("spark.history.fs.logDirectory", f"file://{here.root}/{outcome.PREFIX}")
    conf.set("spark.history.store.path", str(tmp_path / "history"))
    provider = jvm.org.apache.spark.deploy.history.FsHistoryProvider(conf)
    try:
        provider.checkForLogs()  # it reads in threads of its own
        until = time.monotonic() + 120
        while not (listed := provider.getListing()).hasNext():
            assert time.monotonic() < until, "the history server does not list the job"
            time.sleep(0.1)
        shown = listed.next()
        assert shown.id() == application.name.removeprefix("eventlog_v2_")
        assert shown.attempts().head().completed()
    finally:
        provider.stop()
