"""Answers of servers into memory that each thread keeps: fresh memory for a piece costs as much as to receive it."""

from __future__ import annotations

from http.client import HTTPResponse
from threading import local
from typing import cast

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

from kubothek.odf.sync.repository import PIECE


class _Memory(local):
    """A thread's. Not a connection's: that goes to another thread as soon as all of an answer was read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(PIECE))


_memory = _Memory()


class _Answer(HTTPResponse):
    """Its ``read1`` gives a view, which holds until the thread reads the next one."""

    def read1(self, n: int = -1) -> bytes:
        if self.fp is None or self.chunked or self.length is None or n <= 0:
            return super().read1(n)
        view = _memory.view[: min(n, self.length)]
        size = self.fp.readinto1(view)
        self.length -= size
        if not size or not self.length:
            self.close()
        return cast("bytes", view[:size]) if size else b""


class _Connection(HTTPConnection):
    response_class = _Answer


class _TlsConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def into_kept_memory(pools: PoolManager) -> PoolManager:
    """The same pools, with answers whose ``read1`` gives views, each of which holds until its thread reads the next."""
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return pools
