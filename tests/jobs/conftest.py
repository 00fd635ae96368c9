from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kubothek.api.jobs import JobResult
from kubothek.errors import ObjectNotFound
from kubothek.jobs.main import perform
from kubothek.jobs.progress import Reporter
from kubothek.spark import session as spark_session
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import Claim, DatasetLog, Snapshot
from kubothek.table.log.model import keys as lake_keys

CLAIM = {"owner": "cluster/default/flights", "incarnation": "uid-1"}
UUID = "flights"
ALL_IN_PROCESS = 1 << 60
SEED = bytes(range(32))


@dataclass
class Here:
    """A store with sources in it, jobs on it, and what they did."""

    root: Path
    from_bytes: int = ALL_IN_PROCESS
    sessions: int = 0
    said: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        self.root.mkdir()
        self.store: Store = open_store(StoreConfig(self.root.as_uri()))

    def copy(self, root: Path) -> Here:
        """The same store in another place, with all its times."""
        twin = Here(root)
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return twin

    def put(self, name: str, data: bytes | str | pa.Table) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, pa.Table):
            pq.write_table(data, path)
        else:
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return name

    def commit_job(
        self, *paths: str, commit_id: str = "c1", table: Mapping[str, Any] | None = None, **source: Any
    ) -> dict[str, Any]:
        where = {"paths": paths} if paths else {}
        return {
            **self._job("commit", table or {}),
            "commit_id": commit_id,
            "digest": json.dumps([paths, source], default=str),
            "source": {"format": "CSV", **where, **source},
            "spark": {"from_bytes": self.from_bytes, "conf": {"spark.master": "local[2]"}},
        }

    def job(self, verb: str, **table: Any) -> dict[str, Any]:
        return self._job(verb, table)

    def inspect_job(self, *uuids: str) -> dict[str, Any]:
        job = self._job("inspect", {})
        dataset = job.pop("dataset")
        return {**job, "datasets": [{**dataset, "uuid": uuid} for uuid in uuids or (UUID,)]}

    def _job(self, verb: str, table: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "verb": verb,
            "job": f"run-{verb}-1",
            "uid": f"uid-of-{verb}",
            "store": {"name": "lake", "url": self.root.as_uri()},
            "dataset": {"uuid": UUID, "claim": CLAIM, "table": dict(table)},
        }

    def write(self, job: Mapping[str, Any]) -> str:
        path = self.root.with_name(f"{job['job']}.json")
        path.write_text(json.dumps(job))
        return str(path)

    def run(self, job: Mapping[str, Any]) -> tuple[JobResult, int]:
        return perform([self.write(job)], Reporter(self.said))

    def commit(self, *paths: str, **options: Any) -> JobResult:
        """A commit that must succeed."""
        result, code = self.run(self.commit_job(*paths, **options))
        assert code == 0, result
        return result

    @property
    def log(self) -> DatasetLog:
        return DatasetLog(self.store, UUID, claim=Claim(CLAIM["owner"], CLAIM["incarnation"]))

    def head(self) -> bytes | None:
        try:
            return self.store.get(lake_keys.head(UUID))
        except ObjectNotFound:
            return None

    def snapshot(self) -> Snapshot:
        return self.log.snapshot()

    def rows(self, *by: str) -> list[dict[str, Any]]:
        """All rows of the table, with the partitions' values as texts, sorted."""
        rows: list[dict[str, Any]] = []
        for key in self.snapshot().head.files().values():
            parts = dict(p.split("=") for p in key.split("/")[2:-1])
            rows += [{**row, **parts} for row in pq.read_table(io.BytesIO(self.store.get(key))).to_pylist()]
        return sorted(rows, key=lambda row: tuple(repr(row[name]) for name in by or sorted(row)))

    def progress(self) -> Sequence[dict[str, Any]]:
        return [json.loads(line)["progress"] for line in self.said.getvalue().splitlines()]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "lake")


@pytest.fixture(params=["process", pytest.param("spark", marks=pytest.mark.spark)])
def either(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Jobs in this process, then the same with Spark: whatever a test asserts holds for both."""
    if request.param == "process":
        return Here(tmp_path / "lake")
    return with_spark(Here(tmp_path / "lake"), request.getfixturevalue("spark"), monkeypatch)


def with_spark(here: Here, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Everything goes through the session that is there already."""

    @contextmanager
    def running(_conf: Mapping[str, str], _size: int | None = None) -> Iterator[SparkSession]:
        here.sessions += 1
        yield session

    monkeypatch.setattr(spark_session, "running", running)
    here.from_bytes = 0
    return here


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    """A Secret as it is mounted."""
    directory = tmp_path / "identity"
    directory.mkdir()
    (directory / "ed25519").write_bytes(SEED)
    return directory
