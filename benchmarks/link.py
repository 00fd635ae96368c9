"""A link of a given speed on this machine: a proxy that passes bytes on no faster, by the kernel, in user space."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 1 << 18
_BURST: Final = 0.005
"""Seconds of the link that can be made up for after a pause: timers are not exact."""


class Bucket:
    """``rate`` in bytes a second, for all connections together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = Lock()
        self._free = 0.0

    def take(self, size: int) -> None:
        """Wait until so many bytes may pass."""
        with self._lock:
            now = time.monotonic()
            self._free = max(self._free, now - _BURST) + size / self._rate
            wait = self._free - now
        if wait > 0:
            time.sleep(wait)


@contextmanager
def linked(url: str, rate: float | None) -> Iterator[str]:
    """The server's URL behind a link of so many bytes a second; None: the same URL."""
    if rate is None:
        yield url
        return
    command = [sys.executable, "-m", "benchmarks.link", str(urlsplit(url).port), str(rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None, "it is a pipe"
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def main() -> None:
    """``python -m benchmarks.link PORT RATE``: until it is told to stop; its own port is on standard output."""
    port, rate = int(sys.argv[1]), float(sys.argv[2])
    down, up = Bucket(rate), Bucket(rate)
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            for source, target, bucket in ((client, server, up), (server, client, down)):
                target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Thread(target=_pass, args=(source, target, bucket), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket, bucket: Bucket) -> None:
    reading, writing = os.pipe()
    with suppress(OSError):
        while size := os.splice(source.fileno(), writing, _PIECE):
            bucket.take(size)
            while size:
                size -= os.splice(reading, target.fileno(), size)
    for each in (reading, writing):
        os.close(each)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
