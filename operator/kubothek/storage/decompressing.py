"""Decompression with a limit that holds regardless of the size that the compressed data declares."""

from __future__ import annotations

import io
from typing import Final

import zstandard

_CHUNK: Final = 1 << 20
_LARGEST_WINDOW: Final = 1 << 27
"""zstd's own default limit of the window."""


def decompress(data: bytes, limit: int) -> bytes:
    """Return the decompressed zstd data. Raises zstandard.ZstdError if damaged or larger than ``limit`` bytes.

    A frame may declare its size; the one-shot interface then allocates that size and ignores its own limit. This
    function reads a stream in chunks, so that memory grows with the real data. Only the declared size reveals truncated
    data: without it, the data read so far is returned.
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
