"""Command lines in processes of their own, forked from one that has imported what they need.

A fork may drop its user, lose modules and be interrupted at a call of the store, as a user's process would, without a
second of imports for each. Requests and answers are lines of JSON; see :class:`Request`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

CALLS = (
    "get",
    "get_with_info",
    "get_if_changed",
    "stat",
    "open",
    "list",
    "list_names",
    "put",
    "put_if_absent",
    "put_if_match",
    "put_many",
    "upload",
    "stage",
    "delete",
    "probe",
)
"""Calls of a store that count as moments."""
_IMPORTED = ("kubothek.cli.main", "kubothek.catalog", "kubothek.odf", "duckdb", "pandas", "pyarrow.parquet")
_SECONDS = 120


@dataclass(frozen=True)
class Request:
    """One command line.

    ``powerless``     permission bits hold for it, although it is root
    ``hidden``        modules that cannot be imported
    ``interrupt_at``  the call of a store ahead of which it gets SIGINT, from 1
    """

    arguments: list[str]
    directory: str
    environment: dict[str, str] = field(default_factory=dict)
    powerless: bool = False
    hidden: list[str] = field(default_factory=list)
    interrupt_at: int | None = None


@dataclass(frozen=True)
class Answer:
    """How it ended; ``calls`` of stores, in its own process."""

    code: int
    out: str
    err: str
    calls: int


class Server:
    """The process that forks; a context manager."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.failures.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, request: Request) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(request)), file=self._process.stdin, flush=True)
        return Answer(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    for name in _IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        request = Request(**json.loads(line))
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory) / name for name in ("out", "err", "calls")]
            for file in files:
                file.write_text("")
            child = os.fork()
            if not child:
                _become(request, files)
            status = os.waitpid(child, 0)[1]
            out, err, calls = (file.read_text(errors="replace") for file in files)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps(asdict(Answer(code, out, err, int(calls or 0)))), flush=True)


def _become(request: Request, files: list[Path]) -> None:
    """Be the command line, to its end."""
    code = 70
    try:
        out, err, calls = (os.open(file, os.O_WRONLY) for file in files)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(request.environment)
        os.chdir(request.directory)
        for name in [name for name in sys.modules if name.split(".")[0] in request.hidden]:
            del sys.modules[name]
        sys.modules.update(dict.fromkeys(request.hidden))  # type: ignore[arg-type]
        counted = _count(request.interrupt_at, runs_jobs=request.arguments[0] == "run")
        if request.powerless:
            _drop_capabilities()
        signal.alarm(_SECONDS)
        from kubothek.cli.main import main

        try:
            main(request.arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter does at its end: threads finish
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(calls, str(counted[0]).encode())
    except BaseException:  # noqa: BLE001 - nothing may go on in a fork of the server
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _drop_capabilities() -> None:
    """Of this process and of those that it starts: with them, root may read and write whatever it wants."""
    libc = ctypes.CDLL(None, use_errno=True)
    no_root, locked, set_secure_bits = 1, 2, 28
    version_3 = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if libc.prctl(set_secure_bits, no_root | locked, 0, 0, 0) or libc.capset(version_3, (ctypes.c_uint32 * 6)()):
        raise OSError(ctypes.get_errno(), "cannot drop capabilities")


def _count(interrupt_at: int | None, *, runs_jobs: bool) -> list[int]:
    """Count the calls of file stores; at one of them, interrupt this process as Ctrl-C does.

    ``runs_jobs``  it leaves stores to jobs in other processes: what it asks of these counts
    """
    from kubothek.storage.file import FileStore

    counted = [0]

    def counting(call: Any) -> Any:
        @functools.wraps(call)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            counted[0] += 1
            if counted[0] == interrupt_at:
                os.kill(os.getpid(), signal.SIGINT)
            return call(*args, **kwargs)

        return wrapped

    for name in CALLS:
        setattr(FileStore, name, counting(getattr(FileStore, name)))
    if runs_jobs:
        from kubothek.local.processes import Processes

        for name in ("launch", "view", "reap"):
            setattr(Processes, name, counting(getattr(Processes, name)))
    return counted


if __name__ == "__main__":
    _serve()
