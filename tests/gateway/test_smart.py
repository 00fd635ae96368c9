"""TP-08 … TP-15: both sides of the smart protocol, over a real socket."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubothek.errors import (
    AccessDenied,
    DatasetNotFound,
    Diverged,
    InputError,
    InvalidCredentials,
    LakeError,
    StoreUnavailable,
    UnsupportedVersion,
)
from kubothek.odf.dataset import Root, Table, create
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync import Pulled, Pushed, Reach, Relation, pull_remote, push_remote
from kubothek.odf.sync.smart.messages import Refused
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.gateway.running import FORCER, READER, WRITER, Running, running
from tests.odf.dataset.planes import LEDGER, OWNER, UUID, begun, made, opened, planes, push, sound, table

pytestmark = pytest.mark.slow

WITH = Reach(token=WRITER)


def pulled(store: Store, gateway: Running, **options: Any) -> Pulled:
    given = {"reach": WITH, "table": Table(), **options}
    return pull_remote(store, DatasetLog(store, UUID), gateway.smart(), **given)


def pushed(store: Store, gateway: Running, to: str = UUID, **options: Any) -> Pushed:
    return push_remote(opened(store), gateway.smart(to), **{"reach": WITH, **options})


def paths(gateway: Running) -> list[str]:
    return [line["path"].split("/", 2)[2].partition("/")[0] for line in gateway.lines]


def test_pull_transfers_blocks_by_websocket_and_then_objects(store: Store, other: Store) -> None:
    made(other, LEDGER)
    push(other, {1: "A", 2: "B"})
    with running(other) as gateway:
        done = pulled(store, gateway)
        assert (done.created, done.blocks, done.brought.fetched_objects) == (True, 5, 1)
        sound(store)
        gateway.lines.clear()
        assert pulled(store, gateway).relation is Relation.EQUAL
        assert paths(gateway) == ["refs"]
        push(other, {3: "C"})
        gateway.lines.clear()
        assert pulled(store, gateway).blocks == 1
        assert sorted(paths(gateway)) == ["data", "pull", "refs"]
        assert table(store) == table(other) == {1: "A", 2: "B", 3: "C"}
        sound(store)
        opened(store).push(planes({9: "mine"}))
        with pytest.raises(Diverged, match="our chain continues"):
            pulled(store, gateway)
        push(other, {4: "D"})
        with pytest.raises(Diverged, match="neither"):
            pulled(store, gateway)
        assert pulled(store, gateway, force=True).relation is Relation.DIVERGED
        assert table(store) == table(other)


def test_push_creates_dataset_and_then_sends_new_blocks(store: Store, other: Store) -> None:
    made(store)
    push(store, {1: "A", 2: "B"})
    with running(other) as gateway:
        done = pushed(store, gateway, "fresh")
        assert (done.created, done.blocks, done.objects) == (True, 5, 1)
        copy = Root(other, DatasetLog(other, "fresh"))
        assert copy.state == opened(store).state
        assert pushed(store, gateway, "fresh").relation is Relation.EQUAL
        push(store, {1: "A2"})
        done = pushed(store, gateway, "fresh")
        assert (done.created, done.relation, done.blocks, done.objects) == (False, Relation.AHEAD, 1, 1)
        copy.refresh()
        assert copy.state == opened(store).state
        assert other.get(keys.chain_ref("fresh")) == store.get(keys.chain_ref(UUID))


def test_push_onto_diverged_chain_is_refused_without_force(store: Store, other: Store) -> None:
    made(other, LEDGER)
    push(other, {1: "A"})
    with running(other) as gateway:
        pulled(store, gateway)
        push(other, {2: "theirs"})
        opened(store).push(planes({3: "mine"}))
        with pytest.raises(Diverged):
            pushed(store, gateway)
        assert table(other) == {1: "A", 2: "theirs"}
        with pytest.raises(LakeError, match="needs the right force"):
            pushed(store, gateway, force=True)
        assert table(other) == {1: "A", 2: "theirs"}
        (refused,) = (line for line in gateway.lines if line.get("forced"))
        assert (refused["principal"], refused["error"]) == ("writer", "AccessDenied")
        done = pushed(store, gateway, force=True, reach=Reach(token=FORCER))
        assert done.relation is Relation.DIVERGED
        assert table(other) == {1: "A", 3: "mine"}
        _, audited = (line for line in gateway.lines if line.get("forced"))
        assert (audited["principal"], audited["version"]) == ("forcer", 4)
        sound(other)


def test_push_resumed_sends_no_object_twice(store: Store, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made(store, LEDGER)
    for number in range(4):
        push(store, {number: "x"})
    from kubothek.odf.sync.smart import pushing

    put, sent = pushing._Sender._put, list[Any]()

    def dying(self: Any, url: str, headers: Any, named: Any) -> None:
        if len(sent) == 2:
            raise KeyboardInterrupt
        put(self, url, headers, named)
        sent.append(named)

    with running(other) as gateway:
        monkeypatch.setattr(pushing._Sender, "_put", dying)
        with pytest.raises(KeyboardInterrupt):
            pushed(store, gateway, "fresh", reach=Reach(token=WRITER, objects_at_once=1))
        monkeypatch.setattr(pushing._Sender, "_put", put)
        with pytest.raises(DatasetNotFound):
            Root(other, DatasetLog(other, "fresh"))
        assert pushed(store, gateway, "fresh").objects == 2
        assert Root(other, DatasetLog(other, "fresh")).state == opened(store).state


def test_unauthorized_push_and_pull_are_refused_with_specific_error(store: Store, other: Store) -> None:
    made(other, LEDGER)
    made(store, LEDGER)
    with running(other, public=("open",)) as gateway:
        for reach, error in (
            (Reach(), InvalidCredentials),
            (Reach(token="nobody-knows-this-one"), InvalidCredentials),
            (Reach(token=READER), AccessDenied),
        ):
            with pytest.raises(error):
                pushed(store, gateway, "copy", reach=reach)
        with pytest.raises(InvalidCredentials):
            pulled(store, gateway, reach=Reach())
        with pytest.raises(InputError, match="read only"):
            push_remote(opened(store), gateway.url(), reach=WITH)


def test_push_of_damaged_objects_is_refused_and_dataset_is_unchanged(store: Store, other: Store) -> None:
    made(other, LEDGER)
    push(other, {1: "A"})
    with running(other) as gateway:
        pulled(store, gateway)
        push(store, {2: "B"})
        for info in [*store.list(f"{keys.chain(UUID)}data/")]:
            data = store.get(info.key)
            store.put(info.key, data[:-1] + bytes([data[-1] ^ 1]))
        with pytest.raises(Exception, match="status 400"):
            pushed(store, gateway)
        assert table(other) == {1: "A"}
        sound(other)


def test_push_replaces_damaged_object_left_in_store(store: Store, other: Store) -> None:
    made(other, LEDGER)
    push(other, {1: "A"})
    with running(other) as gateway:
        pulled(store, gateway)
        push(store, {2: "B"})
        there = {info.key for info in other.list(f"{keys.chain(UUID)}data/")}
        (new,) = [info for info in store.list(f"{keys.chain(UUID)}data/") if info.key not in there]
        other.put(new.key, bytes(new.size))
        with pytest.raises(Exception, match="not at the push"):
            pushed(store, gateway)
        assert pushed(store, gateway).objects == 1
        assert table(other) == {1: "A", 2: "B"}


@pytest.mark.parametrize("hangs_up", [True, False])
def test_push_to_server_of_earlier_version_names_what_blocks_need(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch, hangs_up: bool
) -> None:
    def blocks_of(message: object) -> Any:
        raise AssertionError if hangs_up else UnsupportedVersion("version 3")

    monkeypatch.setattr("kubothek.gateway.smart.blocks_of", blocks_of)
    advice = "The blocks need Open Data Fabric 0.37: if http.* has an earlier version, update it, or push a dataset"
    with running(other) as gateway:
        for version in (SpecVersion.V0_39, SpecVersion.V0_34):
            uuid = f"planes-{version.name}"
            create(store, DatasetLog(store, uuid), begun(), OWNER, version=version)
            with pytest.raises(StoreUnavailable if hangs_up else Refused) as refused:
                push_remote(Root(store, DatasetLog(store, uuid)), gateway.smart("fresh"), reach=WITH)
            assert bool(re.search(advice, str(refused.value))) == (version is SpecVersion.V0_39), str(refused.value)


def test_push_of_chain_that_violates_rules_is_refused(store: Store, other: Store) -> None:
    from kubothek.odf import Layout, read_chain
    from kubothek.odf.sync.smart.pushing import push_smart
    from kubothek.odf.sync.web import Web
    from tests.odf.sync.chains import forged

    made(store, LEDGER)
    push(store, {1: "A"})
    layout = Layout(keys.chain(UUID))
    forged(store, layout)
    with running(other) as gateway, pytest.raises(Refused, match="not sound"):
        push_smart(
            Web(gateway.url("fresh"), WITH),
            store,
            layout,
            read_chain(store, layout),
            None,
            force=False,
            told=lambda progress: None,
        )
    assert not [info for info in other.list("") if "/odf/" not in info.key and "probe" not in info.key]
