"""A plain PySpark program, SIGKILLed with its JVM and workers while its writes wait at a request, and run again.

Each row is there once. A batch says by ``commitId`` which write it is, and a stream by its checkpoint. CI kills
writes at the stages that differ; ``KUBOTHEK_SOAK=1`` before and after each request that writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kubothek.catalog import Dataset, Lake
from kubothek.storage import StoreConfig, open_store
from tests import spark_python
from tests.faultproxy import FaultProxy, Hold, Silence
from tests.s3server import S3Server
from tests.sampling import SOAK
from tests.spark import writing
from tests.spark.killed import Program
from tests.sparks import configured

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = list(range(writing.ROWS))
FIRST = ROWS[: writing.ROWS // 2]
"""The rows of the first file that landed: those of a stream's first batch."""
OTHER = 1000
"""The row that another writer appends after the kill."""

WRITES, ALL = ("PUT", "POST", "DELETE"), 1_000_000

TASKS = 2
"""Of a commit, each of which writes a file; also the number of tasks that Spark runs at once."""
FILE, RECORD, HEAD, MARKER = 0, TASKS, TASKS + 1, TASKS + 2
"""The requests of a commit that write: its files, then its record, the swap of the head, and the marker of its id."""
PER_COMMIT = MARKER + 1


@dataclass(frozen=True)
class Stage:
    """Where a write waits: at its request number ``nth`` of those that write, before or after it has taken effect."""

    kind: str
    nth: int
    after: bool

    @property
    def uuid(self) -> str:
        return f"{self.kind}-{self.nth:02}-{'after' if self.after else 'before'}"

    @property
    def visible(self) -> list[int]:
        """The rows that readers see."""
        commits = (self.nth + self.after + PER_COMMIT - HEAD - 1) // PER_COMMIT
        return [] if commits == 0 else FIRST if self.kind == "stream" and commits == 1 else ROWS


SECOND = PER_COMMIT
"""The first request of a stream's second batch."""
CHOSEN = [
    Stage("batch", HEAD, after=True),
    Stage("stream", SECOND + HEAD, after=True),
    Stage("stream", SECOND + FILE + 1, after=False),
]


def programs() -> list[list[Stage]]:
    """Return the stages at which writes of one program wait at once.

    Those in tasks come last, as two tasks run at once: one that waits for its second file, and takes one of them, and
    then one that waits for its first.
    """
    if not SOAK:
        return [CHOSEN]
    requests = {"batch": PER_COMMIT, "stream": 2 * PER_COMMIT}
    stages = [Stage(kind, nth, after) for kind in requests for nth in range(requests[kind]) for after in (False, True)]
    first = [stage for stage in stages if stage.nth % PER_COMMIT == FILE]
    second = [stage for stage in stages if stage.nth % PER_COMMIT == FILE + 1]
    others = [stage for stage in stages if stage.nth % PER_COMMIT >= RECORD]
    return [[*others[at :: len(first)], second[at], first[at]] for at in range(len(first))]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        yield spark


@pytest.mark.parametrize("stages", programs(), ids=lambda stages: f"{len(stages)}-kills-{stages[-1].uuid}")
def test_spark_program_killed_and_run_again_writes_each_row_once(
    stages: list[Stage], session: SparkSession, s3: S3Server, bucket: str, secret: Path, tmp_path: Path
) -> None:
    config = StoreConfig(f"s3://{bucket}/lake", s3.endpoint, s3.region, str(secret))
    lake = Lake(open_store(config))
    landed = tmp_path / "landed"
    landed.mkdir()
    for name, rows in (("1", FIRST), ("2", ROWS[len(FIRST) :])):
        (landed / f"{name}.json").write_text("".join(json.dumps({"id": row}) + "\n" for row in rows))
        os.utime(landed / f"{name}.json", (int(name), int(name)))  # the order in which a stream reads them

    def write(stage: Stage, endpoint: str) -> dict[str, Any]:
        options = {"path": config.url, "uuid": stage.uuid, "endpoint": endpoint, "region": s3.region}
        options["credentialsDir"] = str(secret)
        if stage.kind == "batch":
            return {"kind": "batch", "options": {**options, "commitId": "nightly"}}
        checkpoint = str(tmp_path / f"checkpoint-{stage.uuid}")
        return {"kind": "stream", "options": options, "landed": str(landed), "checkpoint": checkpoint}

    with FaultProxy(s3.endpoint) as proxy, Program(tmp_path / "log", spark_python.executable(tmp_path)) as program:
        for stage in stages:
            lake.create_dataset(stage.uuid, schema=SCHEMA)
            fault = Silence() if stage.after else Hold()
            # Also what comes after, as clients send a request again that takes too long.
            reached = proxy.inject(fault, method=WRITES, path=stage.uuid, times=ALL, skips=stage.nth)
            program.start(write(stage, proxy.endpoint), until=reached)
        program.kill()
        for stage in stages:
            dataset = lake.dataset(stage.uuid)
            assert ids(dataset) == stage.visible, stage
            dataset.append(pa.table({"id": [OTHER]}, schema=SCHEMA))
            dataset.compact(min_files=2)
            writing.run(session, write(stage, s3.endpoint))
            assert ids(dataset) == [*ROWS, OTHER], stage
            appends = [record.id for record in dataset.history() if record.by == "spark"]
            assert len(appends) == len(set(appends)) == (1 if stage.kind == "batch" else 2), stage


def ids(dataset: Dataset) -> list[Any]:
    return sorted(dataset.scan(columns=["id"]).read_all().column("id").to_pylist())
