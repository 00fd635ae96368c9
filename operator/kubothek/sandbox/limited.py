"""Worker processes under limits that the kernel enforces, for SQL and bytes from untrusted users.

:func:`run` calls a function in a process of its own, which has a limit of address space (``RLIMIT_AS``) and a timer
that ends it (``SIGALRM`` with its default action). Neither needs the cooperation of the code there: a library that
loops, or that allocates outside its own accounting, ends with its process. The caller gets bytes as a stream, or a
named error.

A *zygote* is a single-threaded process that has imported what the work needs. It forks a process for each task, and a
few in advance, so that a task starts without an import. A process runs one task, so nothing passes from one tenant to
the next. Workers send bytes and JSON, which are never unpickled: an attacker may control a worker's memory.

No process outlives its parent: the zygote watches the parent by a pidfd, and workers get ``SIGKILL`` when the zygote
ends.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol

import orjson

from kubothek.errors import LakeError, WorkerUnavailable
from kubothek.sandbox.frames import (
    EXIT_OF_WORKER,
    LARGEST,
    Bounds,
    WorkerFailed,
    error_from_json,
    pickled,
    receive,
    send,
)
from kubothek.sandbox.zygote import NO_MEMORY, Modules

_STARTING: Final = 120.0
"""Seconds until a new process answers: on a busy machine, the zygote's imports take long."""
_GRACE: Final = 5.0
"""Seconds after a deadline until the parent kills a process that its own timer did not end."""
_MOST_AHEAD: Final = 4
_ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # mimalloc reserves address space by the GiB
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # a thread, before the fork
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MiB
}


class Cause(StrEnum):
    """Why a process ended before its work was done."""

    MEMORY = "memory"
    TIME = "time"
    CRASH = "crash"


_CAUSES: Final[dict[int, Cause]] = {signal.SIGALRM: Cause.TIME, signal.SIGKILL: Cause.MEMORY}
"""The cause by the signal that ended a process, if its parent did not kill it."""


