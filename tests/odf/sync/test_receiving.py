"""Answers are read into memory that stays: whatever else is read meanwhile, no byte of one is another's."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import urllib3

from kubothek.odf.sync.connections import into_kept_memory
from kubothek.odf.sync.repository import PIECE
from tests.webserver import Fault, Web, web

pytestmark = pytest.mark.slow

__all__ = ["web"]

BODY = random.Random(1).randbytes(3 * PIECE + 77)
MOMENT = 0.05
"""Seconds in which what was sent has arrived."""


@pytest.fixture
def pools() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(maxsize=1) as pools:
        yield into_kept_memory(pools)


def asked(pools: urllib3.PoolManager, url: str, method: str = "GET") -> urllib3.BaseHTTPResponse:
    return pools.request(method, url, preload_content=False, retries=False)


def pieces(answer: urllib3.BaseHTTPResponse, size: int = PIECE) -> Iterator[bytes]:
    while piece := answer.read1(size, decode_content=False):
        yield piece


@pytest.mark.parametrize("size", [0, 1, 8_191, 8_192, 8_193, PIECE - 1, PIECE, PIECE + 1, len(BODY)])
@pytest.mark.parametrize("most", [1_000, PIECE, 2 * PIECE])
def test_response_body_is_received_exactly_once(web: Web, pools: urllib3.PoolManager, size: int, most: int) -> None:
    url = web.put("/it", BODY[:size])
    for _ in range(2):  # by one connection
        answer = asked(pools, url)
        assert b"".join(bytes(each) for each in pieces(answer, most)) == BODY[:size]
        answer.release_conn()


def test_response_piece_is_view_of_reused_buffer(web: Web, pools: urllib3.PoolManager) -> None:
    answer = asked(pools, web.put("/it", BODY))
    first, second = answer.read1(1_000, False), answer.read1(1_000, False)
    assert isinstance(first, memoryview)
    assert bytes(first) == bytes(second) == BODY[1_000:2_000]
    answer.close()


def test_last_piece_is_not_overwritten_by_reused_connection(web: Web, pools: urllib3.PoolManager) -> None:
    """It is free for others as soon as that was read, and the piece has still to be written."""
    mine, others = web.put("/mine", b"m" * 1_000), web.put("/others", b"o" * 1_000)
    last = asked(pools, mine).read1(PIECE, False)
    with ThreadPoolExecutor(1) as other:
        found = other.submit(lambda: bytes(asked(pools, others).read1(PIECE, False))).result()
    assert (bytes(last), found) == (b"m" * 1_000, b"o" * 1_000)
    assert pools.connection_from_url(mine).num_connections == 1


def test_broken_connection_returns_bytes_received_before_failure(web: Web, pools: urllib3.PoolManager) -> None:
    url = web.put("/it", BODY)
    web.faults["/it"] = [Fault(after=2 * PIECE + 5, stalls=MOMENT)]
    answer, came = asked(pools, url), bytearray()

    def read() -> None:
        for piece in pieces(answer):
            came.extend(piece)

    with pytest.raises(urllib3.exceptions.HTTPError):
        read()
    assert came == BODY[: 2 * PIECE + 5]
    answer.release_conn()


def test_response_without_length_or_body_is_read_normally(web: Web, pools: urllib3.PoolManager) -> None:
    url = web.put("/it", b"5\r\nhello\r\n0\r\n\r\n", Transfer_Encoding="chunked")
    assert b"".join(bytes(each) for each in pieces(asked(pools, url))) == b"hello"
    assert asked(pools, web.put("/none", b"", status=204)).read1(10, False) == b""
    assert asked(pools, web.put("/whole", BODY)).read() == BODY


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "aws-chunked", "unknown"])
def test_encoded_response_with_known_encoding_is_decoded(web: Web, pools: urllib3.PoolManager, encoding: str) -> None:
    """S3 tells of aws-chunked, with which objects came to it, and gives them out plain."""
    encodings: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    encode = encodings.get(encoding, bytes)
    answer, came = asked(pools, web.put("/it", encode(BODY), Content_Encoding=encoding)), bytearray()
    while piece := answer.read1(PIECE, True):
        came += piece
    assert came == BODY
