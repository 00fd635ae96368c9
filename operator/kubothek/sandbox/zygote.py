"""The zygote of worker processes, and the workers: see :mod:`kubothek.sandbox.limited`."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import orjson

from kubothek.errors import LakeError
from kubothek.sandbox.frames import (
    EXIT_OF_WORKER,
    LARGEST,
    Bounds,
    WorkerFailed,
    error_from_json,
    error_to_json,
    receive,
    send,
)

Modules: TypeAlias = dict[str, tuple[str | None, str | None]]
"""By module, the functions to call: one once in the zygote, one in each process."""
NO_MEMORY: Final = 71
"""Exit status of a process that lacks the memory to report an error."""
_SAID_OF_MEMORY: Final = ("std::bad_alloc", "Failed to launch worker thread", "OutOfMemoryException")
"""Names or texts of errors of libraries after a failed allocation: C++'s, Arrow's for the stack of a thread, and
DuckDB's."""
_PR_SET_PDEATHSIG: Final = 1
_TRACE: Final = 4000


def serve(control: int, parent: int, path: Sequence[str], modules: Modules) -> NoReturn:
    """Fork and reap for the process ``parent``, until it ends or closes the connection."""
    connection = socket.socket(fileno=control)
    watch = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(0)
    for module, (once, _) in modules.items():
        loaded = importlib.import_module(module)
        if once is not None:
            getattr(loaded, once)()
    gc.collect()
    gc.freeze()
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(watch, select.POLLIN)
    workers: set[int] = set()
    while not any(fd == watch for fd, _ in poll.poll()):
        message, descriptors, _, _ = socket.recv_fds(connection, 64, 1)
        if not message:
            break
        if message[:1] == b"R":
            pid = int(message[1:])
            workers.discard(pid)
            connection.send(EXIT_OF_WORKER.pack(*_killed(pid)))
            continue
        with suppress(OSError):  # if the fork fails, its socket closes, which the parent sees
            pid = os.fork()
            if not pid:
                os.close(watch)
                connection.close()
                _worker(socket.socket(fileno=descriptors[0]), modules)
            workers.add(pid)
        os.close(descriptors[0])
    for pid in workers:
        _killed(pid)
    os._exit(0)


def _killed(pid: int) -> tuple[int, int]:
    """End a child and its process group; it is not reaped yet, so the process id is still its own."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return signal.SIGKILL, 0
    return status, usage.ru_maxrss << 10


# --- a worker ---------------------------------------------------------------------------------------------------------


def _worker(connection: socket.socket, modules: Modules) -> NoReturn:
    status = NO_MEMORY
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # so that it is killed before its parent
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        send(connection, b"H", str(os.getpid()).encode())
        for module, (_, warm) in modules.items():
            if warm is not None:
                getattr(sys.modules[module], warm)()
        kind, task = receive(connection, sys.maxsize)
        while kind == b"W":
            with suppress(Exception):
                function, arguments = pickle.loads(task)  # noqa: S301 - from the parent
                function(*arguments)
            kind, task = receive(connection, sys.maxsize)
        _work(connection, task)
        status = 0
    except OSError:  # the parent has closed the connection
        status = 0
    except MemoryError:
        pass
    except BaseException:  # noqa: BLE001 - of what warms up
        traceback.print_exc()
        status = 1
    finally:
        os._exit(status)


def _work(connection: socket.socket, task: bytes) -> None:
    """Run the task. Raise OSError if the parent closed the connection, MemoryError if no error can be sent."""
    try:
        bounds, count, function, arguments = pickle.loads(task)  # noqa: S301 - from the parent
        files = socket.recv_fds(connection, 1, count)[1] if count else ()
        _limit(bounds)
        for data in function(partial(_ask, connection), *files, *arguments):
            view = memoryview(data).cast("B")
            for first in range(0, len(view), LARGEST):
                send(connection, b"D", view[first : first + LARGEST])
        send(connection, b"Z", b"")
    except (BrokenPipeError, ConnectionResetError):
        raise
    except BaseException as error:  # noqa: BLE001 - the parent raises it
        kind = MemoryError() if is_memory(error) else error
        message = None if isinstance(kind, LakeError) else "".join(traceback.format_exception(error))[-_TRACE:]
        send(connection, b"E", orjson.dumps(error_to_json(kind, message)))


def is_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, by the error's class or a library's text."""
    # An error of ours may have the text of a library's.
    message = str(error) if isinstance(error, LakeError) else f"{type(error).__name__}: {error}"
    return isinstance(error, MemoryError) or any(each in message for each in _SAID_OF_MEMORY)


def _limit(bounds: Bounds) -> None:
    statm = Path("/proc/self/statm").read_text().split()
    kind, pages = (resource.RLIMIT_DATA, statm[5]) if bounds.maps_files else (resource.RLIMIT_AS, statm[0])
    most = int(pages) * resource.getpagesize() + bounds.memory
    resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if bounds.seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, max(bounds.seconds, 0.001))


def _ask(connection: socket.socket, question: Any) -> Any:
    send(connection, b"C", orjson.dumps(question))
    _, answered = receive(connection, sys.maxsize)
    value, failure = pickle.loads(answered)  # noqa: S301 - from the parent
    if failure is not None:
        raise error_from_json(failure) or WorkerFailed(failure["message"])
    return value