class Ask(Protocol):
    """A worker's call to its caller: sends a JSON question; returns the answer, or raises its LakeError."""

    def __call__(self, question: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of an ended process: peak resident memory in bytes, and the signal that ended it (0: none)."""

    peak: int
    signal: int


def preload(module: str, *, once: str | None = None, warm: str | None = None, if_loaded: bool = False) -> None:
    """Register a module for import by the zygote.

    It applies to zygotes that start later: call it on import of the module that uses :func:`run`.

    ``once``       a function of the module that the zygote calls; it must leave no thread
    ``warm``       a function of the module that a process calls while it waits for its task
    ``if_loaded``  only if the caller has imported the module, too, when the zygote starts
    """
    (_PRELOADED_IF_LOADED if if_loaded else _PRELOADED)[module] = once, warm


def run(
    function: Callable[..., Iterator[bytes]],
    *arguments: Any,
    memory: int,
    seconds: float | None,
    named: Callable[[Cause], LakeError],
    answer: Callable[[Any], Any] | None = None,
    files: Sequence[int] = (),
    maps_files: bool = False,
) -> Work:
    """Call ``function(ask, *arguments)`` in a process of its own; what it yields is the stream.

    ``function``   a module-level function, so that it can be pickled; the arguments must be picklable as well
    ``memory``     bytes of address space beyond those of the process when the task arrives
    ``seconds``    from now until the end of the process, even if its stream is not consumed; None: no limit
    ``named``      the error for a process that ended before its work was done
    ``answer``     answers the function's questions, in the thread that consumes the stream; its result is pickled
    ``files``      descriptors that the process gets copies of; the function gets their numbers before its arguments
    ``maps_files`` whether the function maps files: ``memory`` then limits private writable memory only
    (``RLIMIT_DATA``)
    """
    return _pool().run(function, arguments, Bounds(memory, seconds, maps_files), named, answer, files)


def ahead(function: Callable[..., object], *arguments: Any) -> None:
    """Have new processes call a function while they wait for their task; errors are ignored.

    For slow setup that most tasks need: only the most recently requested functions are called.
    """
    _pool().ahead(pickle.dumps((function, arguments)))


def available() -> bool:
    """Return whether this platform supports workers: Linux."""
    return hasattr(os, "pidfd_open")


def start(spare: int | None = None) -> None:
    """Start the zygote now, and keep this many processes ready."""
    _pool().warm_up(spare)


def stop() -> None:
    """End all processes; running work ends with an error. The next :func:`run` starts them again."""
    global _POOL
    with _POOL_LOCK:
        pool, _POOL = _POOL, None
    if pool is not None:
        pool.close()


class Work:
    """A running task: an iterator of the bytes that it yields, in pieces of at most 1 MiB.

    One thread at a time consumes it; any thread may call :meth:`close`. A process whose stream is not consumed waits,
    and ends at its deadline. ``usage`` is set when the process has ended.
    """

    def __init__(
        self,
        pool: _Pool,
        process: _Process,
        deadline: float | None,
        named: Callable[[Cause], LakeError],
        answer: Callable[[Any], Any] | None,
    ) -> None:
        self._pool = pool
        self._process = process
        self._deadline = deadline
        self._named = named
        self._answer = answer
        self._lock = Lock()
        self._taking = False
        self._ended = False
        self.usage: Usage | None = None

    @property
    def pid(self) -> int:
        """The process id of the worker, also after its end."""
        return self._process.pid

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next piece. Raise LakeError or WorkerFailed."""
        with self._lock:
            if self._ended:
                raise StopIteration
            self._taking = True
        try:
            piece = self._next()
        except BaseException:
            self._end(taking=True)
            raise
        with self._lock:
            self._taking = False
            closed = self._ended
        if closed or piece is None:
            self._end(taking=True)
            raise StopIteration
        return piece

    def _next(self) -> bytes | None:
        while True:
            try:
                kind, payload = self._process.receive(self._remaining())
            except TimeoutError:
                raise self._named(Cause.TIME) from None
            except OSError:
                if self._ended:
                    return None
                raise self._named(self._cause()) from None
            if kind == b"D":
                return payload
            if kind == b"Z":
                return None
            if kind == b"C":
                with suppress(BrokenPipeError, ConnectionResetError):  # it has ended: receive reports why
                    self._process.send(b"A", pickled(partial(self._answered, payload)))
                continue
            if kind == b"E":
                raise self._error(orjson.loads(payload))
            raise WorkerFailed(f"a worker sent a frame of an unknown kind: {kind!r}")

    def _answered(self, question: bytes) -> Any:
        assert self._answer is not None, "the function asks, and the caller has no answer"
        return self._answer(orjson.loads(question))

    def _remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline + _GRACE - time.monotonic())

    def _error(self, error: Any) -> Exception:
        if error["class"] == MemoryError.__name__:
            return self._named(Cause.MEMORY)
        return error_from_json(error) or WorkerFailed(error["message"])

    def _cause(self) -> Cause:
        """Return the cause of a process that closed its connection."""
        status = self._reap()
        if os.WIFSIGNALED(status):
            return _CAUSES.get(os.WTERMSIG(status), Cause.CRASH)
        return Cause.MEMORY if os.WEXITSTATUS(status) == NO_MEMORY else Cause.CRASH

    def close(self) -> None:
        """End the process if it runs."""
        self._end(taking=False)

    def __del__(self) -> None:
        self.close()

    def _end(self, *, taking: bool) -> None:
        with self._lock:
            first, self._ended = not self._ended, True
            if taking:
                self._taking = False
            if first:
                self._process.hang_up()
            if not self._taking:
                self._process.close()
        self._reap()

    def _reap(self) -> int:
        """Reap the process and return its exit status."""
        with self._process.reaping:
            if self._process.status is None:
                self._process.status, peak = self._pool.reap(self._process.pid)
                number = os.WTERMSIG(self._process.status) if os.WIFSIGNALED(self._process.status) else 0
                self.usage = Usage(peak, number)
            return self._process.status


class _Process:
    """The parent's side of a worker."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        self.pid = pid
        self.reaping = Lock()
        self.status: int | None = None

    def send(self, kind: bytes, payload: bytes) -> None:
        send(self._connection, kind, payload)

    def send_files(self, files: Sequence[int]) -> None:
        if files:
            socket.send_fds(self._connection, [b"F"], files)

    def receive(self, seconds: float | None) -> tuple[bytes, bytes]:
        """Return the next frame. Raise TimeoutError, or OSError if the process has ended."""
        self._connection.settimeout(seconds)
        return receive(self._connection, LARGEST)

    def hang_up(self) -> None:
        """Wake up a thread that receives."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


