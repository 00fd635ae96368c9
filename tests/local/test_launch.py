"""What a job on this machine is given that a cluster's is not."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from kubothek.api.engine import Engine, EngineSpec
from kubothek.api.jobs import JOB
from kubothek.api.meta import ObjectMeta
from kubothek.controller.context import LaunchJob
from kubothek.local.launch import render_job

COMMIT = {
    "verb": "commit",
    "job": "x-1",
    "uid": "uid-1",
    "store": {"name": "lake", "url": "file:lake"},
    "dataset": {"uuid": "x", "claim": {"owner": "o", "incarnation": "i"}},
    "commit_id": "c1",
    "digest": "d",
    "operation": "Append",
    "source": {"format": "CSV", "paths": ["a.csv"]},
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(None, 1 << 30), (EngineSpec(), 1 << 30), (EngineSpec(spark_from="64Mi"), 64 << 20)],
)
def test_local_job_starts_spark_from_1_gib_unless_engine_sets_limit(
    tmp_path: Path, spec: EngineSpec | None, expected: int
) -> None:
    engine = None if spec is None else Engine(metadata=ObjectMeta(name="e", namespace="default"), spec=spec)
    owner = Engine(metadata=ObjectMeta(name="owner", namespace="default"), spec=EngineSpec())
    action = LaunchJob(JOB.validate_python(COMMIT), owner, engine)
    rendered = orjson.loads(render_job(action, tmp_path, {}))
    assert rendered["spark"]["from_bytes"] == expected


def test_local_job_of_statement_resolves_its_store(tmp_path: Path) -> None:
    statement = {"store": {"name": "other", "url": "file:other"}, "sql": "SELECT 1"}
    owner = Engine(metadata=ObjectMeta(name="owner", namespace="default"), spec=EngineSpec())
    action = LaunchJob(JOB.validate_python(COMMIT | {"source": None, "statement": statement}), owner, None)
    rendered = orjson.loads(render_job(action, tmp_path, {}))
    assert rendered["statement"]["store"]["url"] == (tmp_path / "other").as_uri()
