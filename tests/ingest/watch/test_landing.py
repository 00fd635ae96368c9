"""Which objects are files that landed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubothek.ingest.watch import Landing
from kubothek.storage import ObjectInfo
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow


def holds(landing: Landing, key: str, size: int = 1) -> bool:
    return landing.holds(ObjectInfo(key, size, "e", datetime(2026, 1, 1, tzinfo=UTC)))


def test_landing_glob_with_many_stars_matches_in_bounded_time() -> None:
    pattern = Landing.of(glob="in/" + "**/" * 20 + "*.csv").pattern
    assert pattern is not None
    assert pattern.fullmatch("in/" + "a/" * 40 + "x.txt") is None
    assert pattern.fullmatch("in/" + "a/" * 40 + "x.csv") is not None


@pytest.mark.parametrize(
    ("glob", "prefix", "taken", "left"),
    [
        ("in/*.csv", "in/", ["in/a.csv", "in/é.csv"], ["in/a.csv.gz", "in/x/a.csv", "in/acsv"]),
        ("in/**/*.csv", "in/", ["in/a.csv", "in/x/a.csv", "in/x/y/a.csv"], ["in/x/a.json"]),
        ("in/**", "in/", ["in/a", "in/x/y"], []),
        ("in/day-??/x", "in/day-", ["in/day-01/x"], ["in/day-1/x", "in/day-/1/x"]),
        ("in/a+(b).csv", "in/a+(b).csv", ["in/a+(b).csv"], ["in/aa(b).csv", "in/ab.csv"]),
        ("*", "", ["a"], ["x/a"]),
    ],
)
def test_landing_glob_follows_shell_semantics(glob: str, prefix: str, taken: list[str], left: list[str]) -> None:
    landing = Landing.of(glob=glob)
    assert landing.prefix == prefix
    assert all(holds(landing, key) for key in taken)
    assert not any(holds(landing, key) for key in left)


@pytest.mark.parametrize(
    "key",
    [
        "in/_SUCCESS",
        "in/.hidden",
        "in/_temporary/0/part-0.csv",
        "in/x/.part-0.crc",
        "in/a.csv.tmp",
        "in/a.csv.part",
        "in/a.csv._COPYING_",
        "in/a//b.csv",
        "in/../b.csv",
        "in/\udc80.csv",
    ],
)
def test_markers_temporary_files_and_invalid_names_are_not_landed_files(key: str) -> None:
    assert not holds(Landing.of("in/"), key)


def test_hidden_files_are_judged_below_prefix() -> None:
    assert holds(Landing.of("_in/.x/"), "_in/.x/a.csv")
    assert holds(Landing.of("_in/part-"), "_in/part-1")
    assert not holds(Landing.of("_in/_part-"), "_in/_part-1")


def test_object_without_bytes_is_not_landed_file() -> None:
    assert not holds(Landing.of("in/"), "in/a.csv", size=0)


def test_objects_written_by_kubothek_are_not_landed_files() -> None:
    landing = Landing.of("", foreign=("flights/",))
    assert not holds(landing, "flights/table/x.parquet")
    assert not holds(landing, ".kubothek/flights/commits/x.json")
    assert holds(landing, "flights-of-others/x.parquet")


def test_listing_returns_pieces_in_utf8_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.watch.landing._PIECE", 3)
    store = MemoryStore()
    keys = ["in/a", "in/b", "in/ä", "in/\uffff", "in/\U0001f600", "in/z", "in/_no"]
    for key in keys:
        store.put(key, b"x")
    pieces = list(Landing.of("in/").listed(store))
    assert [piece.num_rows for piece in pieces] == [3, 3]
    assert [key for piece in pieces for key in piece["key"].to_pylist()] == sorted(keys[:6], key=str.encode)
