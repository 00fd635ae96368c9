"""The fuzzing harness itself: what it counts, and what it blames."""

from __future__ import annotations

import ctypes
import json
import time
from random import Random

import pytest

from kubothek.errors import FormatInvalid
from tests.fuzz.harness import fuzz, variant

pytestmark = pytest.mark.slow

SEEDS = (b'{"a": [1, 2, 3], "b": "text"}', b"[0.5, null, true]")


def _parse(data: bytes) -> None:
    try:
        json.loads(data)
    except ValueError as error:
        raise FormatInvalid("not JSON") from error


def _sink(data: bytes) -> None:
    """Ends in every bad way, by the first byte that `_choose` puts there."""
    match data[:1]:
        case b"0":
            ctypes.string_at(0)
        case b"1":
            bytearray(1 << 30)
        case b"2":
            time.sleep(600)
        case b"3":
            raise KeyError("lost")
        case b"4":
            bytearray(64 << 20)[::4096] = b"x" * (64 << 8)


def _choose(random: Random, data: bytes) -> bytes:
    return random.choice(b"012345").to_bytes() + data


def test_fuzz_variants_are_deterministic_and_distinct() -> None:
    variants = [variant(SEEDS, 0, index) for index in range(100)]
    assert variants == [variant(SEEDS, 0, index) for index in range(100)]
    assert len(set(variants)) > 60
    assert variants != [variant(SEEDS, 1, index) for index in range(100)]


def test_fuzz_results_and_named_errors_are_counted() -> None:
    report = fuzz(_parse, SEEDS, variants=50, soak=5000).check()
    assert report.results + report.named["FormatInvalid"] == report.variants >= 50
    assert report.named["FormatInvalid"] > 0


def test_fuzz_failure_is_attributed_to_its_variant() -> None:
    report = fuzz(_sink, [b"x"], variants=16, mutate=_choose, seed=1, memory=256 << 20, deadline=5, soak=16)
    expected = {b"0": "crash", b"1": "unnamed", b"2": "timeout", b"3": "unnamed"}
    starts = {index: variant([b"x"], 1, index, _choose)[:1] for index in range(16)}
    assert {failure.index: failure.kind for failure in report.failures} == {
        index: expected[start] for index, start in starts.items() if start in expected
    }
    assert {failure.kind for failure in report.failures} == set(expected.values())
    assert report.variants == 16
    assert 50 << 20 < report.peak < 256 << 20
    texts = " ".join(failure.text for failure in report.failures)
    assert all(text in texts for text in ("Segmentation fault", "MemoryError", "KeyError"))
    with pytest.raises(AssertionError, match=r"start=\d+, variants=1\)"):
        report.check()
