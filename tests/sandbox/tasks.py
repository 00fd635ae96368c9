"""What the workers of these tests do."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from kubothek.errors import ObjectNotFound, QueryInvalid
from kubothek.sandbox.limited import Ask

STATE: list[int] = []


def echo(ask: Ask, *pieces: bytes) -> Iterator[bytes]:
    yield from pieces


def large(ask: Ask, size: int) -> Iterator[bytes]:
    yield b"x" * size


def pid(ask: Ask) -> Iterator[bytes]:
    STATE.append(os.getpid())
    yield f"{os.getpid()} {len(STATE)}".encode()


def endless(ask: Ask) -> Iterator[bytes]:
    while True:
        yield b"more"


def asleep(ask: Ask) -> Iterator[bytes]:
    """Deaf to all that can be ignored, with a child of its own."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield f"{os.getpid()} {child.pid}".encode()
    time.sleep(600)


def looping(ask: Ask) -> Iterator[bytes]:
    yield b""
    (b"a" * 40).replace(b"", b"")
    ctypes.PyDLL(None).sleep(600)  # holds Python's lock, as one call of a library does


def hoarding(ask: Ask) -> Iterator[bytes]:
    held = []
    while True:
        held.append(bytearray(8 << 20))
        yield b""


def hoarding_outside(ask: Ask) -> Iterator[bytes]:
    """As a library does that does not look whether it got what it asked for."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while True:
        ctypes.memset(libc.malloc(8 << 20), 1, 8 << 20)
    yield b""


def failing(ask: Ask, kind: str) -> Iterator[bytes]:
    yield b"first"
    if kind == "lake":
        raise QueryInvalid("no such column")
    if kind == "key":
        raise ObjectNotFound("a/b", "the store")
    if kind == "other":
        raise KeyError("a fault")
    os.kill(os.getpid(), getattr(signal, kind))


def asking(ask: Ask, questions: Any) -> Iterator[bytes]:
    for each in questions:
        try:
            yield repr(ask(each)).encode()
        except QueryInvalid as error:
            yield f"refused: {error}".encode()


def rows_of_files(ask: Ask, directory: str) -> Iterator[bytes]:
    yield str(pa.dataset.dataset(directory).to_table().num_rows).encode()
