"""Frames between a worker process and its caller: a kind, a size and bytes; errors as JSON."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kubothek import errors
from kubothek.errors import LakeError

_HEAD: Final = struct.Struct("<cI")
LARGEST: Final = 1 << 20
"""Maximum bytes of a frame of the stream; larger payloads are sent in several."""
EXIT_OF_WORKER: Final = struct.Struct("<iq")
"""Reply of the zygote: the exit status of a worker, and its peak of resident memory in bytes."""


class Bounds(NamedTuple):
    """Limits of a worker: bytes of memory, seconds, and whether it maps files."""

    memory: int
    seconds: float | None
    maps_files: bool


class WorkerFailed(Exception):
    """The function raised an error other than a LakeError; the message is its traceback."""


def send(connection: socket.socket, kind: bytes, payload: bytes | memoryview) -> None:
    """Send a frame; two system calls, without a copy of the payload."""
    connection.sendall(_HEAD.pack(kind, len(payload)))
    connection.sendall(payload)


def receive(connection: socket.socket, most: int) -> tuple[bytes, bytes]:
    """Return the next frame. Raise TimeoutError, or ConnectionResetError at the end."""
    kind, size = _HEAD.unpack(_exactly(connection, _HEAD.size))
    if size > most:
        raise WorkerFailed(f"a worker sent a frame of {size} bytes; it may have {most}")
    return kind, bytes(_exactly(connection, size))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    left = memoryview(data)
    while left:
        count = connection.recv_into(left)
        if not count:
            raise ConnectionResetError("the other side has hung up")
        left = left[count:]
    return data


def pickled(call: Callable[[], Any]) -> bytes:
    """Return the pickled result of a call, or the LakeError that it raises: (value, None) or (None, JSON)."""
    try:
        return pickle.dumps((call(), None))
    except LakeError as error:
        return pickle.dumps((None, error_to_json(error)))


def error_to_json(error: BaseException, message: str | None = None) -> dict[str, Any]:
    """Return class, message and plain attributes of an error."""
    more = {key: value for key, value in vars(error).items() if isinstance(value, str | int | float | None)}
    return {"class": type(error).__name__, "message": str(error) if message is None else message, "more": more}


def error_from_json(found: Any) -> LakeError | None:
    """Return the LakeError of :func:`error_to_json`; None for another class. An attacker may have made the JSON."""
    kind = getattr(errors, str(found["class"]), None)
    if not (isinstance(kind, type) and issubclass(kind, LakeError)):
        return None
    error = kind.__new__(kind)
    Exception.__init__(error, found["message"])
    vars(error).update(found["more"])
    return error
