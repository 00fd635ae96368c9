"""What is sent to a gateway byte by byte, as no client's library would."""

from __future__ import annotations

import http.client
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LONG = 60.0
"""Seconds for what has to happen, on however busy a machine."""
_MASK = b"\1\2\3\4"


@dataclass(frozen=True)
class Told:
    """An answer; ``status`` is 0 if none came."""

    status: int
    body: bytes = b""


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LONG)


def told(port: int, data: bytes) -> Told:
    """The answer to these bytes, once it is whole; none if the connection ends without one."""
    with connected(port) as connection, suppress(OSError, http.client.HTTPException):
        with suppress(ConnectionError):  # an answer can come before all is sent
            connection.sendall(data)
        answer = http.client.HTTPResponse(connection, method=data.partition(b" ")[0].decode("latin-1"))
        answer.begin()
        return Told(answer.status, answer.read())
    return Told(0)


def left(port: int, data: bytes) -> None:
    """Send these bytes and go away, without a look at what comes."""
    with connected(port) as connection, suppress(OSError):
        connection.sendall(data)


def heard(port: int, data: bytes) -> bytes:
    """All that comes until the other side ends the connection. Raises TimeoutError if it does not."""
    found = b""
    with connected(port) as connection, suppress(ConnectionError):
        with suppress(ConnectionError):
            connection.sendall(data)
        while piece := connection.recv(65536):
            found += piece
    return found


def stalled(port: int, data: bytes) -> None:
    """Send these bytes and read nothing until the other side breaks off. Raises TimeoutError if it does not."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LONG)
        connection.connect(("127.0.0.1", port))
        connection.sendall(data)
        poll = select.poll()
        poll.register(connection, select.POLLHUP | select.POLLERR)
        if not poll.poll(LONG * 1000):
            raise TimeoutError("a client that reads nothing is not cut off")


def request(method: str, path: str, token: str | None = None, body: bytes = b"", *headers: str) -> bytes:
    """One that is well formed, but for what is in its parts."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body and not any(line.startswith(("Content-Length", "Transfer-Encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def upgrade(path: str, token: str | None = None) -> bytes:
    """The opening of a WebSocket."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: x",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]).encode()


def frame(payload: bytes, opcode: int = 1, *, last: bool = True, masked: bool = True, size: int | None = None) -> bytes:
    """A frame of a client; ``size``: another one than its payload has."""
    size = len(payload) if size is None else size
    lead = bytes([(0x80 if last else 0) | opcode])
    flag = 0x80 if masked else 0
    if size < 126:
        lead += bytes([flag | size])
    elif size < 1 << 16:
        lead += bytes([flag | 126]) + size.to_bytes(2, "big")
    else:
        lead += bytes([flag | 127]) + size.to_bytes(8, "big")
    if not masked:
        return lead + payload
    mask = (_MASK * (len(payload) // 4 + 1))[: len(payload)]
    hidden = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return lead + _MASK + hidden.to_bytes(len(payload), "big")


def open_files() -> int:
    """Of this process."""
    return len([*Path("/proc/self/fd").iterdir()])
