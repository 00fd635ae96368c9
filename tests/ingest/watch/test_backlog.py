"""The backlog: the oldest first, all counted, few remembered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.ingest.watch import Backlog, Landed
from kubothek.ingest.watch.landing import LANDED

pytestmark = pytest.mark.slow

ZERO = datetime(2026, 11, 21, tzinfo=UTC)

landed = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30)


def made(found: list[tuple[int, int]]) -> list[Landed]:
    """Files by age and size, their keys in order."""
    return [Landed(f"k{i:02}", "e", size, ZERO + timedelta(days=age)) for i, (age, size) in enumerate(found)]


def backlog(files: list[Landed], limit: int, piece: int) -> Backlog:
    found = Backlog(limit=limit)
    for at in range(0, len(files), piece):
        rows = [{"key": f.key, "etag": f.etag, "size": f.size, "modified": f.modified} for f in files[at : at + piece]]
        found = found.with_more(pa.Table.from_pylist(rows, LANDED))
    return found


@given(landed, st.integers(1, 40), st.integers(1, 10), st.integers(1, 5), st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_backlog_batches_are_oldest_files_in_order_within_limits(
    found: list[tuple[int, int]], limit: int, piece: int, max_files: int, max_bytes: int
) -> None:
    files = made(found)
    waiting = backlog(files, limit, piece)
    oldest = sorted(files, key=lambda file: (file.modified, file.key))
    batches = list(waiting.batches(max_files, max_bytes))
    assert [file for batch in batches for file in batch] == oldest[:limit]
    assert all(len(b) <= max_files and (len(b) == 1 or sum(f.size for f in b) <= max_bytes) for b in batches)
    for one, other in pairwise(batches):  # no batch is cut before it must be
        assert len(one) == max_files or sum(f.size for f in one) + other[0].size > max_bytes
    assert (waiting.files, waiting.bytes) == (len(files), sum(file.size for file in files))
    assert waiting.since() == (oldest[0].modified if oldest else None)


@given(landed, st.integers(1, 40), st.data())
@settings(max_examples=50, deadline=None)
def test_backlog_excludes_processed_files(found: list[tuple[int, int]], limit: int, data: st.DataObject) -> None:
    files = made(found)
    waiting = backlog(files, limit, 7)
    remembered = waiting.oldest["key"].to_pylist()
    done = data.draw(st.sets(st.sampled_from(remembered))) if remembered else set()
    left = waiting.without(sorted(done))
    rest = [file for file in files if file.key not in done]
    assert (left.files, left.bytes) == (len(rest), sum(file.size for file in rest))
    assert left.oldest["key"].to_pylist() == [key for key in remembered if key not in done]
