"""Compressed data that grows beyond all limits."""

from __future__ import annotations

_BLOCK = 1 << 17


def zstd_bomb(size: int, *, declared: bool) -> bytes:
    """A zstd frame of so many zeros in blocks of one repeated byte (RFC 8878, 3.1.1): four bytes for 128 KiB."""
    window = 0x50  # 1 MiB
    header = bytes([0xC0, window]) + size.to_bytes(8, "little") if declared else bytes([0x00, window])
    block, last = ((_BLOCK << 3 | 1 << 1 | flag).to_bytes(3, "little") + b"\0" for flag in (0, 1))
    return b"\x28\xb5\x2f\xfd" + header + block * (size // _BLOCK - 1) + last
