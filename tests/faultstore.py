"""A store that fails, or is found dead, at the n-th call: for tests of what a crash leaves behind.

    store = FaultStore(open_store(config), Fault(calls=("put_if_match",), nth=1, after=True))
    with pytest.raises(Crash):
        commit(store)                  # the head was swapped, and nothing came after
    commit(store.inner)                # what the next one to look finds

To visit every crash point of an operation, count its calls once and crash at each of them::

    counting = FaultStore(open_store(config))
    operation(counting)
    for fault in every_crash(counting.calls):
        with pytest.raises(Crash):
            operation(FaultStore(open_store(fresh()), fault))

After a crash the wrapper is dead: every later call raises :class:`Crash` too, so clean-up code cannot repair
what a killed process would have left. ``error=`` raises another error once instead, and later calls work:
a lost response is ``Fault(("put_if_match",), 1, after=True, error=StoreUnavailable("lost"))``.

``before_call`` on the wrapper is called with the call's name and key ahead of each call: a test lets another
writer in at exactly that point.
"""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from kubothek.storage import Capabilities, ObjectInfo, Staged, Store

T = TypeVar("T")

WRITES = ("put", "put_if_absent", "put_if_match", "upload", "stage", "flush", "delete", "abort_uploads")
"""The calls that change the store."""
ALL = ("get", "get_with_info", "stat", "open", "list", *WRITES)
"""And those that look at it."""


class Crash(BaseException):
    """The process is dead. No ``except Exception`` catches it, as none would run."""


@dataclass(frozen=True)
class Fault:
    """Fail at the ``nth`` (from 1) call among ``calls`` whose key contains ``key``.

    ``after``   the call took effect first
    ``error``   raise this once instead of crashing
    ``kill``    SIGKILL this process instead of raising: for operations that run in a child process
    """

    calls: Sequence[str] = WRITES
    nth: int = 1
    key: str = ""
    after: bool = False
    error: Exception | None = None
    kill: bool = False


@dataclass(frozen=True)
class Call:
    """One recorded call; ``key`` is the prefix of a listing, the first of ``delete``, empty for ``probe``."""

    name: str
    key: str


class FaultStore(Store):
    """Wraps a real store; thread-safe; ``calls`` records all calls in order."""

    def __init__(self, inner: Store, fault: Fault | None = None) -> None:
        self.inner = inner
        self.config = inner.config
        self.fault = fault
        self.calls: list[Call] = []
        self.before_call: Callable[[str, str], None] | None = None
        self._seen = 0
        self._dead = False
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key))

    def get_with_info(self, key: str) -> tuple[bytes, ObjectInfo]:
        return self._call("get_with_info", key, lambda: self.inner.get_with_info(key))

    def stat(self, key: str) -> ObjectInfo:
        return self._call("stat", key, lambda: self.inner.stat(key))

    def open(self, key: str) -> io.BufferedIOBase:
        return self._call("open", key, lambda: self.inner.open(key))

    def put(self, key: str, data: bytes | memoryview) -> str:
        return self._call("put", key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        return self._call("put_if_absent", key, lambda: self.inner.put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        return self._call("put_if_match", key, lambda: self.inner.put_if_match(key, data, etag))

    def upload(self, key: str, source: io.BufferedIOBase) -> str:
        return self._call("upload", key, lambda: self.inner.upload(key, source))

    def stage(self, key: str) -> AbstractContextManager[Staged] | None:
        """Counts as an upload, which dies before anything enters: what enters late, later deaths see."""
        return self._call("upload", key, lambda: self.inner.stage(key))

    def flush(self, keys: Iterable[str]) -> None:
        self._call("flush", "", lambda: self.inner.flush(keys))

    def abort_uploads(self, prefix: str, before: datetime) -> int:
        return self._call("abort_uploads", prefix, lambda: self.inner.abort_uploads(prefix, before))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._call("list", prefix, lambda: self.inner.list(prefix, start_after))

    def list_names(self, directory: str) -> Iterator[str]:
        return self._call("list_names", directory, lambda: self.inner.list_names(directory))

    def delete(self, keys: Iterable[str]) -> int:
        all_keys = [*keys]
        return self._call("delete", all_keys[0] if all_keys else "", lambda: self.inner.delete(all_keys))

    def probe(self) -> Capabilities:
        return self._call("probe", "", self.inner.probe)

    def _call(self, name: str, key: str, act: Callable[[], T]) -> T:
        with self._lock:
            if self._dead:
                raise Crash(f"dead already, at {name} {key!r}")
            fault = self._struck_by(name, key)
            if fault and fault.error is None:
                self._dead = True
            self.calls.append(Call(name, key))
        if self.before_call:
            self.before_call(name, key)
        if fault is None:
            return act()
        if fault.after:
            act()
        if fault.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise fault.error or Crash(f"{'after' if fault.after else 'before'} {name} {key!r}")

    def _struck_by(self, name: str, key: str) -> Fault | None:
        fault = self.fault
        if fault is None or name not in fault.calls or fault.key not in key:
            return None
        self._seen += 1
        return fault if self._seen == fault.nth else None


def every_crash(calls: Iterable[Call], names: Sequence[str] = WRITES) -> Iterator[Fault]:
    """Every crash point of a recorded operation: before and after each call that changes the store."""
    for nth in range(1, sum(call.name in names for call in calls) + 1):
        yield Fault(names, nth)
        yield Fault(names, nth, after=True)
