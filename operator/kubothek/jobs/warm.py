"""The program of a driver that waits for a job: ``python -m kubothek.jobs.warm``.

It does in advance what takes a job's first seconds: imports, a commit of a few rows to a temporary directory, a read of
the store, and on request the start of a Spark session. Then it marks its pod as ready and waits until the operator
writes a job to the pod. It runs that job like any other driver (:mod:`kubothek.jobs.main`) and exits.
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
from kubothek.jobs import commit, cube, main, outcome, push, query, tag, translate  # noqa: F401 - imported in advance
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
"""Two, as only the second commit to a table reads a head."""

log = logging.getLogger("kubothek.jobs")


def run(environ: Mapping[str, str] = os.environ) -> int:
    """Prepare, wait for a job, run it; return its exit code."""
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
    """Do what every job does first. The job itself reports what fails here."""
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
    """Commit a few rows to a temporary directory."""
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
    """Wait for a job; return the file with it. Its executor template is set where drivers read it."""
    announced = False
    while True:
        try:
            if not announced:
                pod.annotate({READY: datetime.now(UTC).isoformat(timespec="seconds")})
                announced = True
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
    """Exit at once, as no job has begun."""
    os._exit(outcome.EXIT_TERMINATED)


if __name__ == "__main__":
    raise SystemExit(run())
