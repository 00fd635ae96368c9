"""SHA3-256 of many streams at once: several times as fast as one by one, on one core.

``sha3_multibuffer.c`` hashes the streams of one :class:`Lanes` together: four or eight at a time, depending on the
processor. Where the library is missing or does not load, ``hashlib`` hashes one by one (docs/decisions/0016-lanes.md).
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from hashlib import sha3_256
from itertools import islice
from pathlib import Path
from threading import Condition, Lock
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

Data: TypeAlias = Any
"""Contiguous bytes: any object with the buffer protocol."""
AHEAD: Final = 4 << 20
"""Bytes that wait for hashing: enough for all lanes, and small enough for the processor's caches."""
_COMPANY: Final = 0.02
"""Seconds that an ending stream waits for others to fill the lanes, while there are open streams."""
_LITTLE: Final = 1 << 18
"""Below this many bytes, hashing is faster than waiting."""
_LIBRARY: Final = Path(__file__).with_name("libsha3_multibuffer.so")
_STREAM: Final = 25 * 8 + 136 + 8
"""Bytes of ``struct stream``."""
_PIECE: Final = 3 * 8
"""Bytes of ``struct piece``."""
_DIGEST: Final = 32


def _library() -> Any | None:
    try:
        library = ctypes.CDLL(str(_LIBRARY))
        sizes = (library.lanes_stream_size(), library.lanes_piece_size())
    except (OSError, AttributeError):
        return None
    if sizes != (_STREAM, _PIECE):  # built from another source: its structs differ from those allocated here
        return None
    library.lanes_hash.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int)
    library.lanes_hash.restype = None
    return library


_NATIVE: Final = _library()
WIDTH: Final[int] = _NATIVE.lanes_width() if _NATIVE is not None else 0
"""Streams that this processor hashes at once; 0: one by one, with ``hashlib``."""


class Stream(Protocol):
    """The hash of bytes that come in pieces, from one thread at a time."""

    def update(self, data: Data) -> None:
        """Append bytes. They are kept until they are hashed, and must not change."""

    def digest(self) -> bytes:
        """Return the hash of all bytes; no update may follow."""


class Lanes:
    """Streams that are hashed together, each fed from any thread.

    Data waits until there are ``ahead`` bytes, or streams end. The thread that brought the last bytes then hashes it,
    without Python's lock: ending streams completely, all others while the lanes are full. The lanes are full if at
    least ``WIDTH`` streams have about equally many bytes.
    """

    def __init__(self, ahead: int = AHEAD, width: int = WIDTH) -> None:
        """``width``  4 or 8, at most the processor's; 0: ``hashlib``, without waiting"""
        self._ahead = ahead
        self._width = width
        self._many = width * 3 // 4
        self._changed = Condition()
        self._turn = Lock()
        self._waiting: _Waiting = {}
        self._bytes = 0
        self._going = 0
        self._ending = 0

    def stream(self, beginning: bytes = b"") -> Stream:
        """Return a new stream that starts with these bytes."""
        if not self._width:
            return sha3_256(beginning)
        stream = _Lane(self)
        with self._changed:
            self._going += 1
        if beginning:
            stream.update(beginning)
        return stream

    def digests(self, streams: Sequence[Stream]) -> list[bytes]:
        """Return the digests of several of its streams, which end together; may wait for other streams to end."""
        ending = [each for each in streams if isinstance(each, _Lane) and not each.ended]
        with self._changed:
            for each in ending:
                self._waiting.setdefault(each, []).append(None)
                each.ended = True
            self._going -= len(ending)
            self._ending += len(ending)
            if self._enough():  # else waiting threads would wake up, take Python's lock, and wait again
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._enough() or self._waiting.keys().isdisjoint(ending), _COMPANY)
        self._hash(ending)
        return [each.hashed() if isinstance(each, _Lane) else each.digest() for each in streams]

    def _feed(self, stream: _Lane, data: pa.Buffer) -> None:
        with self._changed:
            self._waiting.setdefault(stream, []).append(data)
            self._bytes += data.size
            if self._bytes < self._ahead:
                return
        self._hash([stream])

    def _enough(self) -> bool:
        """Return whether to hash now: no stream is open, enough end to fill lanes, or the data is little or much."""
        return not self._going or self._ending >= self._many or not _LITTLE < self._bytes < self._ahead

    def _hash(self, streams: Sequence[_Lane]) -> None:
        """Hash everything of these streams if they end; else hash until less waits than before."""
        with self._turn:  # a stream's pieces are hashed in order, so earlier ones must be done
            with self._changed:
                if self._waiting.keys().isdisjoint(streams):
                    return
                batch, self._waiting, self._bytes, self._ending = self._waiting, {}, 0, 0
                self._changed.notify_all()
            rest = _hash(batch, self._width, self._many)
            if sum(map(_size, rest.values())) > self._ahead // 2:  # of few streams: waiting would not fill lanes
                rest = _hash(rest, self._width)
            with self._changed:
                for stream, buffers in rest.items():
                    self._waiting[stream] = [*buffers, *self._waiting.get(stream, ())]
                    self._bytes += _size(buffers)


class _Lane:
    """A stream with its state in memory of its own."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._memory = ctypes.create_string_buffer(_STREAM)
        self.address = ctypes.addressof(self._memory)
        self.ended = False

    def update(self, data: Data) -> None:
        assert not self.ended, "nothing can follow a digest"
        buffer = pa.py_buffer(data)
        if buffer.size:  # an empty piece would mean the end
            self._lanes._feed(self, buffer)

    def digest(self) -> bytes:
        return self._lanes.digests([self])[0]

    def hashed(self) -> bytes:
        return self._memory.raw[:_DIGEST]


_Waiting: TypeAlias = dict[_Lane, list[pa.Buffer | None]]
"""The waiting pieces of each stream; None is its end."""


def digests(data: Iterable[Data]) -> list[bytes]:
    """Return the SHA3-256 of each item."""
    buffers = [pa.py_buffer(each) for each in data]
    if not WIDTH or len(buffers) < 2:
        return [sha3_256(each).digest() for each in buffers]
    lanes = Lanes()
    waiting: _Waiting = {_Lane(lanes): [each, None] if each.size else [None] for each in buffers}
    _hash(waiting, WIDTH)
    return [stream.hashed() for stream in waiting]


def _hash(waiting: _Waiting, width: int, least: int = 0) -> _Waiting:
    """Hash all ended streams, and of others as much as keeps ``least`` lanes busy; return the rest of these.

    Longest streams first, so that lanes end together.
    """
    assert _NATIVE is not None, "there are lanes only where it is"
    ordered = sorted(waiting.items(), key=lambda item: (item[1][-1] is not None, -_size(item[1])))
    pieces = array("Q")
    for stream, buffers in ordered:
        for each in buffers:
            pieces.extend((stream.address, each.address, each.size) if each is not None else (stream.address, 0, 0))
    _NATIVE.lanes_hash(pieces.buffer_info()[0], len(pieces) // 3, width, least)
    left = iter(pieces[2::3])
    rest: _Waiting = {}
    for stream, buffers in ordered:
        sized = zip(buffers, islice(left, len(buffers)), strict=True)
        if ends := [each.slice(each.size - size) for each, size in sized if each is not None and size]:
            rest[stream] = [*ends]
    return rest


def _size(buffers: Iterable[pa.Buffer | None]) -> int:
    return sum(each.size for each in buffers if each is not None)
