"""Telling how far a job is: a JSON line on standard output, and in a pod an annotation of that pod."""

from __future__ import annotations

import json
import logging
import os
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from kubothek.resources.jobs import Progress
from kubothek.spark.pod import api_server

_LINE_SECONDS: Final = 0.5
_PATCH_SECONDS: Final = 5.0
_ANNOTATION: Final = "kubothek.io/progress"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, and whom it may trust."""

log = logging.getLogger(__name__)


class Reporter:
    """Tells each new stage at once, and within a stage not more often than a person can read.

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
        self._last: Progress | None = None
        self._told = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._annotate is not None:
            self._annotate.stop()

    def tell(self, stage: str, tasks_done: int = 0, tasks_total: int = 0, rows: int = 0, **transfer: int) -> None:
        """Stage is a word for people, such as Reading; ``transfer``: blocks, bytes and bytes_total. Safe to call from
        any thread, for every batch.
        """
        now = self._clock()
        same_stage = self._last is not None and self._last.stage == stage
        if same_stage and now - self._told < _LINE_SECONDS:
            return
        progress = Progress(stage=stage, tasks_done=tasks_done, tasks_total=tasks_total, rows=rows, **transfer)
        if progress == self._last:
            return
        self._last, self._told = progress, now
        print(json.dumps({"progress": progress.model_dump(exclude_unset=True)}), file=self._out, flush=True)
        if self._annotate is not None:
            self._annotate.set(progress)


class PodAnnotation:
    """Keeps an annotation of the pod up to date from a thread of its own, one write in five seconds at most."""

    def __init__(
        self,
        namespace: str,
        pod: str,
        *,
        server: str,
        account: Path = SERVICE_ACCOUNT,
        seconds: float = _PATCH_SECONDS,
    ) -> None:
        self._url = f"{server}/api/v1/namespaces/{namespace}/pods/{pod}"
        self._account = account
        self._seconds = seconds
        self._next: Progress | None = None
        self._new = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """That of the pod this process runs in; None outside of one."""
        if "POD_NAME" not in environ or not SERVICE_ACCOUNT.is_dir():
            return None
        return cls(environ["POD_NAMESPACE"], environ["POD_NAME"], server=api_server(environ))

    def set(self, progress: Progress) -> None:
        """Write this soon, unless something newer comes first."""
        self._next = progress
        self._new.set()

    def stop(self) -> None:
        """Write nothing more."""
        self._over.set()
        self._new.set()

    def _run(self) -> None:
        while self._new.wait() and not self._over.is_set():
            self._new.clear()
            try:
                self._patch(self._next)
            except OSError as error:
                log.warning("cannot tell the progress to the pod: %s", error)
            self._over.wait(self._seconds)

    def _patch(self, progress: Progress | None) -> None:
        value = progress.model_dump_json() if progress else None
        request = urllib.request.Request(  # noqa: S310 - the API server's own address
            self._url,
            data=json.dumps({"metadata": {"annotations": {_ANNOTATION: value}}}).encode(),
            method="PATCH",
            headers={
                "Authorization": f"Bearer {(self._account / 'token').read_text()}",
                "Content-Type": "application/merge-patch+json",
            },
        )
        trust = ssl.create_default_context(cafile=self._account / "ca.crt") if self._url.startswith("https") else None
        with urllib.request.urlopen(request, timeout=self._seconds, context=trust):  # noqa: S310
            pass
