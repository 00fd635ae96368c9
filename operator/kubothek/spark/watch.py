"""Watching a group of Spark jobs from the driver: how far it is, and when to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from py4j.protocol import Py4JError
from pyspark import SparkContext

_SECONDS: Final = 0.5


class Watch:
    """While it is entered, tells ``told(tasks done, tasks in all)`` and cancels the group when ``stop()``."""

    def __init__(
        self, context: SparkContext, group: str, told: Callable[[int, int], None], stop: Callable[[], bool]
    ) -> None:
        self._context = context
        self._group = group
        self._told = told
        self._stop = stop
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="spark-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM is gone, which the thread that waits for it will report
            while not self._over.wait(_SECONDS):
                if self._stop():
                    self._context.cancelJobGroup(self._group)
                    return
                done, total = self._tasks()
                if total:
                    self._told(done, total)

    def _tasks(self) -> tuple[int, int]:
        tracker = self._context.statusTracker()
        stages: set[int] = set()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            stages.update(info.stageIds if info else ())
        found = [info for stage in stages if (info := tracker.getStageInfo(stage)) is not None]
        return sum(info.numCompletedTasks for info in found), sum(info.numTasks for info in found)
