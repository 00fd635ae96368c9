"""Exports without a version hint: table metadata of the latest version is the last export."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import kubothek
from kubothek import Dataset, Lake
from kubothek.storage import StoreConfig, open_store
from kubothek.table.iceberg.export import export
from kubothek.table.iceberg.state import iceberg_state
from kubothek.table.log import DatasetLog
from kubothek.table.log.exports import exported_version, exported_versions
from kubothek.table.log.model import keys
from tests.faultstore import Crash, FaultStore, every_crash
from tests.table.iceberg.test_after_commits import rows
from tests.table.iceberg.test_published import another_process


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path)


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    """Versions 1 to 3, all exported, without a version hint."""
    dataset = lake.create_dataset("t", schema={"row": "int64"})
    dataset.set_iceberg("Omit", version_hint=False)
    dataset.append(rows(0, 1))
    return dataset


def exported(lake: Lake) -> StaticTable:
    version = exported_version(lake.store, "t", lake.dataset("t").version)
    return StaticTable.from_metadata(f"{lake.store.url}/{keys.iceberg_table('t', version)}")


def cells(table: pa.Table) -> list[int]:
    return sorted(table["row"].to_pandas())


def has_hint(lake: Lake) -> bool:
    return bool(list(lake.store.list(keys.iceberg_hint("t"))))


def check(lake: Lake) -> list[str]:
    """Check the last export; return the names of the table metadata before it."""
    dataset, table = lake.dataset("t"), exported(lake)
    assert not has_hint(lake)
    assert [each.snapshot_id for each in table.snapshots()] == [*range(1, dataset.version + 1)]
    for version in range(2, dataset.version + 1):
        assert cells(table.scan(snapshot_id=version).to_arrow()) == cells(dataset.scan(as_of=version).read_all())
    return [entry.metadata_file.rpartition("/")[2].partition(".")[0] for entry in table.metadata.metadata_log]


def test_commits_write_table_metadata_and_no_hint(lake: Lake, dataset: Dataset) -> None:
    assert check(lake) == ["v2"]
    dataset.append(rows(1, 1))
    dataset.compact()
    dataset.tag("a", 4)
    assert check(lake) == ["v2", "v3", "v4", "v5"]
    assert exported(lake).refs()["a"].snapshot_id == 4


def test_exports_of_several_processes_continue_one_another(lake: Lake, dataset: Dataset) -> None:
    with another_process():
        kubothek.open(lake.store.url).dataset("t").append(rows(1, 1))
    dataset.append(rows(2, 1))
    assert check(lake) == ["v2", "v3", "v4"]


def test_export_of_an_earlier_commit_beside_a_later_one_is_no_step_back(lake: Lake, dataset: Dataset) -> None:
    class Slow(FaultStore):
        """Another writer commits and exports, before this one creates its metadata."""

        overtaken = False

        def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
            if key == keys.iceberg_table("t", 4) and not self.overtaken:
                self.overtaken = True
                with another_process():
                    kubothek.open(lake.store.url).dataset("t").append(rows(2, 1))
            return super().put_if_absent(key, data)

    slow = Slow(open_store(StoreConfig(lake.store.url)))
    writer = Lake(slow).dataset("t")
    writer.append(rows(1, 1))
    assert slow.overtaken
    assert sorted(exported_versions(lake.store, "t")) == [2, 3, 4, 5]
    assert check(lake) == ["v2", "v3"]
    writer.append(rows(3, 1))
    assert check(lake) == ["v2", "v3", "v5"]


def test_crash_at_every_call_of_an_export_is_completed(lake: Lake, dataset: Dataset, tmp_path: Path) -> None:
    def attempt(name: str, store: FaultStore) -> None:
        """Export version 4 of a new table, which an earlier process exported up to version 3."""
        log = DatasetLog(store, name)
        export(store, log, version_hint=False)

    def prepared(name: str) -> None:
        made = lake.create_dataset(name, schema={"row": "int64"})
        made.append(rows(0, 1))
        export(lake.store, DatasetLog(lake.store, name), version_hint=False)
        made.append(rows(1, 1))

    prepared("probe")
    attempt("probe", probe := FaultStore(lake.store))
    calls = [call for call in probe.calls if call.name.startswith("put")]
    assert [call.name for call in calls][-1:] == ["put_if_absent"]
    for number, fault in enumerate(every_crash(probe.calls)):
        prepared(name := f"crash{number}")
        with pytest.raises(Crash):
            attempt(name, FaultStore(lake.store, fault))
        export(lake.store, DatasetLog(lake.store, name), version_hint=False)
        assert exported_version(lake.store, name, 3) == 3
        table = StaticTable.from_metadata(f"{lake.store.url}/{keys.iceberg_table(name, 3)}")
        assert table.scan().to_arrow().num_rows == 2


def test_setting_without_hint_removes_the_hint_and_back(lake: Lake, dataset: Dataset) -> None:
    dataset.set_iceberg("Omit")
    assert has_hint(lake)
    dataset.append(rows(1, 1))
    assert exported_version(lake.store, "t", 0) == dataset.version
    dataset.set_iceberg("Omit", version_hint=False)
    assert check(lake) == ["v2", "v3", "v4", "v5"]
    dataset.append(rows(2, 1))
    assert check(lake)[-1] == "v6"
    with another_process():
        dataset.set_iceberg("Omit")
        dataset.set_iceberg("Omit", version_hint=False)
    assert check(lake)[-1] == "v8"


def test_crash_between_removal_of_the_hint_and_metadata_is_completed(lake: Lake, dataset: Dataset) -> None:
    log, probe = DatasetLog(lake.store, "t"), FaultStore(lake.store)
    export(lake.store, log, version_hint=True)
    export(probe, DatasetLog(probe, "t"), version_hint=False)
    assert "delete" in {call.name for call in probe.calls}
    for fault in every_crash(probe.calls):
        export(lake.store, log, version_hint=True)
        store = FaultStore(lake.store, fault)
        with pytest.raises(Crash):
            export(store, DatasetLog(store, "t"), version_hint=False)
        export(lake.store, log, version_hint=False)
        check(lake)


def test_metadata_above_the_head_of_a_restored_backup_is_replaced(lake: Lake, dataset: Dataset) -> None:
    later = lake.create_dataset("later", schema={"row": "int64"})
    later.set_iceberg("Omit", version_hint=False)
    for n in range(3):
        later.append(rows(n, 1))
    for version in (4, 5):
        location = keys.iceberg_table("later", version)
        lake.store.put(keys.iceberg_table("t", version), lake.store.get(location).replace(b"/later/", b"/t/"))
    state = iceberg_state(lake.store, log := DatasetLog(lake.store, "t"), log.snapshot())
    assert state
    assert (state.version, state.lag) == (3, 0)
    dataset.append(rows(1, 1))
    dataset.append(rows(2, 1))
    check(lake)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"format-version": 2}'])
def test_damaged_metadata_is_replaced(lake: Lake, dataset: Dataset, damage: bytes) -> None:
    for version in (3, 4):
        lake.store.put(keys.iceberg_table("t", version), damage)
    with another_process():
        dataset.append(rows(1, 1))
    assert check(lake) == []


def test_export_by_hand_keeps_the_setting(lake: Lake, dataset: Dataset) -> None:
    dataset.export_iceberg(rebuild=True)
    assert check(lake) == []
    other = lake.create_dataset("by-hand")
    other.append(pa.table({"row": [1]}))
    assert StaticTable.from_metadata(other.export_iceberg().table_location).scan().to_arrow().num_rows == 1
