"""Decompression with a limit that holds whatever the compressed data declares."""

from __future__ import annotations

import io
from typing import Final

import zstandard

_CHUNK: Final = 1 << 20
_LARGEST_WINDOW: Final = 1 << 27
"""What zstd itself accepts by default."""


def decompress(data: bytes, limit: int) -> bytes:
    """Return what zstd data holds. Raises zstandard.ZstdError if it is damaged or holds more than ``limit`` bytes.

    A frame may declare its size, and the one-shot interface then allocates that size and ignores its own limit. This
    reads a stream in chunks, so that memory grows with what is really there. Data that is cut off is recognised by the
    declared size only: without one, what was read is returned.
    """
    declared = zstandard.frame_content_size(data)
    if declared > limit:
        raise zstandard.ZstdError(f"it declares {declared} bytes, more than the limit of {limit} bytes")
    found = io.BytesIO()
    decompressor = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    with decompressor.stream_reader(data, read_across_frames=False) as stream:
        while chunk := stream.read(_CHUNK):
            if found.tell() + len(chunk) > limit:
                raise zstandard.ZstdError(f"it holds more than the limit of {limit} bytes")
            found.write(chunk)
    if found.tell() < declared:
        raise zstandard.ZstdError(f"it is cut off: {found.tell()} of {declared} bytes")
    return found.getvalue()
