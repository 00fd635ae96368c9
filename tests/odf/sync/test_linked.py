"""Large objects that records link to (RFC-017) are pulled and pushed with the chain."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kubothek.cli.exchange.pull_ledger import _description
from kubothek.errors import ChainCorrupt, StoreError
from kubothek.odf import Layout, Multihash, verify
from kubothek.odf.dataset import Root, Table, again, create, export, import_chain
from kubothek.odf.problems import Severity
from kubothek.odf.spec.data_schema import DataField, DataTypeOption, DataTypeString, DataTypeStruct
from kubothek.odf.spec.events import AddPushSource, SetDataSchema
from kubothek.odf.spec.logical_types import from_arrow
from kubothek.odf.spec.object_links import TYPE
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepNdJson
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.sync import (
    Pulled,
    Reach,
    Relation,
    StoreRepository,
    Web,
    WebRepository,
    pull,
    pull_remote,
    push_remote,
)
from kubothek.odf.sync.smart.pushing import push_smart
from kubothek.odf.validation.linked import listed_missing
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.gateway.running import WRITER, running
from tests.odf.dataset.planes import LAYOUT, OWNER, UUID, begun
from tests.odf.dataset.test_object_links import LINK, _with_common, attribute, links
from tests.odf.sync.static import static

pytestmark = pytest.mark.slow

BODIES = [b"scan %d" % number * 1000 for number in range(3)] + [b""]
SCANS = [Multihash.sha3(body) for body in BODIES]
GONE = Multihash.sha3(b"a scan that nobody has")
KEYS = [LAYOUT.data(scan) for scan in SCANS]
WITH = Reach(token=WRITER)


def scanned(store: Store) -> Root:
    """A chain that links to scans, one of them twice, one that is gone, and to what is no link."""
    root = links(store, [*map(str, SCANS), str(SCANS[0]), str(GONE), "nothing"])
    for key, body in zip(KEYS, BODIES, strict=True):
        store.put(key, body)
    return root


def pulled(store: Store, theirs: Any, **options: Any) -> Pulled:
    return pull(store, DatasetLog(store, UUID), theirs, table=Table(), **options)


def complete(store: Store) -> None:
    assert [store.get(key) for key in KEYS] == BODIES


@pytest.mark.parametrize("states_sizes", [True, False], ids=["sizes", "none"])
def test_linked_objects_are_pulled_from_a_web_server(store: Store, other: Store, states_sizes: bool) -> None:
    scanned(other)
    with static(other) as web:
        web.states_sizes = states_sizes
        if states_sizes:
            web.cut[f"data/{SCANS[1]}"] = [1000]
        done = pulled(store, WebRepository(Web(web.url)))
    assert (done.brought.objects, done.brought.fetched_objects, done.brought.missing) == (5, 5, (GONE,))
    assert web.ranges == states_sizes, "a broken connection resumes"
    complete(store)


def test_linked_objects_of_new_blocks_alone_are_pulled(store: Store, other: Store) -> None:
    root = scanned(other)
    theirs = StoreRepository(other, LAYOUT)
    pulled(store, theirs)
    more = Multihash.sha3(b"one more")
    other.put(LAYOUT.data(more), b"one more")
    root.push(again(pa.table({"id": pa.array([9], pa.int32()), "scan": [str(more)]})))
    done = pulled(store, theirs)
    assert (done.blocks, done.brought.objects, done.brought.missing) == (1, 2, (GONE,)), "GONE is looked for again"
    assert store.get(LAYOUT.data(more)) == b"one more"


def test_missing_linked_objects_come_with_a_later_pull(store: Store, other: Store) -> None:
    root = scanned(other)
    other.delete(KEYS[:2])
    with running(other) as gateway:
        theirs = gateway.smart()
        first = pull_remote(store, DatasetLog(store, UUID), theirs, reach=WITH, table=Table())
        assert set(first.brought.missing) == {*SCANS[:2], GONE}
        (note,) = [each for each in verify(store, LAYOUT).problems if each.code == "LinkedObjectMissing"]
        assert note.number is not None
        assert "3 linked objects of this slice cannot be verified" in note.message
        other.put(KEYS[0], BODIES[0])
        again_ = pull_remote(store, DatasetLog(store, UUID), theirs, reach=WITH, table=Table())
        assert (again_.relation, again_.blocks) == (Relation.EQUAL, 0)
        assert (again_.brought.fetched_objects, set(again_.brought.missing)) == (1, {SCANS[1], GONE})
        assert store.get(KEYS[0]) == BODIES[0]
        assert re.fullmatch(
            r"up to date, version 1; 1 linked object fetched that was missing; the source lacks 2 linked objects, .*",
            _description(again_),
        )
    other.put(KEYS[1], BODIES[1])
    other.put(LAYOUT.data(GONE), b"a scan that nobody has")
    root.push(again(pa.table({"id": pa.array([9], pa.int32()), "scan": [str(SCANS[0])]})))
    last = pulled(store, StoreRepository(other, LAYOUT))
    assert (last.blocks, last.brought.missing) == (1, ())
    complete(store)
    assert not any(each.code == "LinkedObjectMissing" for each in verify(store, LAYOUT).problems)
    assert pulled(store, StoreRepository(other, LAYOUT)).brought.objects == 0


def test_linked_objects_that_are_there_are_not_fetched_again(store: Store, other: Store) -> None:
    scanned(other)
    other.put(KEYS[0], b"another scan")
    for key, body in zip(KEYS[1:3], BODIES[1:3], strict=True):
        store.put(key, body)
    theirs = StoreRepository(other, LAYOUT)
    with pytest.raises(ChainCorrupt, match=f"{SCANS[0]}.* not those that the hash names"):
        pulled(store, theirs)
    assert DatasetLog(store, UUID).settled() is None
    other.put(KEYS[0], BODIES[0])
    assert pulled(store, theirs).brought.fetched_bytes == len(BODIES[0])
    complete(store)


@pytest.mark.parametrize("place", ["gateway", "directory"])
def test_linked_objects_are_pushed_and_pulled_back(
    store: Store, other: Store, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubothek.odf.sync.smart.pushing._BULK", 2)
    monkeypatch.setattr("kubothek.odf.validation.linked._TOGETHER", 3)
    root = scanned(store)
    (tmp_path / "back").mkdir()
    (tmp_path / "place").mkdir()
    back = open_store(StoreConfig((tmp_path / "back").as_uri()))
    with running(other) as gateway:
        url = gateway.smart() if place == "gateway" else (tmp_path / "place").as_uri()
        done = push_remote(root, url, reach=WITH)
        assert (done.relation, done.objects, done.missing) == (Relation.AHEAD, 5, (GONE,))
        assert pull_remote(back, DatasetLog(back, UUID), url, reach=WITH).brought.missing == (GONE,)
    complete(back)


@pytest.mark.parametrize("place", ["gateway", "directory"])
def test_push_without_blocks_completes_linked_objects(store: Store, other: Store, tmp_path: Path, place: str) -> None:
    root = scanned(store)
    store.delete(KEYS[:2])
    (tmp_path / "place").mkdir()
    with running(other) as gateway:
        url = gateway.smart() if place == "gateway" else (tmp_path / "place").as_uri()
        first = push_remote(root, url, reach=WITH)
        assert set(first.missing) == {*SCANS[:2], GONE}
        there = Layout() if place == "directory" else LAYOUT
        target = open_store(StoreConfig((tmp_path / "place").as_uri())) if place == "directory" else other
        for number in (0, 1):
            store.put(KEYS[number], BODIES[number])
            done = push_remote(root, url, reach=WITH)
            assert (done.relation, done.blocks, done.objects, done.bytes) == (Relation.EQUAL, 0, 1, len(BODIES[number]))
            assert set(done.missing) == {GONE, *SCANS[number + 1 : 2]}
            assert target.get(there.data(SCANS[number])) == BODIES[number]
        done = push_remote(root, url, reach=WITH)
        assert (done.relation, done.objects, done.missing) == (Relation.EQUAL, 0, (GONE,))
        if place == "gateway":
            assert [*listed_missing(other, LAYOUT)] == [[GONE]]
            assert not any(each.severity is Severity.ERROR for each in verify(other, LAYOUT).problems)


def test_push_without_blocks_brings_no_other_objects_and_no_wrong_bytes(store: Store, other: Store) -> None:
    root = scanned(store)
    store.delete(KEYS[:1])
    with running(other) as gateway:
        push_remote(root, gateway.smart(), reach=WITH)
        stranger = Multihash.sha3(b"no part of this chain")
        store.put(LAYOUT.data(stranger), b"no part of this chain")
        web = Web(gateway.smart().removeprefix("odf+"), WITH)
        sent = push_smart(
            web, store, LAYOUT, (), root.state.head, [[stranger]], force=False, told=lambda progress: None
        )
        assert sent.fetched_objects == 0
        store.put(KEYS[0], b"another scan")
        with pytest.raises(StoreError, match="status 400"):
            push_remote(root, gateway.smart(), reach=WITH)
        store.put(KEYS[0], BODIES[0])
        assert push_remote(root, gateway.smart(), reach=WITH).objects == 1
    complete(other)


def test_server_that_takes_no_objects_without_blocks_is_left_as_it_is(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = scanned(store)
    store.delete(KEYS[:1])
    with running(other) as gateway:
        push_remote(root, gateway.smart(), reach=WITH)

        async def completed(*_: Any, **__: Any) -> bool:
            return True

        monkeypatch.setattr("kubothek.gateway.smart.Smart._objects", completed)
        store.put(KEYS[0], BODIES[0])
        done = push_remote(root, gateway.smart(), reach=WITH)
        assert (done.relation, done.objects) == (Relation.EQUAL, 0)


def test_push_without_blocks_of_chain_without_links_reads_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = links(store, ["text"], extended={"kind": "Did"})
    (tmp_path / "place").mkdir()
    url = (tmp_path / "place").as_uri()
    push_remote(root, url, reach=WITH)
    monkeypatch.setattr("kubothek.odf.sync.push.read_chain", lambda *args: pytest.fail("the chain is read"))
    assert push_remote(root, url, reach=WITH).relation is Relation.EQUAL


def test_links_within_structs_are_transferred_and_checked(store: Store, other: Store) -> None:
    inner = [DataField(name="file", type=DataTypeString(), extra=attribute(TYPE, LINK))]
    kind = DataTypeOption(
        inner=DataTypeStruct(fields=(DataField(name="at", type=DataTypeStruct(fields=tuple(inner))),))
    )
    read: list[Any] = [pa.field("id", pa.int32()), pa.field("scan", pa.string())]
    common = _with_common(pa.schema(read), LINK)
    schema = replace(common, fields=(*common.fields[:-1], DataField(name="scan", type=kind)))
    source = AddPushSource(
        source_name="default", read=ReadStepNdJson(schema=from_arrow(pa.schema(read))), merge=MergeStrategyAppend()
    )
    event = SetDataSchema(schema=schema)
    root = create(other, DatasetLog(other, UUID), begun(event, source), OWNER, version=SpecVersion.V0_39)
    structs = [{"at": {"file": str(SCANS[0])}}, None, {"at": {"file": "nothing"}}, {"at": {"file": str(GONE)}}]
    scans = pa.array(structs, pa.struct([pa.field("at", pa.struct([pa.field("file", pa.string(), False)]), False)]))
    root.push(again(pa.table({"id": pa.array(range(4), pa.int32()), "scan": scans})))
    other.put(KEYS[0], BODIES[0])
    done = pulled(store, StoreRepository(other, LAYOUT))
    assert (done.brought.objects, done.brought.missing) == (2, (GONE,))
    assert store.get(KEYS[0]) == BODIES[0]
    found = {each.code: each for each in verify(store, LAYOUT).problems}
    assert {*found} == {"LinkForm", "LinkedObjectMissing"}
    assert (found["LinkForm"].column, found["LinkForm"].row) == ("scan.at.file", 2)
    store.put(KEYS[0], b"another scan")
    assert "LinkedObject" in {each.code for each in verify(store, LAYOUT).problems}


def test_linked_objects_are_exported_and_imported(store: Store, other: Store, tmp_path: Path) -> None:
    root = scanned(store)
    done = export(root, other, "there/")
    assert (done.objects, done.missing) == (5, (GONE,))
    there = Layout("there/")
    assert [other.get(there.data(scan)) for scan in SCANS] == BODIES
    store.put(LAYOUT.data(GONE), b"a scan that nobody has")
    repeated = export(root, other, "there/")
    assert (repeated.blocks, repeated.objects, repeated.missing) == (0, 1, ())
    assert other.get(there.data(GONE)) == b"a scan that nobody has"
    one_more = Multihash.sha3(b"one more")
    store.put(LAYOUT.data(one_more), b"one more")
    more = pa.table({"id": pa.array([9], pa.int32()), "scan": [str(one_more)]})
    root.push(again(more.append_column("more", pa.array([1]))))
    assert (export(root, other, "there/").objects, other.get(there.data(one_more))) == (2, b"one more")

    (tmp_path / "back").mkdir()
    back = open_store(StoreConfig((tmp_path / "back").as_uri()))
    other.delete([there.data(SCANS[0])])
    import_chain(back, DatasetLog(back, UUID), other, "there/", table=Table())
    assert {each.code for each in verify(back, LAYOUT).problems} == {"LinkForm", "LinkedObjectMissing"}
    assert pulled(back, StoreRepository(store, LAYOUT)).brought.fetched_objects == 1
    complete(back)


def test_export_and_import_of_wrong_linked_objects_are_refused(store: Store, other: Store) -> None:
    root = scanned(store)
    export(root, other, "there/")
    other.put(Layout("there/").data(SCANS[2]), b"another scan")
    with pytest.raises(ChainCorrupt, match=f"{SCANS[2]}: its bytes are not those that the link names"):
        import_chain(other, DatasetLog(other, UUID), other, "there/")
    assert DatasetLog(other, UUID).settled() is None
    store.put(KEYS[1], b"another scan")
    with pytest.raises(ChainCorrupt, match=f"{SCANS[1]}: its bytes are not those that the link names"):
        export(root, other, "elsewhere/")
    assert not [*other.list("elsewhere/blocks/")]


def test_push_after_a_new_column_finds_older_links(store: Store, tmp_path: Path) -> None:
    root = links(store, [])
    (tmp_path / "place").mkdir()
    url = (tmp_path / "place").as_uri()
    push_remote(root, url, reach=WITH)
    store.put(KEYS[0], BODIES[0])
    for number in (1, 2):
        rows = pa.table({"id": pa.array([number], pa.int32()), "scan": [str(SCANS[0])]})
        root.push(again(rows if number == 1 else rows.append_column("more", pa.array([1]))))
    assert push_remote(root, url, reach=WITH).objects == 3


def test_slices_without_links_are_not_read_for_links(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    links(other, ["text"], extended={"kind": "Did"})
    monkeypatch.setattr("kubothek.odf.validation.linked.hashed", lambda *args: pytest.fail("a slice is read"))
    assert pulled(store, StoreRepository(other, LAYOUT)).created
