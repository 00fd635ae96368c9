"""An export after a commit, by a process that knows what it exported last: requests, and other exports in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import kubothek
from kubothek import Dataset, IcebergExport, Lake
from kubothek.errors import TooSlow
from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg import objects, published
from kubothek.table.iceberg.export import export
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from tests.faultstore import Crash, Fault, FaultStore
from tests.s3server import S3Server
from tests.table.iceberg.test_export import PAYLOAD, VALUES, check, directory, files, rows


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path / "lake")


def export_after(dataset: Dataset, committed: Any, *, version_hint: bool | None = None) -> IcebergExport:
    """Export as the program does that has just committed."""
    log = dataset._log(writing=True)
    return export(dataset._store, log, committed=committed.record_key, version_hint=version_hint)


@contextmanager
def another_process() -> Iterator[None]:
    """Without what this process remembers of its exports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "_LAST", Kept(1 << 20))
        patch.setattr(objects, "_WRITTEN", Kept(1 << 20))
        yield


@pytest.mark.s3
@pytest.mark.parametrize("version_hint", [False, True])
def test_export_after_a_commit_makes_three_requests_and_a_hint(tmp_path: Path, version_hint: bool) -> None:
    with S3Server() as s3:
        secret = str(s3.write_secret(tmp_path / "secret"))
        lake = kubothek.open(f"s3://{s3.create_bucket('exports')}", endpoint=s3.endpoint, credentials_dir=secret)
        dataset = lake.create_dataset("t")
        export_after(dataset, dataset.append(rows(0, 3)), version_hint=version_hint)
        for _ in range(2):
            committed = dataset.append(rows(3, 3))
            before = len(_requests(s3, lake))
            export_after(dataset, committed, version_hint=version_hint)
            made = _requests(s3, lake)[before:-1]
            assert {method for method, _ in made} == {"PUT"}
            names = [key.rpartition("/")[2] for _, key in made]
            assert names[2:] == [
                f"v{committed.version}.metadata.json",
                *(["version-hint.text"] if version_hint else []),
            ]


def _requests(s3: S3Server, lake: Lake) -> list[tuple[str, str]]:
    """Method and key of all requests, up to one that is made here."""
    mark = f"mark-{time.monotonic_ns()}"
    lake.store.put(mark, b"")
    while mark not in (text := s3.log.read_text()):
        time.sleep(0.01)
    columns = (line.split("|") for line in text.splitlines() if "| vgw |" in line)
    return [(method.strip(), key.strip()) for _, _, _, _, _, method, key, *_ in columns]


