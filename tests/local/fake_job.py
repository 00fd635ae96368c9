"""A job that does what the names in its spec say, in place of ``kubothek.jobs.main``.

It keeps a log of its starts in ``<store>/starts``. An inspection tells of ``<store>/problem``, if there is one.
A Commit's first source path decides how it goes:

    ok.csv            succeeds
    invalid.csv       says that its input is wrong
    flaky.csv         fails in a way that may pass, the first time
    crash.csv         ends without a word, the first time
    killed.csv        is killed by a signal, the first time
    gate.csv          tells of progress, and waits until ``<store>/gate`` is opened (a FIFO)
    stubborn.csv      like gate.csv, and ignores SIGTERM
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kubothek.api.jobs import (
    JOB,
    CommitJob,
    CommitOutcome,
    DatasetState,
    ExitCode,
    InspectJob,
    JobResult,
    Progress,
    StoreState,
    Totals,
)


def main() -> int:
    job = JOB.validate_json(Path(sys.argv[1]).read_bytes())
    store = Path(unquote(urlsplit(job.store.url).path))
    with (store / "starts").open("a") as starts:
        starts.write(f"{job.job}\n")
    if isinstance(job, InspectJob):
        problem = (store / "problem").read_text() if (store / "problem").exists() else None
        states = tuple(DatasetState(uuid=dataset.uuid, problem=problem) for dataset in job.datasets)
        finish(JobResult(outcome="Succeeded", reason="Succeeded", message="looked", datasets=states, store=_STORE))
        return ExitCode.DONE
    assert isinstance(job, CommitJob)
    return commit(job, store)


_STORE = StoreState(conditional_writes=True)


def commit(job: CommitJob, store: Path) -> int:
    assert job.source is not None, "every test here appends"
    name = job.source.paths[0].rpartition("/")[2]
    first = job.job.endswith("-1")
    if name == "invalid.csv":
        message = "invalid.csv, column 'a', row 3: 'x' is no int64: correct the file"
        finish(JobResult(outcome="Failed", reason="DataTypeMismatch", message=message))
        return ExitCode.INVALID
    if name == "flaky.csv" and first:
        failed = JobResult(outcome="Failed", reason="StoreUnavailable", message="no answer", retryable=True)
        finish(failed)
        return ExitCode.TRANSIENT
    if name == "crash.csv" and first:
        print("Traceback: something broke", file=sys.stderr)
        return ExitCode.INTERNAL
    if name == "killed.csv" and first:
        os.kill(os.getpid(), signal.SIGKILL)
    if name in ("gate.csv", "stubborn.csv"):
        if name == "stubborn.csv":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(Progress(stage="Writing", tasks_done=1, tasks_total=4, rows=10))
        (store / "gate").read_bytes()
    outcome = CommitOutcome(version=1, rows=10, files=1, bytes=100)
    state = DatasetState(uuid=job.dataset.uuid, version=1, totals=Totals(rows=10, files=1, bytes=100, partitions=1))
    finish(JobResult(outcome="Succeeded", reason="Succeeded", message="done", commit=outcome, dataset=state))
    return ExitCode.DONE


def tell(progress: Progress) -> None:
    print("a line of some library")
    print(f'{{"progress": {progress.model_dump_json()}}}', flush=True)


def finish(result: JobResult) -> None:
    Path(os.environ["KUBOTHEK_TERMINATION_LOG"]).write_text(result.model_dump_json())


if __name__ == "__main__":
    sys.exit(main())
