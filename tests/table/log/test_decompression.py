"""Compressed heads and checkpoints: a limit that holds, whatever the frame declares."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

import kubothek
from kubothek.errors import HeadUnreadable, VersionIncomplete
from kubothek.table.log.history import rebuild as rebuilding
from kubothek.table.log.journal import Journal
from kubothek.table.log.model import head as heads
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import Head
from tests.fuzz.bombs import zstd_bomb

MIB = 1 << 20
LIMIT = 8 * MIB


@pytest.mark.parametrize("declared", [True, False])
def test_zstd_bomb_as_head_is_refused_in_bounded_memory(declared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "LARGEST", LIMIT, raising=False)
    monkeypatch.setattr(heads, "_PACKED_LIMIT", LIMIT, raising=False)  # as it was called
    bomb = zstd_bomb(256 * MIB, declared=declared)
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(HeadUnreadable, match="limit"):
            Head.parse_packed("d", bomb)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("declared", [True, False])
def test_zstd_bomb_as_checkpoint_is_refused_in_bounded_memory(
    declared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuilding, "LARGEST", LIMIT, raising=False)
    lake = kubothek.open(tmp_path.as_uri())
    dataset = lake.create_dataset("d")
    lake.store.put(keys.checkpoint("d", 1), zstd_bomb(256 * MIB, declared=declared))
    journal = Journal(lake.store, "d", clock=lambda: datetime.now(UTC), rng=Random(0))
    (record,) = dataset.history()
    tracemalloc.start()
    try:
        with pytest.raises(VersionIncomplete, match=r"checkpoints/.*limit"):
            rebuilding.rebuild(journal, record)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT
    finally:
        tracemalloc.stop()
