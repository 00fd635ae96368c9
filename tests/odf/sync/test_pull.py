"""TP-02 … TP-05, SH-01, SH-03: pulling by the simple protocol, from a web server that knows nothing of datasets."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kubothek.errors import ChainCorrupt, DatasetNotFound, Diverged, InputError, LakeError, StoreUnavailable
from kubothek.odf import Layout, Multihash, OwnerKey, verify
from kubothek.odf.dataset import Root, Table, create
from kubothek.odf.spec.events import DisablePushSource
from kubothek.odf.sync import Pulled, Relation, StoreRepository, Web, WebRepository, pull
from kubothek.storage import Store
from kubothek.storage.retry import RetryPolicy
from kubothek.table.layout import Layout as TableLayout
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.scan.read import scan
from tests.odf.dataset.planes import APPEND, LEDGER, UUID, begun, made, opened, planes, push, sound, source, table
from tests.odf.sync.chains import forged
from tests.odf.sync.static import Static, static

pytestmark = pytest.mark.slow

ROUNDS = 200 if os.environ.get("KUBOTHEK_SOAK") else 6
HASTY = RetryPolicy(unreachable=0.1, troubled=0.1, silence=5.0)


@pytest.fixture
def web(other: Store) -> Iterator[Static]:
    made(other, LEDGER)
    push(other, {1: "A", 2: "B"})
    with static(other) as web:
        yield web


def at(web: Static) -> WebRepository:
    return WebRepository(Web(web.url, patience=HASTY))


def pulled(store: Store, web: Static, **options: Any) -> Pulled:
    return pull(store, DatasetLog(store, UUID), at(web), **{"table": Table(), **options})


@pytest.mark.requirement("TP-02", "TP-03", "TP-04", "TP-05")
def test_pull_from_static_web_server_copies_chain(store: Store, other: Store, web: Static) -> None:
    done = pulled(store, web)
    assert (done.created, done.blocks, done.brought.fetched_objects) == (True, 5, 1)
    assert web.kinds() == ["refs", *["blocks"] * 5, "data"]
    assert [b.data for b in opened(store).blocks()] == [b.data for b in opened(other).blocks()]
    assert opened(store).state == opened(other).state
    assert table(store) == {1: "A", 2: "B"}
    sound(store)


def test_pull_of_chain_with_disabled_source_continues_after_new_source(store: Store, other: Store) -> None:
    theirs = made(other, LEDGER)
    push(other, {1: "A"})
    theirs.append_events([DisablePushSource(source_name="default")])
    with pytest.raises(InputError, match="its push sources are: none"):
        push(other, {2: "B"})
    with static(other) as web:
        pulled(store, web)
        theirs.append_events([source(LEDGER)])
        push(other, {1: "A", 2: "B"})
        assert pulled(store, web).blocks == 2
    assert [b.data for b in opened(store).blocks()] == [b.data for b in opened(other).blocks()]
    assert table(store) == {1: "A", 2: "B"}
    sound(store)


def test_pull_of_unchanged_chain_sends_one_request(store: Store, web: Static) -> None:
    pulled(store, web)
    web.asked.clear()
    version = opened(store).snapshot.version
    assert pulled(store, web).relation is Relation.EQUAL
    assert web.asked == ["refs/head"]
    assert opened(store).snapshot.version == version


def test_pull_of_grown_chain_fetches_only_new_objects(store: Store, other: Store, web: Static) -> None:
    pulled(store, web)
    before = set(opened(store).snapshot.head.partitions)
    push(other, {3: "C"})
    web.asked.clear()
    done = pulled(store, web)
    assert (done.relation, done.blocks, done.brought.fetched_objects) == (Relation.AHEAD, 1, 1)
    assert web.kinds() == ["refs", "blocks", "data"]
    assert table(store) == {1: "A", 2: "B", 3: "C"}
    assert before < set(opened(store).snapshot.head.partitions)
    sound(store)


def test_pulled_retractions_reach_table(store: Store, other: Store) -> None:
    made(other)
    push(other, {1: "A", 2: "B"})
    with static(other) as web:
        pulled(store, web)
        push(other, {1: "A2"})
        pulled(store, web)
        assert table(store) == table(other) == {1: "A2"}
        sound(store)


@pytest.mark.timeout(3600 if ROUNDS > 6 else 120)
def test_pulled_retractions_rewrite_only_affected_files(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file a plane, so that those of planes of which nothing came have to be the same."""

    def lies() -> dict[int, tuple[int, str]]:
        snapshot = opened(store).snapshot
        rows = scan(store, snapshot, ["id", "offset"]).read_all().to_pydict()
        labels = {int(label.partition("/")[0].removeprefix("id=")): label for label in snapshot.head.partitions}
        return {plane: (offset, labels[plane]) for plane, offset in zip(rows["id"], rows["offset"], strict=True)}

    made(other)
    push(other, dict.fromkeys(range(6), "A"))
    draw = random.Random(4)
    with static(other) as web:
        pulled(store, web, table=Table(layout=TableLayout(partition_on=("id",))))
        monkeypatch.setattr("kubothek.odf.dataset.following.moved", None)  # it would make the whole table anew
        for _ in range(ROUNDS):
            before = lies()
            for _ in range(draw.randrange(1, 4)):
                push(other, {plane: draw.choice("AB") for plane in draw.sample(range(7), draw.randrange(1, 7))})
            pulled(store, web)
            assert table(store) == table(other)
            after = lies()
            for plane, (offset, label) in before.items():
                assert (label == after.get(plane, (0, ""))[1]) == (offset == after.get(plane, (-1, ""))[0])
            sound(store)


