"""The ledger against a naive set: what it knows, how it grows, how much of it is read."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import VersionIncomplete
from kubothek.ingest.watch.landing import LANDED
from kubothek.ingest.watch.ledger import Ledger, Page, entries_of
from kubothek.ingest.watch.runs import ENTRIES, RunReader, merged
from tests.faultstore import FaultStore
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 21, tzinfo=UTC)

File = tuple[str, str]
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4)
files = st.tuples(names, st.sampled_from(["e1", "e2", "e3"]))


def listing(*wanted: File, size: int = 1000) -> Iterator[pa.Table]:
    ordered = sorted(wanted, key=lambda file: file[0].encode())
    for at in range(0, len(ordered), size):
        piece = ordered[at : at + size]
        rows = [{"key": key, "etag": etag, "size": 1, "modified": NOW} for key, etag in piece]
        yield pa.Table.from_pylist(rows, LANDED)


def written(ledger: Ledger, page: Page, good: Sequence[File], bad: Sequence[File] = (), reading: str = "r") -> Page:
    entries = entries_of(good, [(key, etag, "Bad: it is") for key, etag in bad], reading)
    return ledger.write(page, entries, ingested=len(good), last_file=good[-1][0] if good else "", now=NOW)


def known(ledger: Ledger, page: Page, pieces: Iterator[pa.Table], reading: str = "r") -> tuple[set[File], set[File]]:
    taken: set[File] = set()
    quarantined: set[File] = set()
    for piece, masks in ledger.known(page, pieces, reading):
        for mask, found in ((masks.ingested, taken), (masks.quarantined, quarantined)):
            hits = piece.filter(pa.array(mask))
            found |= {(row["key"], row["etag"]) for row in hits.to_pylist()}
    return taken, quarantined


@given(
    st.lists(st.lists(files, min_size=1, max_size=6, unique=True), max_size=8), st.lists(files, max_size=20), st.data()
)
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
def test_ingestion_ledger_knows_exactly_written_entries(
    batches: list[list[File]], others: list[File], data: st.DataObject
) -> None:
    ledger, page = Ledger(MemoryStore(), "u", "s", random.Random(1)), Page()
    good: set[File] = set()
    bad: set[File] = set()
    for batch in batches:
        cut = data.draw(st.integers(0, len(batch)))
        page = written(ledger, page, batch[:cut], batch[cut:])
        good |= set(batch[:cut])
        bad |= set(batch[cut:])
    asked = {key: (key, etag) for key, etag in [*others, *good, *bad]}.values()  # a listing has each key once
    size = data.draw(st.integers(1, 30))
    taken, quarantined = known(ledger, page, listing(*asked, size=size))
    assert taken == good & set(asked)
    assert quarantined == (bad - good) & set(asked)
    assert known(ledger, page, listing(*asked, size=size), reading="other") == (taken, set())
    assert ledger.page(page.key or None) == page
    assert sum(run.entries for run in page.runs) == sum(map(len, batches))


@given(st.lists(st.lists(names, max_size=8), max_size=4), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_merge_of_sorted_runs_yields_one_sorted_stream(lists: list[list[str]], size: int) -> None:
    def stream(keys: list[str]) -> Iterator[pa.Table]:
        ordered = sorted(keys, key=str.encode)
        for at in range(0, len(ordered), size):
            part = ordered[at : at + size]
            yield pa.table({"key": part, "etag": part, "error": [None] * len(part), "reading": part}, schema=ENTRIES)

    out = [key for piece in merged([stream(keys) for keys in lists]) for key in piece["key"].to_pylist()]
    assert out == sorted((key for keys in lists for key in keys), key=str.encode)


def test_ingestion_ledger_run_count_and_work_grow_logarithmically() -> None:
    store = FaultStore(MemoryStore())
    ledger, page, batches = Ledger(store, "u", "s", random.Random(1)), Page(), 200
    rewritten = 0
    for batch in range(batches):
        page = written(ledger, page, [(f"{batch:03}-{i}", "e") for i in range(5)])
        rewritten += page.runs[-1].entries
        assert len(page.runs) <= 1 + (5 * (batch + 1)).bit_length()
    assert sum(run.entries for run in page.runs) == 5 * batches == page.files
    assert rewritten <= 5 * batches * (1 + batches.bit_length())


def test_ingestion_ledger_reads_only_row_groups_in_listed_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.watch.runs._GROUP_ROWS", 10)
    store = MemoryStore()
    ledger = Ledger(store, "u", "s", random.Random(1))
    page = written(ledger, Page(), [(f"{i:03}", "e") for i in range(100)])
    reader = RunReader(store, page.runs[0])
    assert [piece["key"][0].as_py() for piece in reader.between("035", "052")] == ["030", "040", "050"]
    assert next(reader.between("0355", "0356"))["key"][0].as_py() == "030"
    assert list(reader.between("999", "9999")) == []
    taken, _ = known(ledger, page, listing(("035", "e"), ("036", "new"), ("999", "e")))
    assert taken == {("035", "e")}


def test_ledger_run_longer_than_row_group_is_merged_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.watch.runs._GROUP_ROWS", 7)
    ledger, page = Ledger(MemoryStore(), "u", "s", random.Random(1)), Page()
    everything = [(f"{i * 37 % 100:02}", "e") for i in range(100)]
    for at in range(0, 100, 9):
        page = written(ledger, page, everything[at : at + 9])
    taken, _ = known(ledger, page, listing(*everything, size=13))
    assert taken == set(everything)
    assert (page.runs[0].first, page.files, page.batch) == ("00", 100, 12)


def test_ledger_page_is_readable_as_plain_parquet() -> None:
    store = MemoryStore()
    page = written(Ledger(store, "u", "s", random.Random(1)), Page(), [("a", "1")], [("b", "2")])
    assert page.key.startswith(".kubothek/u/intake/s/00000000000000000001-")
    table = next(RunReader(store, page.runs[0]).pieces())
    assert table.to_pylist() == [
        {"key": "a", "etag": "1", "error": None, "reading": None},
        {"key": "b", "etag": "2", "error": "Bad: it is", "reading": "r"},
    ]


@pytest.mark.parametrize("data", [None, b"{}", b"no json", b'{"format": 2}'])
def test_ledger_page_that_is_missing_or_damaged_raises_error(data: bytes | None) -> None:
    store = MemoryStore()
    if data is not None:
        store.put("page", data)
    with pytest.raises(VersionIncomplete, match="page"):
        Ledger(store, "u", "s", random.Random(1)).page("page")


def test_quarantine_listing_reads_only_row_groups_with_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubothek.ingest.watch.runs._GROUP_ROWS", 10)
    store = MemoryStore()
    ledger = Ledger(store, "u", "s", random.Random(1))
    page = written(ledger, Page(), [(f"{i:02}", "e") for i in range(40)], [("15x", "e")])
    assert list(ledger.quarantine(page)) == [("15x", "Bad: it is")]
    assert len(list(RunReader(store, page.runs[0]).with_errors())) == 1


def test_ledger_comparison_memory_is_independent_of_ingested_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.ingest.watch.runs._GROUP_ROWS", 2_000)

    def peak(count: int) -> int:
        files = [(f"landing/{i:09}", f"{i:032x}") for i in range(count)]
        ledger, page = Ledger(MemoryStore(), "u", "s", random.Random(1)), Page()
        for at in range(0, count, 5_000):
            page = written(ledger, page, files[at : at + 5_000])
        pieces = (next(listing(*files[at : at + 500])) for at in range(0, count, 500))
        gc.collect()  # what other tests left would be freed on the way, and hide what is measured
        before, most, found = pa.total_allocated_bytes(), 0, 0
        for _, masks in ledger.known(page, pieces, "r"):
            found += int(masks.ingested.sum())
            most = max(most, pa.total_allocated_bytes() - before)
        assert found == count
        return most

    assert peak(40_000) < 1.5 * peak(10_000)
