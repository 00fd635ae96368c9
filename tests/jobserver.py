"""Jobs of the local runtime forked from a process that has imported what they need, instead of one that starts anew.

A job's imports take a second of CPU time and its interpreter's end half of one, and the tests of the command line
start hundreds. What they start is a process all the same: with its own session, environment, output, lock and exit
code, and it can be killed.
That ``python -m kubothek.jobs.main`` does what this does is for tests/jobs, tests/local and the demo.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO, Any

_MODULE = ("-m", "kubothek.jobs.main")
_IMPORTED = [f"kubothek.jobs.{verb}" for verb in ("commit", "inspect", "ledger", "query", "transform")]
_BYTES = 1 << 20


class ForkedJob:
    """What the runtime uses of ``subprocess.Popen``, for a job; anything else is a mistake, and fails."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str],
        pass_fds: Sequence[int],
        start_new_session: bool,
    ) -> None:
        interpreter, *module, job = command
        assert (interpreter, tuple(module)) == (sys.executable, _MODULE), command
        assert stdin == subprocess.DEVNULL, "a job reads nothing"
        assert start_new_session, "a job has a session of its own"
        self.returncode: int | None = None
        self.pid, self._end = _server().fork([job], env, [stdout.fileno(), stderr.fileno(), *pass_fds])

    def wait(self) -> int:
        """Until the job has ended; its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            with self._end:
                (self.returncode,) = struct.unpack("i", self._end.recv(4))
        return self.returncode


class _Server:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=Path(__file__).parents[1],
                # Threads would not be there in the forks.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        atexit.register(self._close)

    def fork(self, arguments: list[str], env: Mapping[str, str], files: list[int]) -> tuple[int, socket.socket]:
        """The process id of the job, and from where its exit code will come."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(Path.cwd())}).encode()
        with theirs, self._lock:
            sent = array.array("i", [theirs.fileno(), *files])
            self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
            answer = self._socket.recv(4)
        assert answer, "the server of jobs has died"
        (pid,) = struct.unpack("i", answer)
        return pid, ours

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request. Returns, in each fork, the arguments of its job; ends when nobody can ask any more."""
    ends: dict[int, socket.socket] = {}
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        if woken in ready:
            woken.recv(_BYTES)
            _tell_ends(ends)
        if requests in ready:
            request, sent, _, _ = socket.recv_fds(requests, _BYTES, 16)
            if not request:
                raise SystemExit
            end, *files = sent
            if (pid := os.fork()) == 0:
                os.setsid()
                requests.send(struct.pack("i", os.getpid()))
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                selector.close()
                for each in (requests, woken, wakes, *ends.values()):
                    each.close()
                os.close(end)
                return _become(json.loads(request), files)
            ends[pid] = socket.socket(fileno=end)
            for file in files:
                os.close(file)


def _tell_ends(ends: dict[int, socket.socket]) -> None:
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with ends.pop(pid) as end, suppress(BrokenPipeError):  # nobody waits any more
            end.send(struct.pack("i", os.waitstatus_to_exitcode(status)))


def _become(request: dict[str, Any], files: list[int]) -> list[str]:
    """Make this process what the request asks for; files beyond standard output and error just stay open."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, *files[:2])):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    arguments: list[str] = request["arguments"]
    sys.argv[1:] = arguments
    return arguments


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from kubothek.jobs.main import main

    for name in _IMPORTED:
        import_module(name)
    gc.freeze()  # collections in the forks leave alone what they share
    code = main(serve(socket.socket(fileno=int(sys.argv[1]))))
    # What an interpreter does at its end, but for the last collection: 0.4 s of CPU for all that is imported.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
