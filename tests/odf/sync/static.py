"""A plain web server over the files of a store, which notes what is asked of it, and can be told to fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.log.model import keys


class Static:
    """``store`` below ``/``.

    ``asked``   paths, in the order in which they were asked for
    ``sent``    bytes of bodies
    ``change``  makes another body of one, by path
    ``cut``     after how many bytes of a body the connection breaks, by path, for one answer after the other
    ``dies``    after so many requests no more is answered
    ``states_sizes``  whether answers to HEAD have a length
    """

    def __init__(self, store: Store, root: str = "") -> None:
        self.asked: list[str] = []
        self.sent = 0
        self.ranges = 0
        self.change: Callable[[str, bytes], bytes] = lambda path, body: body
        self.cut: dict[str, list[int]] = {}
        self.dies: int | None = None
        self.states_sizes = True
        static = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.removeprefix("/")
                static.asked.append(path)
                if static.dies is not None and len(static.asked) > static.dies:
                    self.close_connection = True
                    return
                try:
                    body = static.change(path, store.get(root + path))
                except ObjectNotFound:
                    self.answer(404, b"")
                    return
                cut = static.cut[path].pop(0) if static.cut.get(path) else None
                if (wanted := self.headers.get("Range")) is not None:
                    static.ranges += 1
                    self.answer(206, body[int(wanted.removeprefix("bytes=").removesuffix("-")) :], cut)
                    return
                self.answer(200, body, cut)

            def do_HEAD(self) -> None:
                try:
                    size = store.stat(root + self.path.removeprefix("/")).size
                except ObjectNotFound:
                    self.answer(404, b"")
                    return
                self.send_response(200)
                if static.states_sizes:
                    self.send_header("Content-Length", str(size))
                self.end_headers()

            def answer(self, status: int, body: bytes, cut: int | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                part = body if cut is None else body[:cut]
                static.sent += len(part)
                self.wfile.write(part)
                if cut is not None:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def kinds(self) -> list[str]:
        """The directories that were asked for."""
        return [path.partition("/")[0] for path in self.asked]


@contextmanager
def static(store: Store, uuid: str = "planes") -> Iterator[Static]:
    """What a ledger of the store keeps below ``.kubothek/<uuid>/odf/``, as it lies there."""
    web = Static(store, keys.chain(uuid))
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield web
    finally:
        web.server.shutdown()
        thread.join()
        web.server.server_close()
