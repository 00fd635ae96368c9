"""Job attempts as subprocesses: run concurrently, stopped cleanly, and found again after the runtime was killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from kubothek.api.jobs import Progress
from kubothek.controller.context import JobPhase, JobView
from kubothek.local.attempt import Attempt, Launch
from kubothek.local.files import write_atomically
from kubothek.tracing.ids import VARIABLE

JOB_COMMAND = (sys.executable, "-m", "kubothek.jobs.main")

STOP_GRACE_SECONDS = 10.0
"""How long a job may take to end after SIGTERM before it is killed."""


@dataclass(slots=True)
class _Running:
    attempt: Attempt
    cores: int
    child: subprocess.Popen[bytes] | None
    """Our own child; None for a process that an earlier runtime left."""
    watcher: threading.Thread
    progress: Progress | None = None
    read_to: int = 0
    stopping: bool = False
    cancelled: bool = False


class Processes:
    """Jobs of one run of the local runtime.

    ``slots`` is how many cores jobs may use at once; a job that may use more runs alone. When a process ends, another
    thread calls ``on_end`` with its attempt. Pass that to the thread that uses this object, which then calls
    :meth:`reap`.
    """

    def __init__(
        self,
        slots: int,
        environment: Callable[[], Mapping[str, str]],
        on_end: Callable[[Attempt], None],
        command: tuple[str, ...] = JOB_COMMAND,
    ) -> None:
        self._slots = slots
        self._environment = environment
        self._on_end = on_end
        self._command = command
        self._queue: dict[Attempt, int] = {}
        self._running: dict[Attempt, _Running] = {}
        self._ended: dict[Attempt, JobView] = {}
        self.started = 0
        """Number of processes that this run has started."""

    def launch(self, attempt: Attempt, spec: bytes, launch: Launch) -> None:
        """Start the job as soon as there are free slots. Does nothing for an attempt that any run has launched."""
        if attempt.launched is None:
            attempt.prepare(spec, launch)
        self.view(attempt)

    def view(self, attempt: Attempt) -> JobView | None:
        """Return the present view of the attempt; None if it was never launched. An interrupted one is queued again."""
        if not (attempt in self._queue or attempt in self._running or attempt in self._ended):
            self._recognise(attempt)
        if attempt in self._queue:
            return attempt.view(JobPhase.PENDING, "Queued", "waits for other jobs on this machine")
        if attempt in self._running:
            return replace(attempt.view(JobPhase.RUNNING), progress=self._running[attempt].progress)
        return self._ended.get(attempt)

    @property
    def busy(self) -> bool:
        """Whether any job runs or waits for slots."""
        return bool(self._running or self._queue)

    def read_progress(self) -> list[Attempt]:
        """Read the progress of running jobs; return the attempts that have advanced."""
        further = []
        for attempt, running in self._running.items():
            progress, running.read_to = attempt.read_progress(running.read_to)
            if progress is not None and progress != running.progress:
                running.progress = progress
                further.append(attempt)
        return further

    def reap(self, attempt: Attempt) -> None:
        """Record the end of a process after ``on_end``, and start queued jobs."""
        running = self._running.pop(attempt, None)
        if running is None:
            return
        if running.cancelled:
            attempt.erase()
        elif running.stopping:
            attempt.rewind()
        else:
            attempt.note_exit(running.child.returncode if running.child is not None else None)
        self._start_what_fits()

    def cancel(self, attempt: Attempt) -> None:
        """Stop the attempt and erase it, except its log; a running one is erased when ``on_end`` reports its end."""
        self._ended.pop(attempt, None)
        running = self._running.get(attempt)
        if running is not None:
            running.cancelled = True
            _signal(running, signal.SIGTERM)
            return
        self._queue.pop(attempt, None)
        attempt.erase()

    def close(self) -> None:
        """Stop every job and wait for it. Unfinished jobs are queued again in the next run."""
        self._queue.clear()
        for how in (signal.SIGTERM, signal.SIGKILL):
            for running in self._running.values():
                running.stopping = True
                _signal(running, how)
            deadline = time.monotonic() + STOP_GRACE_SECONDS
            for running in self._running.values():
                running.watcher.join(max(0.0, deadline - time.monotonic()))
            for attempt in [a for a, r in self._running.items() if not r.watcher.is_alive()]:
                self.reap(attempt)

    def _recognise(self, attempt: Attempt) -> None:
        """Classify an attempt that is new to this run by its files."""
        if attempt.launched is None:
            return
        if attempt.alive():
            self._watch(attempt, attempt.launch.cores, None)
        elif (ended := attempt.ended()) is not None:
            self._ended[attempt] = ended
        else:
            self._queue[attempt] = min(attempt.launch.cores, self._slots)
            self._start_what_fits()

    def _start_what_fits(self) -> None:
        while self._queue:
            attempt, cores = next(iter(self._queue.items()))
            if sum(running.cores for running in self._running.values()) + cores > self._slots:
                return
            del self._queue[attempt]
            child = _spawn(attempt, self._command, self._environment())
            self.started += 1
            self._watch(attempt, cores, child)

    def _watch(self, attempt: Attempt, cores: int, child: subprocess.Popen[bytes] | None) -> None:
        def wait() -> None:
            if child is not None:
                child.wait()
            else:
                attempt.wait_until_dead()
            self._on_end(attempt)

        watcher = threading.Thread(target=wait, name=f"watch {attempt.job}", daemon=True)
        self._running[attempt] = _Running(attempt, cores, child, watcher)
        watcher.start()


def _spawn(attempt: Attempt, command: tuple[str, ...], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (
        (attempt.directory / "alive").open("wb") as alive,
        (attempt.directory / "progress.jsonl").open("wb") as output,
        attempt.log_file.open("ab") as log,
    ):
        fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child = subprocess.Popen(  # noqa: S603 - our own interpreter, on a file we wrote
            [*command, str(attempt.directory / "job.json")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            env={**environment, **_own_environment(attempt)},
            pass_fds=(alive.fileno(),),  # the lock belongs to the job from here on
            start_new_session=True,  # the terminal's Ctrl-C is for us; we stop the whole group, JVM included
        )
    write_atomically(attempt.directory / "pid", str(child.pid).encode())
    return child


def _own_environment(attempt: Attempt) -> dict[str, str]:
    """Return the variables of this attempt alone. It must not inherit the runtime's own parent span."""
    return {
        "KUBOTHEK_TERMINATION_LOG": str(attempt.result_file),
        VARIABLE: attempt.launch.traceparent or "",
    }


def _signal(running: _Running, how: signal.Signals) -> None:
    """Send a signal to the job's process group, if it still belongs to that job."""
    with suppress(ProcessLookupError, FileNotFoundError, ValueError):
        if running.child is not None and running.child.returncode is None:
            os.killpg(running.child.pid, how)
        elif running.child is None and running.attempt.alive():
            os.killpg(int((running.attempt.directory / "pid").read_text()), how)