def test_pull_without_table_writes_chain_only(store: Store, other: Store, web: Static) -> None:
    pulled(store, web, table=None)
    push(other, {3: "C"})
    pulled(store, web)
    assert not opened(store).snapshot.head.partitions
    sound(store)


def test_pull_from_url_without_dataset_raises_not_found(store: Store, web: Static) -> None:
    with pytest.raises(DatasetNotFound, match="refs/head"):
        pull(store, DatasetLog(store, UUID), WebRepository(Web(f"{web.url}/elsewhere", patience=HASTY)))
    web.change = lambda path, body: b"<html>"
    with pytest.raises(ChainCorrupt):
        pulled(store, web)
    assert not [*store.list("")]


# --- what is wrong ---------------------------------------------------------------------------------------------------


def flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.mark.parametrize("kind", ["blocks", "data"])
@pytest.mark.parametrize("how", [flipped, lambda body: body[:-7], lambda body: b"", lambda body: body + b"!"])
@pytest.mark.parametrize("grows", [False, True])
def test_object_tampered_in_transit_is_refused_and_named(
    store: Store, other: Store, web: Static, kind: str, how: Any, grows: bool
) -> None:
    if grows:
        pulled(store, web)
        push(other, {3: "C"})
    web.change = lambda path, body: how(body) if path.startswith(kind) else body
    if kind == "data" and how(b"....................").endswith(b"!"):
        pulled(store, web)  # of what follows the object nothing is read
        sound(store)
        return
    with pytest.raises(ChainCorrupt, match=kind[:-1] if kind == "blocks" else "data/f1620"):
        pulled(store, web)
    if grows:
        assert opened(store).state.length == 5
        assert table(store) == {1: "A", 2: "B"}
    else:
        with pytest.raises(DatasetNotFound):
            opened(store)
    web.change = lambda path, body: body
    pulled(store, web)
    sound(store)


def test_object_missing_from_repository_is_named(store: Store, other: Store, web: Static) -> None:
    named = next(iter(other.list(f"{keys.chain(UUID)}data/"))).key
    other.delete([named])
    with pytest.raises(ChainCorrupt, match=named.rpartition("/")[2]):
        pulled(store, web)


def test_invalid_chain_is_refused_before_data_is_fetched(store: Store, other: Store, web: Static) -> None:

    layout = Layout(keys.chain(UUID))
    forged(other, layout)
    with pytest.raises(ChainCorrupt, match="not sound"):
        pulled(store, web)
    assert "data" not in web.kinds()


# --- interruption ----------------------------------------------------------------------------------------------------


