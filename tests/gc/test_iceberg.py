"""Garbage collection of Iceberg metadata: a reader that opened the table within the grace period reads all of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import kubothek
from kubothek import IcebergExport, Lake
from kubothek.gc import Mode, Retention, collect
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.iceberg.export import export
from kubothek.table.iceberg.objects import manifests_in
from kubothek.table.log import DatasetLog
from tests.faultstore import Crash, Fault, FaultStore, every_crash

DAY = 86_400
METADATA = ".kubothek/t/iceberg/metadata"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(params=[True, False], ids=["hint", "no-hint"])
def lake(root: Path, request: pytest.FixtureRequest) -> Lake:
    """Versions 2 to 5, each exported, of which the last replaced the others; all of it three days old.

    With a version hint, and without.
    """
    lake = kubothek.open(root)
    dataset = lake.create_dataset("t")
    for n in range(3):
        dataset.append(pa.table({"row": [n]}))
        export(lake.store, DatasetLog(lake.store, "t"), version_hint=request.param)
    dataset.overwrite(pa.table({"row": [9]}))
    export_now(lake)
    pass_by(root, 3)
    return lake


def export_now(lake: Lake, *, rebuild: bool = False) -> IcebergExport:
    """Export as before: with a version hint if there is one."""
    has_hint = bool(list(lake.store.list(f"{METADATA}/version-hint.text")))
    return export(lake.store, DatasetLog(lake.store, "t"), rebuild=rebuild, version_hint=has_hint)


def pass_by(root: Path, days: float) -> None:
    """Make all objects so much older."""
    for path in root.rglob("*"):
        if path.is_file():
            written = path.stat().st_mtime - days * DAY
            os.utime(path, (written, written))


def run(store: Store) -> None:
    collect(store, DatasetLog(store, "t"), [Retention(versions=1)], mode=Mode.ENFORCE)


def names(root: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in (root / METADATA).glob(pattern))


def opened(root: Path) -> StaticTable:
    if (root / METADATA / "version-hint.text").exists():
        return StaticTable.from_metadata(f"file://{root}/.kubothek/t/iceberg")
    return opened_at(root, max(int(name[1:].partition(".")[0]) for name in names(root, "v*")))


def opened_at(root: Path, version: int) -> StaticTable:
    return StaticTable.from_metadata(f"file://{root / METADATA}/v{version}.metadata.json")


def values(table: StaticTable) -> list[int]:
    """The rows of the current snapshot, from files that are read now."""
    return sorted(row["row"] for row in table.scan().to_arrow().to_pylist())


def assert_nothing_dangles(root: Path) -> None:
    """Each file names only files that exist, but for snapshots that expired since."""
    there = set(names(root))
    for path in (root / METADATA).glob("snap-*"):
        named = {each.manifest_path.rpartition("/")[2] for each in manifests_in(path.name, path.read_bytes())}
        assert named <= there, path.name
    for path in (root / METADATA).glob("v*.metadata.json"):
        table = StaticTable.from_metadata(f"file://{path}")
        assert {each.manifest_list.rpartition("/")[2] for each in table.snapshots()} <= there, path.name


def test_metadata_that_was_open_is_read_through_the_grace(root: Path, lake: Lake) -> None:
    dataset = lake.dataset("t")
    reader = opened(root)
    dataset.overwrite(pa.table({"row": [10]}))
    export_now(lake)
    run(lake.store)
    export_now(lake)
    assert values(reader) == [9]
    assert_nothing_dangles(root)
    assert names(root, "v*.json") == ["v5.metadata.json", "v6.metadata.json", "v7.metadata.json"]
    pass_by(root, 2)
    dataset.append(pa.table({"row": [11]}))
    export_now(lake)
    reader = opened(root)
    run(lake.store)
    assert values(reader) == [10, 11]
    assert names(root, "v*.json") == ["v7.metadata.json", "v8.metadata.json"]
    pass_by(root, 2)
    run(lake.store)
    assert names(root, "v*.json") == ["v8.metadata.json"]
    named = {each.manifest_list.rpartition("/")[2] for each in opened(root).snapshots()}
    assert set(names(root, "snap-*")) == named
    assert values(opened(root)) == [10, 11]
    assert_nothing_dangles(root)


@pytest.mark.parametrize("lake", [True], indirect=True)
def test_chain_skips_metadata_that_the_hint_never_named(root: Path, lake: Lake) -> None:
    dataset = lake.dataset("t")
    dataset.append(pa.table({"row": [10]}))
    crashing = FaultStore(lake.store, Fault(calls=("put_if_match",), key="version-hint"))
    with pytest.raises(Crash):
        export(crashing, DatasetLog(crashing, "t"))
    assert "v6.metadata.json" in names(root)
    pass_by(root, 5)
    reader = opened(root)
    dataset.overwrite(pa.table({"row": [11]}))
    export_now(lake)
    before = [name for name in names(root) if name.startswith("v5") or name in _named(reader)]
    run(lake.store)
    assert set(before) <= set(names(root))
    assert values(reader) == [9]


@pytest.mark.parametrize("lake", [False], indirect=True)
def test_metadata_beside_the_chain_is_read_through_the_grace(root: Path, lake: Lake) -> None:
    """Two exports continued from version 6: that of version 8, and another, which a reader opened."""
    dataset = lake.dataset("t")
    run(lake.store)
    export_now(lake)
    pass_by(root, 2)
    dataset.append(pa.table({"row": [7]}))
    dataset.append(pa.table({"row": [8]}))
    export_now(lake)
    beside = lake.store.get(f"{METADATA}/v5.metadata.json")
    lake.store.put(f"{METADATA}/v7.metadata.json", beside)
    written = (root / METADATA / "v8.metadata.json").stat().st_mtime - 1
    os.utime(root / METADATA / "v7.metadata.json", (written, written))
    reader = opened_at(root, 7)
    needed = _named(reader)
    run(lake.store)
    assert needed <= set(names(root))
    assert values(reader) == [9]
    assert names(root, "v*.json") == ["v6.metadata.json", "v7.metadata.json", "v8.metadata.json"]
    pass_by(root, 2)
    run(lake.store)
    assert names(root, "v*.json") == ["v8.metadata.json"]
    assert_nothing_dangles(root)


def _named(table: StaticTable) -> set[str]:
    lists = [Path(each.manifest_list.removeprefix("file://")) for each in table.snapshots()]
    manifests = (each.manifest_path for path in lists for each in manifests_in(path.name, path.read_bytes()))
    return {path.name for path in lists} | {each.rpartition("/")[2] for each in manifests}


def _expiring(root: Path, lake: Lake) -> None:
    """Metadata, lists and manifests become garbage by the next collection."""
    run(lake.store)
    export_now(lake)
    pass_by(root, 2)


def test_crash_at_every_call_leaves_nothing_dangling(root: Path, lake: Lake, tmp_path: Path) -> None:
    _expiring(root, lake)
    kept = tmp_path / "kept"
    shutil.copytree(root, kept)
    before = names(root)
    counting = FaultStore(open_store(StoreConfig(lake.store.url)))
    run(counting)
    expected = names(root)
    gone = [name.rpartition("-")[2] for name in set(before) - set(expected) if not name.startswith("snap-")]
    assert sorted(gone) == [*["m.avro"] * 3, "v5.metadata.json"]
    for fault in every_crash(counting.calls):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        store = FaultStore(open_store(StoreConfig(lake.store.url)), fault)
        with pytest.raises(Crash):
            run(store)
        assert values(opened(root)) == [9]
        assert_nothing_dangles(root)
        run(store.inner)
        assert names(root) == expected


@pytest.mark.slow
def test_export_at_every_call_leaves_nothing_dangling(root: Path, lake: Lake, tmp_path: Path) -> None:
    _expiring(root, lake)
    kept = tmp_path / "kept"
    shutil.copytree(root, kept)
    counting = FaultStore(open_store(StoreConfig(lake.store.url)))
    run(counting)
    for nth, call in enumerate(counting.calls, 1):
        if "iceberg" not in call.key and call.name not in ("put_if_match", "delete"):
            continue
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        store = FaultStore(open_store(StoreConfig(lake.store.url)))
        store.before_call = _once_at(store, nth, Lake(store.inner))
        run(store)
        assert values(opened(root)) == [9, 12]
        assert_nothing_dangles(root)


def _once_at(store: FaultStore, nth: int, lake: Lake) -> Callable[[str, str], None]:
    def commit_once(name: str, key: str) -> None:
        if len(store.calls) == nth:
            lake.dataset("t").append(pa.table({"row": [12]}))
            export_now(lake)

    return commit_once


@pytest.mark.parametrize(
    ("lake", "name"),
    [(True, "v6.metadata.json"), (True, "snap-6-*"), (True, "version-hint.text"), (False, "v6.metadata.json")],
    indirect=["lake"],
)
def test_nothing_goes_while_the_chain_cannot_be_read(root: Path, lake: Lake, name: str) -> None:
    _expiring(root, lake)
    (damaged,) = (root / METADATA).glob(name)
    damaged.write_bytes(b"[]")
    os.utime(damaged, (0, 0) if name.startswith("snap") else None)
    before = names(root)
    run(lake.store)
    assert names(root) == before


def test_nothing_goes_without_pyiceberg(root: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _expiring(root, lake)
    before = names(root)
    monkeypatch.setitem(sys.modules, "kubothek.table.iceberg.objects", None)
    run(lake.store)
    assert names(root) == before


def test_metadata_of_a_deleted_dataset_goes_with_it(root: Path, lake: Lake) -> None:
    DatasetLog(lake.store, "t").delete()
    run(lake.store)
    assert names(root)
    pass_by(root, 3)
    run(lake.store)
    assert not (root / METADATA).exists()


def test_rebuild_in_place_of_what_a_writer_remembers_keeps_its_files(root: Path, lake: Lake) -> None:
    dataset = lake.dataset("t")
    dataset.append(pa.table({"row": [10]}))
    remembered = export_now(lake)
    export_now(lake, rebuild=True)
    rebuilt = Path(remembered.metadata_location.removeprefix("file://"))
    assert StaticTable.from_metadata(str(rebuilt)).metadata.metadata_log == []
    pass_by(root, 1)
    dataset.append(pa.table({"row": [11]}))
    export_now(lake)
    pass_by(root, 1)
    before = names(root)
    run(lake.store)
    assert names(root) == before, "the rebuild starts a chain, and another follows"
    pass_by(root, 1)
    run(lake.store)
    assert "v6.metadata.json" not in names(root)
    assert values(opened(root)) == [9, 10, 11]
