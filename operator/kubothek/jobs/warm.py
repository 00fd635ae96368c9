"""The program of a driver that waits for a job: ``python -m kubothek.jobs.warm``.

It does what takes a job's first seconds before there is one: imports, a commit of a few rows to a directory that is
thrown away, a look at the store, and on request a Spark session. Then it says so on its pod, waits until the operator
writes a job there, and runs that as a pod of its own would (:mod:`kubothek.jobs.main`). It runs one, and ends with it.
"""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from kubothek.api.jobs import Claim, CommitJob, DatasetRef, SourceSpec, SparkSettings, StoreRef, signed  # noqa: F401
from kubothek.errors import LakeError, ObjectNotFound
from kubothek.jobs import commit, cube, main, outcome, push, query, tag, translate  # noqa: F401 - so that they are there
from kubothek.jobs.own_pod import OwnPod
from kubothek.jobs.progress import Reporter
from kubothek.storage import open_store
from kubothek.tracing.ids import VARIABLE

READY: Final = "kubothek.io/ready"
JOB_SPEC: Final = "kubothek.io/job-spec"
EXECUTOR_TEMPLATE: Final = "kubothek.io/executor-template"
PART_OF: Final = "kubothek.io/traceparent"
_PAUSE_SECONDS: Final = 1.0
_SETTINGS: Final = ".kubothek/store.json"
_ROWS: Final = "number,word\n" + "".join(f"{number},word {number}\n" for number in range(100))
_ROUNDS: Final = 2
"""The second commit to a table does what the first one does not: it reads a head."""

log = logging.getLogger("kubothek.jobs")


def run(environ: Mapping[str, str] = os.environ) -> int:
    """Get ready, wait for a job, run it; its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _leave)
    pod = OwnPod.of(environ)
    if pod is None:
        raise SystemExit(
            "this program is for pods that the operator starts: there is no POD_NAME, or no service account"
        )
    prepare(environ)
    with tempfile.TemporaryDirectory(prefix="kubothek-job-") as directory:
        job = take(pod, Path(directory))
        return main.main([str(job)])


def prepare(environ: Mapping[str, str]) -> None:
    """Do what a job would have to do first. What fails here is the job's to report."""
    rehearse(SparkSettings(from_bytes=1 << 30))
    if store := environ.get("KUBOTHEK_WARM_STORE"):
        try:
            open_store(translate.store_config(StoreRef.model_validate_json(store))).get(_SETTINGS)
        except ObjectNotFound:
            pass
        except LakeError as error:
            log.warning("the store does not answer as it should: %s", error)
    if conf := environ.get("KUBOTHEK_WARM_SPARK"):
        from kubothek.spark import session  # for a driver without one, PySpark would take half a second to import

        session.keep(json.loads(conf), int(environ["KUBOTHEK_WARM_SPARK_UP_TO"]))
        rehearse(SparkSettings(from_bytes=0))


def rehearse(spark: SparkSettings) -> None:
    """Commit a few rows where nobody will look."""
    with tempfile.TemporaryDirectory(prefix="kubothek-rehearsal-") as directory:
        (Path(directory) / "rows.csv").write_text(_ROWS)
        place = StoreRef(name="rehearsal", url=f"file://{directory}", conditional_writes=True)
        for number in range(_ROUNDS):
            job = CommitJob(
                job=f"rehearsal-{number}",
                uid="rehearsal",
                store=place,
                dataset=DatasetRef(uuid="rehearsal", claim=Claim(owner="rehearsal", incarnation="1")),
                commit_id=f"rehearsal-{number}",
                digest="",
                source=SourceSpec(paths=("rows.csv",), format="CSV"),
                spark=spark,
            )
            commit.run(job, open_store(translate.store_config(place)), Reporter(io.StringIO()))


def take(pod: OwnPod, directory: Path) -> Path:
    """Wait for a job; the file that it is written to. Its executors' template is where drivers look for it."""
    told = False
    while True:
        try:
            if not told:
                pod.annotate({READY: datetime.now(UTC).isoformat(timespec="seconds")})
                told = True
                log.info("ready, and waiting for a job")
            for annotations in pod.states():
                if JOB_SPEC in annotations:
                    return _written(annotations, directory)
        except OSError as error:
            log.warning("cannot ask for a job: %s", error)
            time.sleep(_PAUSE_SECONDS)


def _written(annotations: Mapping[str, str], directory: Path) -> Path:
    template = directory / "executor.json"
    template.write_text(annotations.get(EXECUTOR_TEMPLATE, "{}"))
    os.environ["KUBOTHEK_EXECUTOR_TEMPLATE"] = str(template)
    if part_of := annotations.get(PART_OF):
        os.environ[VARIABLE] = part_of
    job = directory / "job.json"
    job.write_text(annotations[JOB_SPEC])
    return job


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Nothing was begun."""
    os._exit(outcome.EXIT_TERMINATED)


if __name__ == "__main__":
    raise SystemExit(run())
