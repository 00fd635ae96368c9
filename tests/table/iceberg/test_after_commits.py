"""Exports that follow commits by themselves, whichever program commits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import kubothek
from kubothek import Dataset, Lake
from kubothek.errors import InputError
from kubothek.gc.areas import notes
from kubothek.storage import StoreConfig, open_store
from kubothek.table.log import AlreadyApplied, DatasetLog, exports
from kubothek.table.log.exports import export_problem
from kubothek.table.log.model import keys
from kubothek.table.log.model.head import IcebergSetting
from kubothek.table.operations import append, write_rows
from tests.cube import small as cube_store
from tests.faultstore import Crash, Fault, FaultStore


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path)


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"row": pa.array(range(start, start + count), pa.int64())})


def created(lake: Lake) -> Dataset:
    dataset = lake.create_dataset("t", schema={"row": "int64"})
    dataset.set_iceberg("Refuse")
    return dataset


def exported(lake: Lake, uuid: str = "t") -> StaticTable:
    return StaticTable.from_metadata(f"{lake.store.url}/{keys.iceberg(uuid)}".rstrip("/"))


def versions(lake: Lake, uuid: str = "t") -> list[int]:
    return [snapshot.snapshot_id for snapshot in exported(lake, uuid).snapshots()]


def hint(lake: Lake, uuid: str = "t") -> int:
    return int(lake.store.get(f"{keys.iceberg(uuid)}metadata/version-hint.text"))


def commit(log: DatasetLog, id_: str, data: pa.Table) -> int:
    started = log.begin(id_, id_)
    if isinstance(started, AlreadyApplied):
        return started.version
    with started as now:
        return now.commit(append(write_rows(log.journal.store, now.snapshot, data, table=None))).version


def test_every_commit_is_exported_once_it_is_set(lake: Lake) -> None:
    dataset = lake.create_dataset("t", schema={"row": "int64"})
    dataset.append(rows(0, 3))
    assert not list(lake.store.list(keys.iceberg("t")))
    dataset.set_iceberg("Refuse")
    assert versions(lake) == [1, 2, 3]
    dataset.append(rows(3, 3))
    dataset.tag("audit")
    dataset.delete("row = 1", row_level=True)
    dataset.compact()
    assert hint(lake) == dataset.version
    assert exported(lake).scan().to_arrow().num_rows == 5
    assert exported(lake).refs()["audit"].snapshot_id == 4


def test_setting_is_kept_by_later_writers_and_can_be_removed(lake: Lake) -> None:
    created(lake)
    dataset = kubothek.open(lake.store.url).dataset("t")
    dataset.overwrite(rows(0, 1))
    assert hint(lake) == dataset.version
    dataset.set_iceberg("Off")
    dataset.append(rows(1, 1))
    assert hint(lake) == dataset.version - 2
    with pytest.raises(InputError, match="use one of Off, Omit, Refuse"):
        dataset.set_iceberg("on")  # type: ignore[arg-type]


def test_commits_of_a_log_set_the_export_that_it_wants(lake: Lake) -> None:
    created(lake)
    log = DatasetLog(lake.store, "t", iceberg=IcebergSetting("Omit"))
    commit(log, "a", rows(0, 1))
    assert log.snapshot().head.iceberg == "Omit"
    log = DatasetLog(lake.store, "t", iceberg=IcebergSetting("Off"))
    commit(log, "b", rows(1, 1))
    assert (log.snapshot().head.iceberg, hint(lake)) == ("Off", log.snapshot().version - 1)


def test_crash_between_marker_and_export_is_made_good_by_the_next(lake: Lake) -> None:
    created(lake)
    probe = FaultStore(open_store(StoreConfig(lake.store.url)))
    commit(DatasetLog(probe, "t"), "a", rows(0, 1))
    keys_put = [call.key for call in probe.calls if call.name.startswith("put")]
    first = next(n for n, key in enumerate(keys_put) if key.startswith(keys.iceberg("t")))
    assert keys.marker("t", "a") in keys_put[:first], "the export follows the marker"
    before = hint(lake)
    crashing = FaultStore(open_store(StoreConfig(lake.store.url)), Fault(key=keys.iceberg("t")))
    with pytest.raises(Crash):
        commit(DatasetLog(crashing, "t"), "b", rows(1, 1))
    assert (lake.dataset("t").version, hint(lake)) == (before + 1, before)
    lake.dataset("t").append(rows(2, 1))
    assert versions(lake)[-2:] == [before + 1, before + 2]
    assert exported(lake).scan().to_arrow().num_rows == 3


def test_failing_export_does_not_fail_the_commit(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    dataset = created(lake)
    dataset.append(pa.table({"row": [1], "big": pa.array([2**63], pa.uint64())}), evolve=True)
    assert (dataset.version, hint(lake)) == (3, 2)
    assert "was committed, and not exported: SchemaMismatch" in caplog.text
    note = json.loads(lake.store.get(keys.iceberg_problem("t")))
    assert note["version"] == 3
    assert "column 'big' (uint64)" in note["problem"]
    dataset.set_iceberg("Omit")
    assert hint(lake) == dataset.version
    assert exported(lake).schema().column_names == ["row"]


def test_writer_without_pyiceberg_leaves_it_to_the_next(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = created(lake)
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "kubothek.table.iceberg.export", raising=False)
        without.setitem(sys.modules, "pyiceberg", None)
        without.setitem(sys.modules, "pyiceberg.manifest", None)
        without.setitem(sys.modules, "pyiceberg.exceptions", None)
        dataset.append(rows(0, 1))
    assert hint(lake) == dataset.version - 1
    assert not list(lake.store.list(keys.iceberg_problem("t")))
    dataset.append(rows(1, 1))
    assert versions(lake) == [1, 2, 3, 4]


def test_slow_export_does_not_put_an_earlier_hint(lake: Lake) -> None:
    dataset = created(lake)

    class Slow(FaultStore):
        """Another writer commits and exports while this one exports."""

        overtaken = False

        def put(self, key: str, data: bytes | memoryview) -> str:
            if key.endswith(".metadata.json") and not self.overtaken:
                self.overtaken = True
                dataset.append(rows(5, 1))
            return super().put(key, data)

    store = Slow(open_store(StoreConfig(lake.store.url)))
    version = commit(DatasetLog(store, "t"), "slow", rows(0, 1))
    assert store.overtaken
    assert (dataset.version, hint(lake)) == (version + 1, version + 1)
    assert exported(lake).scan().to_arrow().num_rows == 2


def test_hint_of_a_version_that_never_was_is_replaced(lake: Lake) -> None:
    dataset = created(lake)
    lake.store.put(f"{keys.iceberg('t')}metadata/version-hint.text", b"99")
    dataset.append(rows(0, 1))
    assert hint(lake) == dataset.version


def test_commit_of_a_cube_exports_its_members(lake: Lake) -> None:
    cube = lake.create_cube("geo", dimension_columns="row", partition_columns="part")
    cube.build({"seed": rows(0, 2).append_column("part", pa.array([1, 1]))})
    lake.dataset("geo++seed").set_iceberg("Omit")
    before = hint(lake, "geo++seed")
    cube.append({"seed": rows(2, 2).append_column("part", pa.array([1, 1]))})
    assert hint(lake, "geo++seed") == before + 1


def test_retry_of_a_cube_commit_exports_what_the_crash_left(lake: Lake) -> None:
    data = rows(0, 2).append_column("part", pa.array([1, 1]))
    lake.create_cube("geo", dimension_columns="row", partition_columns="part").build({"seed": data})
    lake.dataset("geo++seed").set_iceberg("Omit")
    before = hint(lake, "geo++seed")
    crashing = FaultStore(open_store(StoreConfig(lake.store.url)), Fault(key=keys.iceberg("geo++seed")))
    with pytest.raises(Crash):
        Lake(crashing).cube("geo").append({"seed": data}, id="a")
    assert hint(lake, "geo++seed") == before
    lake.cube("geo").append({"seed": data}, id="a")
    assert hint(lake, "geo++seed") == before + 1


def test_collection_keeps_why_the_export_failed(lake: Lake) -> None:
    dataset = created(lake)
    dataset.append(pa.table({"row": [1], "big": pa.array([2**63], pa.uint64())}), evolve=True)
    collection = dataset.collect(keep_versions=1, enforce=True)
    assert (collection.unknown.objects, collection.young.objects) == (0, 0)
    assert list(lake.store.list(keys.iceberg_problem("t")))
    assert keys.iceberg_problem("t") in notes("t"), "which go when there is no table any more"


def test_retry_of_a_commit_exports_what_the_crash_left(lake: Lake) -> None:
    created(lake)
    crashing = FaultStore(open_store(StoreConfig(lake.store.url)), Fault(key=keys.iceberg("t")))
    with pytest.raises(Crash):
        commit(DatasetLog(crashing, "t"), "a", rows(0, 1))
    version = lake.dataset("t").version
    assert hint(lake) == version - 1
    retried = FaultStore(open_store(StoreConfig(lake.store.url)))
    assert commit(DatasetLog(retried, "t"), "a", rows(0, 1)) == version
    assert hint(lake) == version
    retried.calls.clear()
    commit(DatasetLog(retried, "t"), "a", rows(0, 1))
    assert [call.name for call in retried.calls if call.key.startswith(keys.iceberg("t"))] == ["get"]


def test_retry_of_tags_and_settings_exports_what_the_crash_left(lake: Lake) -> None:
    dataset = created(lake)
    dataset.append(rows(0, 1))
    changes: list[Callable[[DatasetLog], object]] = [
        lambda log: log.set_tags({"a": 3}),
        lambda log: log.untag("a"),
        lambda log: log.set_iceberg(IcebergSetting("Omit")),
    ]
    for change in changes:
        before = hint(lake)
        crashing = FaultStore(open_store(StoreConfig(lake.store.url)), Fault(key=keys.iceberg("t")))
        with pytest.raises(Crash):
            change(DatasetLog(crashing, "t"))
        assert (lake.dataset("t").version, hint(lake)) == (before + 1, before)
        change(DatasetLog(lake.store, "t"))
        assert (lake.dataset("t").version, hint(lake)) == (before + 1, before + 1)


def test_retry_whose_export_ends_the_process_succeeds_next_time(lake: Lake) -> None:
    created(lake)
    for fault in (keys.iceberg("t"), keys.iceberg_metadata("t")):  # after the commit, and in the export of its retry
        crashing = FaultStore(open_store(StoreConfig(lake.store.url)), Fault(key=fault))
        with pytest.raises(Crash):
            commit(DatasetLog(crashing, "t"), "a", rows(0, 1))
    assert commit(DatasetLog(lake.store, "t"), "a", rows(0, 1)) == lake.dataset("t").version
    assert "memory or time" in str(export_problem(lake.store, "t", hint(lake)))
    lake.dataset("t").append(rows(1, 1))
    assert hint(lake) == lake.dataset("t").version
    assert export_problem(lake.store, "t", hint(lake)) is None


def test_exporter_that_cannot_be_imported_does_not_fail_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = created(lake)

    def broken(name: str) -> ModuleType:
        raise ImportError(f"cannot import name 'DataFile' from {name}")

    monkeypatch.setattr(exports, "import_module", broken)
    dataset.append(rows(0, 1))
    assert (dataset.version, hint(lake)) == (3, 2)
    assert "cannot import name" in str(export_problem(lake.store, "t", 2))


def cells(table: pa.Table) -> list[int]:
    return sorted(table["x"].to_pandas())


def test_export_during_a_transaction_of_a_cube_shows_the_cube(tmp_path: Path) -> None:
    """As readers of the members see it: the commit begins to exist when the head of the cube names it."""
    shown = set()
    for swap in range(1, 5):  # to the intent, of each member, and of the cube
        (directory := tmp_path / str(swap)).mkdir()
        lake = kubothek.open(directory)
        cube_store.build(lake.store)
        with pytest.raises(Crash):
            cube_store.append(FaultStore(lake.store, Fault(("put_if_match",), swap, after=True)))
        found = []
        for uuid in ("geo++seed", "geo++extra"):
            version = lake.dataset(uuid).export_iceberg().version
            assert version == hint(lake, uuid) == versions(lake, uuid)[-1] == lake.dataset(uuid).version
            found.append(cells(exported(lake, uuid).scan().to_arrow()))
            assert found[-1] == cells(lake.dataset(uuid).scan().read_all())
        shown.add(str(found))
        cube_store.append(lake.store)
        assert lake.dataset("geo++extra").export_iceberg().version == hint(lake, "geo++extra")
        assert cells(exported(lake, "geo++extra").scan().to_arrow()) == [1, 3]
    assert shown == {"[[1, 2], [1]]", "[[1, 2, 3], [1, 3]]"}
