"""Issue 10: requests that are malformed, truncated, oversized, slow or not allowed. No crash, no leak, nothing served.

300 of them; ``KUBOTHEK_SOAK=1`` (``make soak``) sends 10,000.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from kubothek.odf import Layout, verify
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.gateway.hostile import KINDS
from tests.gateway.siege import besieged
from tests.odf.dataset.planes import LEDGER, UUID, made, opened, push, sound

pytestmark = pytest.mark.slow

MANY: Final = 10_000 if os.environ.get("KUBOTHEK_SOAK") else 300
_THREADS: Final = 32
"""Of the gateway; they stay."""
_GROWTH: Final = 48 << 20
"""Bytes of memory within which a process that leaks nothing wavers: less than two answers of the largest kind."""


@pytest.mark.timeout(7200 if os.environ.get("KUBOTHEK_SOAK") else 600)
def test_hostile_requests_cause_no_crash_leak_or_change(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path.as_uri())
    store = open_store(config)
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    pull(store, DatasetLog(store, "copy"), StoreRepository(store, Layout(keys.chain(UUID))))
    head = opened(store).state.head

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        outcome = process.submit(besieged, config, MANY).result()

    before, after, seen = outcome.before, outcome.after, outcome.seen
    print(f"\n{MANY:,} hostile requests: {dict(sorted(seen.items()))}\nbefore {before}\nafter  {after}")
    assert after.within(before)
    assert after.objects < before.objects + 20_000
    assert after.memory < before.memory + _GROWTH
    assert after.pool <= _THREADS
    assert min(seen[kind.__name__] for kind in KINDS) >= MANY // len(KINDS)
    assert {"101", "200", "400", "401", "403", "413"} <= seen.keys()
    assert outcome.head == str(head).encode()
    sound(store)
    if DatasetLog(store, "fresh").settled() is not None:  # some changes of some bytes leave a sound chain
        assert verify(store, Layout(keys.chain("fresh"))).sound
