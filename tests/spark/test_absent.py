"""Work that needs Spark, without PySpark or without Java: one attempt, and an error that says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kubothek.api.jobs import ExitCode

_HIDE = """
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *a: None if name.partition(".")[0] in {hidden} else find(name, *a)
)
from kubothek.jobs.main import main
raise SystemExit(main(sys.argv[1:]))
"""


def result(tmp_path: Path, hidden: tuple[str, ...], **environ: str) -> tuple[int, dict[str, object]]:
    """Exit code and result of a commit that Spark is to do."""
    (tmp_path / "rows.csv").write_text("a\n1\n")
    claim = {"owner": "cluster/default/x", "incarnation": "uid-1"}
    job = {
        "verb": "commit",
        "job": "x-1",
        "uid": "uid-1",
        "store": {"name": "lake", "url": tmp_path.as_uri()},
        "dataset": {"uuid": "x", "claim": claim},
        "commit_id": "c1",
        "digest": "d1",
        "operation": "Append",
        "source": {"format": "CSV", "paths": ["rows.csv"]},
        "spark": {"from_bytes": 0, "conf": {"spark.master": "local[1]"}},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-c", _HIDE.format(hidden=hidden), str(path)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [path for path in tmp_path.rglob("*.json") if path.parent.name == "jobs"]
    assert found, done.stderr
    return done.returncode, json.loads(found[0].read_text())


def test_commit_without_pyspark_names_extra_to_install(tmp_path: Path) -> None:
    code, found = result(tmp_path, ("pyspark", "py4j"))
    assert (code, found["reason"], found["retryable"]) == (ExitCode.INVALID, "SparkUnavailable", False)
    assert "pip install 'kubothek[spark]'" in str(found["message"])


def test_commit_without_java_names_required_java_version(tmp_path: Path) -> None:
    code, found = result(tmp_path, (), JAVA_HOME="/nonexistent", PATH="/nonexistent")
    assert (code, found["reason"], found["retryable"]) == (ExitCode.INVALID, "SparkUnavailable", False)
    assert "install Java 17 or newer and set JAVA_HOME" in str(found["message"])
