"""An engine in a process of its own, with its own versions of packages."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from tests.engines.packages import DUCKDB, POLARS, RUST, SPARK, installed
from tests.engines.reads import READERS, Read

PACKAGES = {"pyiceberg": (), "polars": POLARS, "duckdb": DUCKDB, "rust": RUST, "spark": SPARK}


class ReadFailed(Exception):
    """An engine could not read a table."""


class Engine:
    """Reads tables; a context manager. The process starts at the first read."""

    def __init__(self, name: str) -> None:
        self.name = name
        packages = PACKAGES[name]
        first = [str(installed(packages))] if packages else []
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, spawn, initializer=_start, initargs=(first,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.shutdown()

    def read(self, read: Read) -> pa.Table:
        """Return what the engine reads. Raises ReadFailed."""
        return self.start(read).result()

    def start(self, read: Read) -> Future[pa.Table]:
        """Begin a read, while others go on."""
        return self._process.submit(_read, self.name, read)

    def count(self, read: Read) -> int:
        """Return the number of rows that the engine counts."""
        return int(self.read(read)[0][0].as_py())


def _start(first: list[str]) -> None:
    sys.path[:0] = first


def _read(name: str, read: Read) -> pa.Table:
    try:
        found: pa.Table = READERS[name](read)
    except Exception as error:  # noqa: BLE001 - those of some engines cannot be sent to another process
        raise ReadFailed(f"{name} failed at {read}: {error}") from None
    return found