def test_pull_after_crash_at_any_request_resumes(store: Store, other: Store) -> None:
    made(other, APPEND)
    for number in range(3):
        push(other, {number: "x" * 50})
    with static(other) as web:
        pulled(store, web)
        requests = len(web.asked)
    for dies in range(1, requests):
        with static(other) as web:
            web.dies = dies
            uuid = f"copy-{dies}"
            with pytest.raises(LakeError):
                pull(store, DatasetLog(store, uuid), at(web), at_once=1)
            with pytest.raises(DatasetNotFound):
                Root(store, DatasetLog(store, uuid))
            first = set(web.asked[:dies]) - {"refs/head"}
            web.dies, web.asked = None, []
            done = pull(store, DatasetLog(store, uuid), at(web), at_once=1)
            assert first.isdisjoint(web.asked)
            assert len(first) + len(web.asked) - 1 == requests - 1
            assert done.created
            sound_copy(store, uuid)


def sound_copy(store: Store, uuid: str) -> None:
    assert verify(store, Layout(keys.chain(uuid))).first is None


def test_pull_after_broken_connection_resumes_with_range_request(store: Store, other: Store, web: Static) -> None:
    path = next(iter(other.list(f"{keys.chain(UUID)}data/"))).key.removeprefix(keys.chain(UUID))
    web.cut[path] = [100] * 7  # more often than the same byte is asked for
    done = pulled(store, web)
    assert web.ranges == 7
    assert done.brought.fetched_bytes == done.brought.bytes
    sound(store)


def test_pull_over_connection_without_progress_fails(store: Store, other: Store, web: Static) -> None:
    path = next(iter(other.list(f"{keys.chain(UUID)}data/"))).key.removeprefix(keys.chain(UUID))
    web.cut[path] = [100] + [0] * 100
    with pytest.raises(StoreUnavailable):
        pulled(store, web)
    assert web.ranges == 4


def test_damaged_local_object_is_fetched_again(store: Store, other: Store, web: Static) -> None:
    for info in other.list(keys.chain(UUID)):
        if "/data/" in info.key or "/blocks/" in info.key:
            store.put(info.key, flipped(other.get(info.key)))
    done = pulled(store, web)
    assert (done.brought.fetched_objects, web.kinds().count("blocks")) == (1, 5)
    sound(store)


# --- forks -----------------------------------------------------------------------------------------------------------


def head(store: Store) -> Multihash:
    found = opened(store).state.head
    assert found is not None
    return found


@pytest.mark.requirement("SH-03")
def test_pull_of_diverged_chain_is_refused_without_force(store: Store, other: Store, web: Static) -> None:
    pulled(store, web)
    opened(store).push(planes({7: "mine"}))
    with pytest.raises(Diverged, match="our chain continues theirs"):
        pulled(store, web)
    push(other, {8: "yours"})
    push(other, {9: "yours"})
    with pytest.raises(Diverged, match="neither"):
        pulled(store, web)
    assert table(store) == {1: "A", 2: "B", 7: "mine"}
    done = pulled(store, web, force=True)
    assert (done.relation, done.blocks) == (Relation.DIVERGED, 2)
    assert table(store) == table(other)
    assert head(store) == head(other)
    sound(store)
    opened(store).push(planes({7: "mine"}))
    assert pulled(store, web, force=True).relation is Relation.BEHIND
    assert (head(store), table(store)) == (head(other), table(other))
    sound(store)


def test_pull_of_other_dataset_is_refused_even_with_force(store: Store, other: Store, web: Static) -> None:
    create(store, DatasetLog(store, UUID), begun(source(LEDGER)), OwnerKey(b"\1" * 32))
    for force in (False, True):
        with pytest.raises(Diverged, match="another dataset" if force else "neither"):
            pulled(store, web, force=force)


def test_pull_from_other_store_copies_chain(store: Store, other: Store, web: Static) -> None:
    theirs = StoreRepository(other, Layout(keys.chain(UUID)))
    done = pull(store, DatasetLog(store, UUID), theirs, table=Table())
    assert done.created
    sound(store)
