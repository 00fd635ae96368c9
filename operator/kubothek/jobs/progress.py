"""Progress of a job: JSON lines on standard output, and in a pod an annotation of the pod."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self, TextIO

from kubothek.api.jobs import Progress
from kubothek.jobs.own_pod import OwnPod
from kubothek.tracing import Stages

_LINE_SECONDS: Final = 0.5
_PATCH_SECONDS: Final = 5.0
_ANNOTATION: Final = "kubothek.io/progress"

log = logging.getLogger(__name__)


class Reporter:
    """Reporter of a job's progress: each new stage at once, and within a stage one line per 0.5 s at most.

    A context manager; nothing it does can fail the job.
    """

    def __init__(
        self,
        out: TextIO = sys.stdout,
        annotate: PodAnnotation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._annotate = annotate
        self._clock = clock
        self._stages = Stages()
        self._last: Progress | None = None
        self._reported_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stages.leave()
        if self._annotate is not None:
            self._annotate.stop()

    def report(self, stage: str, tasks_done: int = 0, tasks_total: int = 0, rows: int = 0, **transfer: int) -> None:
        """Report a stage such as Reading; ``transfer``: blocks, bytes, bytes_total. Thread-safe; cheap per batch."""
        self._stages.enter(stage)
        now = self._clock()
        same_stage = self._last is not None and self._last.stage == stage
        if same_stage and now - self._reported_at < _LINE_SECONDS:
            return
        progress = Progress(stage=stage, tasks_done=tasks_done, tasks_total=tasks_total, rows=rows, **transfer)
        if progress == self._last:
            return
        self._last, self._reported_at = progress, now
        print(json.dumps({"progress": progress.model_dump(exclude_unset=True)}), file=self._out, flush=True)
        if self._annotate is not None:
            self._annotate.set(progress)


class PodAnnotation:
    """An annotation of the pod, kept up to date by its own thread with one write per five seconds at most."""

    def __init__(self, pod: OwnPod, *, seconds: float = _PATCH_SECONDS) -> None:
        self._pod = pod
        self._seconds = seconds
        self._next: Progress | None = None
        self._new = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """Return the annotation of this process's pod; None outside of a pod."""
        pod = OwnPod.of(environ)
        return None if pod is None else cls(pod)

    def set(self, progress: Progress) -> None:
        """Write ``progress`` soon, unless a newer one replaces it first."""
        self._next = progress
        self._new.set()

    def stop(self) -> None:
        """Stop writing."""
        self._over.set()
        self._new.set()

    def _run(self) -> None:
        while self._new.wait() and not self._over.is_set():
            self._new.clear()
            progress = self._next
            try:
                self._pod.annotate({_ANNOTATION: progress.model_dump_json() if progress else None}, self._seconds)
            except OSError as error:
                log.warning("cannot tell the progress to the pod: %s", error)
            self._over.wait(self._seconds)
