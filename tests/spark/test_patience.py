"""A job whose executors never come ends, and says so; one that has some is never cut short."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkContext

from kubothek.spark import session as sessions
from kubothek.spark.errors import ExecutorsUnavailable
from kubothek.spark.session import ExecutorTimeout, patience

WAIT = 60.0


class Context:
    """As much of a SparkContext as is asked: whether it has work, and how often it was looked at."""

    def __init__(self, *, work: bool) -> None:
        self.jobs = [1] if work else []
        self.looks = 0
        self.cancelled = threading.Event()
        self.seen = threading.Condition()

    def statusTracker(self) -> Any:  # noqa: N802 - Spark's name
        with self.seen:
            self.looks += 1
            self.seen.notify_all()
        return SimpleNamespace(getActiveJobsIds=lambda: self.jobs)

    def cancelAllJobs(self) -> None:  # noqa: N802 - Spark's name
        self.cancelled.set()

    def wait_for_looks(self, number: int) -> None:
        with self.seen:
            assert self.seen.wait_for(lambda: self.looks >= number, WAIT)


def patient(context: Context, seconds: float, executors: int) -> AbstractContextManager[ExecutorTimeout]:
    return patience(cast("SparkContext", context), seconds, interval=0.01, executors=lambda: executors)


def test_spark_work_without_executor_is_cancelled_after_timeout() -> None:
    context = Context(work=True)
    with patient(context, 0.02, executors=0) as watched:
        assert context.cancelled.wait(WAIT)
    assert watched.lost


@pytest.mark.parametrize(("work", "executors"), [(True, 1), (False, 0)], ids=["there is one", "there is no work"])
def test_spark_work_with_executor_or_idle_context_is_not_cancelled(work: bool, executors: int) -> None:
    context = Context(work=work)
    with patient(context, 0.01, executors) as watched:
        context.wait_for_looks(10)
    assert not watched.lost
    assert not context.cancelled.is_set()


def test_executor_timeout_is_reported_despite_error_of_job(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(work=True)
    session = SimpleNamespace(sparkContext=context, stop=lambda: None)
    monkeypatch.setattr(sessions, "_start", lambda _: session)
    monkeypatch.setattr(sessions, "patience", lambda found, seconds: patient(found, seconds, executors=0))

    def work(deadline: str, error: str, *, until: bool) -> None:
        with sessions.running({sessions.DEADLINE: deadline}):
            assert not until or context.cancelled.wait(WAIT)
            raise RuntimeError(error)

    with pytest.raises(ExecutorsUnavailable, match="not one executor") as raised:
        work("0.02", "Job 0 cancelled as part of cancellation of all jobs", until=True)
    assert raised.value.transient
    with pytest.raises(RuntimeError, match="of its own"):
        work("3600", "an error of its own", until=False)
