"""SHA3-256 of many streams at once: always what ``hashlib`` says, on every way that this processor has."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha3_256
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.storage import sha3_multibuffer
from kubothek.storage.sha3_multibuffer import WIDTH, Lanes
from tests.odf.values import examples

RATE: Final = 136
"""Bytes of a block of SHA3-256."""
WIDTHS: Final = [width for width in (0, 4, 8) if width <= WIDTH]
BYTES: Final = random.Random(1).randbytes(1 << 16)


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def together(data: Sequence[bytes], cuts: Sequence[Sequence[int]], width: int, ahead: int) -> list[bytes]:
    """The digests of streams that come in turns, each cut where it is said."""
    hashed = Lanes(ahead, width)
    streams = [hashed.stream(each[:1]) for each in data]
    places = [[1, *sorted(each), len(one)] for one, each in zip(data, cuts, strict=True)]
    for turn in range(max((len(each) for each in places), default=0) - 1):
        for stream, one, each in zip(streams, data, places, strict=True):
            if turn + 1 < len(each):
                stream.update(one[each[turn] : each[turn + 1]])
    return hashed.digests(streams)


def test_sha3_of_lengths_around_block_boundaries_matches_hashlib(width: int) -> None:
    """From none to three blocks and some, in one piece, at a byte, and around each end of a block."""
    data = [BYTES[:size] for size in range(3 * RATE + 10)]
    expected = [sha3_256(each).digest() for each in data]
    for ahead in (1, 1 << 20):
        for at in (0, 1, 7, RATE - 1, RATE, RATE + 1, 2 * RATE):
            assert together(data, [[min(at, len(each))] * (at > 0) for each in data], width, ahead) == expected
    assert sha3_multibuffer.digests(data) == expected


@examples(60, 2000)
@given(data=st.data())
def test_sha3_of_random_streams_and_pieces_matches_hashlib(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 20))
    sizes = st.one_of(st.integers(0, 4 * RATE), st.sampled_from([20 * RATE, 20 * RATE + 1, 9_999]))
    starts = st.integers(0, len(BYTES) - 10_000)
    ones = [BYTES[(start := data.draw(starts)) : start + data.draw(sizes)] for _ in range(count)]
    cuts = [data.draw(st.lists(st.integers(1, max(1, len(one))), max_size=4)) for one in ones]
    ahead = data.draw(st.sampled_from([1, 500, 5_000, 1 << 20]))
    expected = [sha3_256(each).digest() for each in ones]
    for width in WIDTHS:
        assert together(ones, cuts, width, ahead) == expected
    assert sha3_multibuffer.digests(ones) == expected


def test_sha3_accepts_every_buffer_type(width: int) -> None:
    made: list[Any] = [b"abc", bytearray(b"abc"), memoryview(b"xabcx")[1:4], np.frombuffer(b"abc", np.uint8)]
    made.append(pa.py_buffer(b"abc"))
    assert set(sha3_multibuffer.digests(made)) == {sha3_256(b"abc").digest()}
    stream = Lanes(width=width).stream()
    for each in made:
        stream.update(each)
    assert stream.digest() == stream.digest() == sha3_256(b"abc" * len(made)).digest()


def test_sha3_lanes_are_shared_by_concurrent_threads(width: int) -> None:
    """Each with streams of its own, long ones and short ones, more of them than there are lanes."""
    hashed = Lanes(10_000, width)

    def hash_some(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(20):
            data = BYTES[: chance.choice([0, 1, RATE, 5_000, 40_000])]
            stream, start = hashed.stream(), 0
            while start < len(data):
                size = chance.randrange(1, 3_000)
                stream.update(data[start : start + size])
                start += size
            assert stream.digest() == sha3_256(data).digest()

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(hash_some, range(10)))


@pytest.mark.parametrize("width", [width for width in WIDTHS if width])
def test_finished_sha3_stream_leaves_others_waiting_for_full_lanes(width: int) -> None:
    """They are kept, and hashed from where they were left, once more streams have come."""
    hashed, kept = Lanes(1 << 20, width), [bytearray(BYTES) for _ in range(2 * width)]
    short, *others = [hashed.stream() for _ in range(1 + len(kept))]
    short.update(bytes(3 * RATE))
    for stream, data in list(zip(others, kept, strict=True))[:2]:
        stream.update(data)
    assert short.digest() == sha3_256(bytes(3 * RATE)).digest()
    assert [is_held(data) for data in kept] == [True] * 2 + [False] * (len(kept) - 2)
    for stream, data in list(zip(others, kept, strict=True))[2:]:
        stream.update(data)
    assert hashed.digests(others) == [sha3_256(BYTES).digest()] * len(kept)
    assert not any(map(is_held, kept))


def test_few_sha3_streams_buffer_bounded_bytes(width: int) -> None:
    """They never fill the lanes, and nothing else comes."""
    ahead, given = 10_000, list[bytearray]()
    hashed = Lanes(ahead, width)
    streams = [hashed.stream() for _ in range(2)]
    for number in range(40):
        given.append(bytearray(BYTES[:1_000]))
        streams[number % 2].update(given[-1])
        assert sum(map(is_held, given)) * 1_000 <= ahead
    assert hashed.digests(streams) == [sha3_256(BYTES[:1_000] * 20).digest()] * 2


def is_held(data: bytearray) -> bool:
    """Whether anybody has a view of it."""
    try:
        data.append(0)
    except BufferError:
        return True
    data.pop()
    return False


def test_sha3_without_native_library_uses_hashlib(tmp_path: Path) -> None:
    """A wheel of a machine without a compiler, what no loader takes, or a library with structs of another size."""
    source = Path(sha3_multibuffer.__file__)
    built = source.with_name("libsha3_multibuffer.so").read_bytes() if sha3_multibuffer.WIDTH else None
    other = source.read_text().replace("_STREAM: Final = 25", "_STREAM: Final = 26")
    cases = {"without": (source.read_text(), None), "broken": (source.read_text(), b"no library")}
    for name, (code, library) in (cases | {"other": (other, built)}).items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "sha3_multibuffer.py").write_text(code)
        if library is not None:
            (tmp_path / name / "libsha3_multibuffer.so").write_bytes(library)
        script = (
            "import sha3_multibuffer as lanes; made = lanes.Lanes();"
            "streams = [made.stream(b'a'), made.stream()]; streams[1].update(b'b');"
            "print(lanes.WIDTH, *(each.hex() for each in made.digests(streams) + lanes.digests([b'a', b'b'])))"
        )
        command = [sys.executable, "-c", script]
        found = subprocess.run(command, cwd=tmp_path / name, capture_output=True, text=True, check=True).stdout.split()
        one, two = (sha3_256(each).hexdigest() for each in (b"a", b"b"))
        assert found == ["0", one, two, one, two]
