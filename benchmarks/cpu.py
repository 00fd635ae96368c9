"""CPU time of this process and all that it started, also of processes whose parent does not collect their exit status.

The kernel adds the time of an ended child to its parent's, unless the parent ignores SIGCHLD, as PySpark's daemon does
with its workers. A sum over living processes then falls when an idle worker ends, in whichever case runs by then.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import Final, NamedTuple

import psutil

_INTERVAL_SECONDS: Final = 1.0
"""Between readings by the thread. PySpark ends workers that were idle for a minute: all their work has been read."""
_S3_SERVER: Final = "versitygw"


class _Times(NamedTuple):
    """Seconds of one process: its own, and those of children whose exit status it collected."""

    parent: tuple[int, float] | None
    own: float
    collected: float


class CpuClock:
    """A clock that never goes back. Thread-safe; after :meth:`start` a thread reads it each second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[int, float], _Times] = {}
        self._lost = 0.0
        self._sampler: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._sampler is None:
                self._sampler = threading.Thread(target=self._sample, name="cpu-clock", daemon=True)
                self._sampler.start()

    def read(self) -> float:
        """Return CPU seconds, also of processes that have ended; not of the S3 server."""
        with self._lock:
            now = _living()
            self._lost += lost(self._last, now)
            self._last = now
            return self._lost + sum(times.own + times.collected for times in now.values())

    def _sample(self) -> None:
        while True:
            time.sleep(_INTERVAL_SECONDS)
            self.read()


def lost(before: dict[tuple[int, float], _Times], now: dict[tuple[int, float], _Times]) -> float:
    """Return the seconds of ended processes that no living process has among those of its children."""
    ended: dict[tuple[int, float] | None, float] = defaultdict(float)
    for process in before.keys() - now.keys():
        ended[before[process].parent] += before[process].own + before[process].collected
    found = 0.0
    for parent, seconds in ended.items():
        grown = now[parent].collected - before[parent].collected if parent in now and parent in before else 0.0
        found += max(0.0, seconds - grown)
    return found


def _living() -> dict[tuple[int, float], _Times]:
    this = psutil.Process()
    found = {}
    known = {}
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess), process.oneshot():  # it may have ended since it was listed
            if process.name() == _S3_SERVER:
                continue
            identity, times = (process.pid, process.create_time()), process.cpu_times()
            known[process.pid] = identity
            found[identity] = _Times(
                known.get(process.ppid()),
                times.user + times.system,
                times.children_user + times.children_system,
            )
    return found


_clock = CpuClock()


def cpu_of_all() -> float:
    """CPU seconds of this process, Java and Python's workers, also those that have ended; not of the S3 server."""
    _clock.start()
    return _clock.read()