class _Pool:
    """A zygote, and processes that wait for a task. Threads may share it."""

    def __init__(self, modules: Modules, spare: int = 1) -> None:
        self._spare = spare
        self._lock = Lock()
        self._waiting: deque[socket.socket] = deque()
        self._ahead: dict[bytes, None] = {}
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            arguments = [its.fileno(), os.getpid(), sys.path, modules]
            code = "import sys, json; sys.path[:] = json.loads(sys.argv[1])[2]; import kubothek.sandbox.zygote as m; "
            self._zygote = subprocess.Popen(  # noqa: S603 - this module
                [sys.executable, "-c", code + "m.serve(*json.loads(sys.argv[1]))", orjson.dumps(arguments).decode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,
            )
        self._control = mine

    @property
    def alive(self) -> bool:
        return self._zygote.poll() is None

    def ahead(self, call: bytes) -> None:
        with self._lock:
            self._ahead.pop(call, None)
            self._ahead[call] = None
            if len(self._ahead) > _MOST_AHEAD:
                del self._ahead[next(iter(self._ahead))]

    def warm_up(self, spare: int | None) -> None:
        with self._lock:
            self._spare = self._spare if spare is None else spare
            self._refill()

    def run(
        self,
        function: Callable[..., Iterator[bytes]],
        arguments: Sequence[Any],
        bounds: Bounds,
        named: Callable[[Cause], LakeError],
        answer: Callable[[Any], Any] | None,
        files: Sequence[int],
    ) -> Work:
        task = pickle.dumps((bounds, len(files), function, arguments))
        while True:
            process = self._take()
            deadline = None if bounds.seconds is None else time.monotonic() + bounds.seconds
            try:
                process.send(b"T", task)
                process.send_files(files)
            except OSError:  # the process was killed while it waited
                process.close()
                self.reap(process.pid)
                continue
            return Work(self, process, deadline, named, answer)

    def _take(self) -> _Process:
        with self._lock:
            connection = self._waiting.popleft() if self._waiting else self._fork()
            self._refill()
        connection.settimeout(_STARTING)
        try:
            _, pid = receive(connection, LARGEST)
        except OSError as error:
            connection.close()
            raise WorkerUnavailable(f"no worker process could be started: {error}; retry later") from error
        return _Process(connection, int(pid))

    def _refill(self) -> None:
        while len(self._waiting) < self._spare:
            self._waiting.append(self._fork())

    def _fork(self) -> socket.socket:
        mine, its = socket.socketpair()
        with its:
            try:
                socket.send_fds(self._control, [b"F"], [its.fileno()])
            except OSError as error:
                mine.close()
                raise WorkerUnavailable(f"no worker process could be started: {error}; retry later") from error
        with suppress(OSError):  # the error shows when the process is taken
            for call in self._ahead:
                send(mine, b"W", call)
        return mine

    def reap(self, pid: int) -> tuple[int, int]:
        """Kill a process if it runs; return its status, and its peak of resident memory in bytes."""
        with self._lock:
            try:
                self._control.send(b"R%d" % pid)
                status, peak = EXIT_OF_WORKER.unpack(self._control.recv(EXIT_OF_WORKER.size))
            except (OSError, struct.error):  # the zygote has ended, and its workers with it
                return signal.SIGKILL, 0
        return status, peak

    def close(self) -> None:
        """Close the connection to the zygote, which ends it and its workers."""
        with self._lock:
            self.abandon()
            try:
                self._zygote.wait(_GRACE)
            except subprocess.TimeoutExpired:  # it is still importing
                self._zygote.kill()
                self._zygote.wait()

    def abandon(self) -> None:
        """Close what is open without a message to the processes, which belong to another process."""
        self._control.close()
        for each in self._waiting:
            each.close()
        self._waiting.clear()


_PRELOADED: Final[Modules] = {}
_PRELOADED_IF_LOADED: Final[Modules] = {}
_POOL_LOCK: Lock = Lock()
_POOL: _Pool | None = None


def _pool() -> _Pool:
    global _POOL
    with _POOL_LOCK:
        if _POOL is None or not _POOL.alive:
            if _POOL is not None:
                _POOL.close()
            loaded = {module: calls for module, calls in _PRELOADED_IF_LOADED.items() if module in sys.modules}
            _POOL = _Pool(_PRELOADED | loaded)
        return _POOL


def _forked() -> None:
    """Drop the pool in a forked process: it belongs to the parent."""
    global _POOL, _POOL_LOCK
    _POOL_LOCK = Lock()
    if _POOL is not None:
        _POOL.abandon()
        _POOL._zygote.returncode = 0  # another process waits for it
    _POOL = None


os.register_at_fork(after_in_child=_forked)
atexit.register(stop)
