"""Decompression with a limit: sound data come back, damaged data are refused."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest
import zstandard

from kubothek.storage.decompressing import decompress
from kubothek.table.log.model.head import Head

LIMIT = 8 << 20
DATA = msgpack.packb({"dataset_metadata_version": 4, "dataset_uuid": "d", "metadata": {"x": "y" * 1000}})


def test_compressed_data_within_limit_is_read() -> None:
    for sized in (True, False):
        packed = zstandard.ZstdCompressor(write_content_size=sized).compress(DATA)
        assert decompress(packed, len(DATA)) == DATA
    assert Head.parse_packed("d", zstandard.compress(DATA)).metadata["x"] == "y" * 1000


@pytest.mark.parametrize("data", [b"", b"x", zstandard.compress(DATA)[:-1], zstandard.compress(DATA) + b"junk"])
def test_damaged_compressed_data_is_refused(data: bytes) -> None:
    with pytest.raises(zstandard.ZstdError):
        decompress(data, LIMIT)