def test_export_in_between_is_continued(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    export_after(dataset, dataset.append(rows(0, 3)))
    with another_process():
        other = lake.dataset("t")
        export_after(other, other.append(rows(3, 3)))
    table = check(dataset, export_after(dataset, dataset.append(rows(6, 3))))
    log = [entry.metadata_file.rpartition("/")[2] for entry in table.metadata.metadata_log]
    assert log == ["v2.metadata.json", "v3.metadata.json"]


def test_export_of_an_earlier_commit_leaves_a_later_one(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    export_after(dataset, dataset.append(rows(0, 3)))
    late = dataset.append(rows(3, 3))
    with another_process():
        other = lake.dataset("t")
        later = export_after(other, other.append(rows(6, 3)))
    sound = files(later)
    assert export_after(dataset, late).version == later.version
    assert sound.items() <= files(later).items()


@pytest.mark.parametrize("version_hint", [False, True])
def test_export_that_writers_always_overtake_returns_one_of_theirs(lake: Lake, version_hint: bool) -> None:
    dataset = lake.create_dataset("t")
    dataset.set_iceberg("Refuse", version_hint=version_hint)
    dataset.append(rows(0, 3))

    class Overtaken(FaultStore):
        """Another process commits and exports before each export of this one becomes the last."""

        def _overtake(self, key: str) -> None:
            if key.startswith(keys.iceberg_metadata("t")):
                with another_process():
                    other = kubothek.open(lake.store.url).dataset("t")
                    other.export_iceberg()
                    other.append(rows(3, 1))

        def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
            self._overtake(key)
            return super().put_if_absent(key, data)

        def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
            self._overtake(key)
            return super().put_if_match(key, data, etag)

    committed = dataset.version
    store = Overtaken(lake.store)
    lake.store.delete([info.key for info in lake.store.list(keys.iceberg_metadata("t")) if "-m" not in info.key])
    exported = export(store, DatasetLog(store, "t"))
    assert exported.version > committed
    assert exported.version_hint == version_hint
    assert StaticTable.from_metadata(exported.metadata_location).metadata.current_snapshot_id == exported.version


def test_tables_replaced_by_a_rebuild_are_continued(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    with another_process():
        for path in directory(exported).iterdir():
            path.unlink()
        lake.dataset("t").export_iceberg()
    check(dataset, export_after(dataset, dataset.append(rows(3, 3))))


def test_export_that_outlasts_the_grace_is_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    sound = files(exported)
    dataset.append(rows(3, 3))
    monkeypatch.setattr(published, "_NEVER_TOO_SLOW", timedelta())
    monkeypatch.setattr(published.Publications, "_limit", timedelta())
    with pytest.raises(TooSlow, match="garbage collection may delete its files"):
        dataset.export_iceberg()
    assert sound.items() <= files(exported).items()


def test_last_export_that_is_old_is_read_again(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    known = published._LAST.recall((lake.store.url, "t"))
    assert known
    began, ticks = known[0].at
    published._LAST.keep((lake.store.url, "t"), replace(known[0], at=(began - timedelta(days=1), ticks)), 1)
    (directory(exported) / "v2.metadata.json").unlink()
    table = check(dataset, export_after(dataset, dataset.append(rows(3, 3))))
    assert table.metadata.metadata_log == []


def test_removal_reads_only_manifests_with_its_partitions(lake: Lake) -> None:
    for column, (data_type, values) in VALUES.items():
        dataset = lake.create_dataset(f"by-{column}", column, PAYLOAD.append(pa.field(column, data_type)))
        for n, value in enumerate([*values, *values[::-1]]):
            dataset.append(rows(n, 1, **{column: value}))
        for n, value in enumerate(values):
            dataset.export_iceberg()
            dataset.replace(rows(100 + n, 1, **{column: value}))
            counting = FaultStore(lake.store)
            export(counting, DatasetLog(counting, dataset.name))
            read = sum(call.name == "get" and call.key.endswith("-m.avro") for call in counting.calls)
            assert read <= (2 if column != "fraction" else 2 * len(values) + n), (column, value)
        check(dataset, dataset.export_iceberg())


def test_removal_from_a_column_that_changes_its_type_is_exported(lake: Lake) -> None:
    dataset = lake.create_dataset("t", "part", {"part": "int64", "row": "int64"})
    for n in range(3):
        dataset.append(pa.table({"part": [n], "row": [n]}))
    dataset.export_iceberg()
    dataset.overwrite(pa.table({"part": ["a"], "row": [1]}), allow_schema_change=True)
    table = StaticTable.from_metadata(dataset.export_iceberg().table_location)
    assert table.scan().to_arrow().to_pylist() == [{"part": "a", "row": 1}]


@pytest.mark.parametrize("byte", [0, 1 / 3, 1 / 2, 2 / 3])
def test_file_with_one_wrong_byte_is_made_anew_when_read(lake: Lake, byte: float) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    dataset.append(rows(3, 3))
    exported = dataset.export_iceberg()
    sound = files(exported)

    def damage(ending: str) -> None:
        for path in directory(exported).glob(ending):
            data = bytearray(path.read_bytes())
            data[int(byte * len(data))] ^= 0x55
            path.write_bytes(data)

    damage("snap-3-*")
    assert files(dataset.export_iceberg()) == sound
    damage("*-m.avro")
    dataset.overwrite(rows(9, 1))
    check(dataset, dataset.export_iceberg())


@pytest.mark.parametrize("fault", [Fault(nth=nth, after=after) for nth in range(1, 6) for after in (False, True)])
def test_crash_after_a_commit_is_completed_by_another_process(lake: Lake, fault: Fault) -> None:
    store = FaultStore(lake.store)
    dataset = Lake(store).dataset(lake.create_dataset("t").name)
    exported = export_after(dataset, dataset.append(rows(0, 3)))
    committed = dataset.append(rows(3, 3))
    store.fault = fault
    with pytest.raises(Crash):
        export_after(dataset, committed)
    assert StaticTable.from_metadata(exported.table_location).scan().to_arrow().num_rows in (3, 6)
    with another_process():
        other = lake.dataset("t")
        check(other, other.export_iceberg())
