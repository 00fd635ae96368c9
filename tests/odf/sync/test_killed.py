"""Whoever takes a chain dies before any write to it: the next try goes on, and nothing that arrived is sent again.

What becomes of the writes of the commit itself is told by the tests of commits and of ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kubothek.errors import LakeError
from kubothek.odf import read_chain
from kubothek.odf.dataset import Table
from kubothek.odf.sync import Progress, Reach, Web, WebRepository, pull
from kubothek.odf.sync.smart.pushing import push_smart
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.retry import RetryPolicy
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import WRITES, Call, Crash, Fault, FaultStore
from tests.gateway.running import WRITER, Running, running
from tests.odf.dataset.planes import LAYOUT, LEDGER, UUID, made, opened, push, sound, table
from tests.odf.sync.static import static

pytestmark = pytest.mark.slow

HASTY = RetryPolicy(unreachable=0.1, troubled=0.1, silence=5.0)
SLICES = 2
CHAIN = keys.chain(UUID)


@pytest.fixture
def giver(other: Store) -> Store:
    """With a chain of two slices."""
    made(other, LEDGER)
    for number in range(SLICES):
        push(other, {number: f"model {number}"})
    return other


def empty(root: Path, name: object) -> Store:
    """A store for one more try."""
    (root / f"{name}").mkdir()
    return open_store(StoreConfig((root / f"{name}").as_uri()))


def crashes(calls: list[Call]) -> Iterator[Fault]:
    """One before each write of blocks, slices and the head."""
    for number in range(sum(call.name in WRITES and CHAIN in call.key for call in calls)):
        yield Fault(WRITES, number + 1, CHAIN)


def arrived(store: Store) -> set[str]:
    """What of a chain is in a store, by its path below the chain."""
    return {info.key.removeprefix(CHAIN) for kind in ("blocks", "data") for info in store.list(f"{CHAIN}{kind}/")}


def same(store: Store, giver: Store) -> None:
    """The chain and its rows are what they are at the giver's."""
    assert opened(store).state == opened(giver).state
    sound(store)
    assert table(store) == table(giver)


def test_pull_after_crash_of_client_resumes_without_refetch(giver: Store, tmp_path: Path) -> None:
    def pulled(store: Store) -> set[str]:
        with static(giver) as web:
            theirs = WebRepository(Web(web.url, patience=HASTY))
            pull(store, DatasetLog(store, UUID), theirs, table=Table(), at_once=1)
            return {*web.asked} - {"refs/head"}

    counting = FaultStore(empty(tmp_path, "counting"))
    everything = pulled(counting)
    assert arrived(counting.inner) == everything
    for number, fault in enumerate(crashes(counting.calls)):
        store = empty(tmp_path, number)
        with pytest.raises(Crash):
            pulled(FaultStore(store, fault))
        before = arrived(store)
        assert pulled(store) == everything - before, fault
        same(store, giver)


def test_push_after_crash_of_gateway_resumes_without_resend(giver: Store, tmp_path: Path) -> None:
    """The gateway dies, with all that it has in its memory."""

    heard: list[Progress] = []

    def pushed(gateway: Running) -> None:
        web = Web(gateway.url(), Reach(token=WRITER, objects_at_once=1), HASTY)
        blocks = read_chain(giver, LAYOUT)
        push_smart(web, giver, LAYOUT, blocks, None, force=False, told=heard.append)

    def sent(gateway: Running) -> set[str]:
        put = (line["path"] for line in gateway.lines if (line["method"], line["status"]) == ("PUT", 200))
        return {path.removeprefix(f"/{UUID}/") for path in put}

    counting = FaultStore(empty(tmp_path, "counting"))
    with running(counting) as gateway:
        pushed(gateway)
        everything = sent(gateway)
    assert len(everything) == SLICES
    for number, fault in enumerate(crashes(counting.calls)):
        store = empty(tmp_path, number)
        with suppress(LakeError), running(FaultStore(store, fault)) as gateway:
            pushed(gateway)
        before = arrived(store)
        with running(store) as gateway:
            theirs = DatasetLog(store, UUID).settled()
            if theirs is None:
                heard.clear()
                pushed(gateway)
                assert all((each.objects, each.bytes) <= (each.objects_total, each.bytes_total) for each in heard)
                assert not heard or (heard[-1].objects, heard[-1].bytes) == (SLICES, heard[-1].bytes_total)
            assert sent(gateway) == everything - before, fault
        same(store, giver)
