"""Iceberg metadata of a table, read by pyiceberg: at every version, the rows are those of Kubothek's own scan."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable
from pyiceberg.table.sorting import NullOrder

import kubothek
from kubothek import Dataset, IcebergExport, Lake
from kubothek.errors import SchemaMismatch
from kubothek.storage import StoreConfig, open_store
from kubothek.storage.urls import FileLocation, parse_url
from kubothek.table.iceberg import manifests
from kubothek.table.iceberg.export import export
from kubothek.table.log import DatasetLog, Transaction
from kubothek.table.log.ownership import Claim
from kubothek.table.operations import append, write_rows
from tests.faultstore import Crash, FaultStore, every_crash

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "Zürich", "50 %/day=1", "%20", "日本", ""]),
    "number": (pa.int64(), [-1, 0, 2**62]),
    "fraction": (pa.float64(), [0.25, -0.5, math.inf]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29)]),
    "time": (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2024, 2, 29, 12)]),
}
_FIELDS: list[pa.Field[Any]] = [
    pa.field("amount", pa.decimal128(9, 2)),
    pa.field("data", pa.binary()),
    pa.field("items", pa.list_(pa.int64())),
    pa.field("name", pa.string()),
    pa.field("point", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())])),
    pa.field("row", pa.int64()),
    pa.field("valid", pa.bool_()),
]
PAYLOAD = pa.schema(_FIELDS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return kubothek.open(tmp_path / "lake of 100 % ü")


def rows(first: int, count: int, **more: Any) -> pa.Table:
    """Rows with nulls in every column, and ``more`` columns of one value."""
    numbers = range(first, first + count)
    table = pa.table(
        {
            "amount": [None if n % 5 == 0 else Decimal(n) / 4 for n in numbers],
            "data": [None if n % 3 == 0 else bytes([n % 256]) * 40 for n in numbers],
            "items": [None if n % 4 == 0 else [n, None][: n % 3] for n in numbers],
            "name": [None if n % 7 == 0 else f"{n} \U0010ffff" * 9 for n in numbers],
            "point": [None if n % 6 == 0 else {"x": math.nan if n % 2 else n, "y": None} for n in numbers],
            "row": list(numbers),
            "valid": [None if n % 2 else n % 3 == 0 for n in numbers],
        },
        PAYLOAD,
    )
    for name, value in more.items():
        table = table.append_column(name, pa.array([value] * count, VALUES[name][0] if name in VALUES else None))
    return table


def multiset(table: pa.Table) -> Counter[str]:
    """The rows in any order; NaN equals NaN."""
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


def check(dataset: Dataset, exported: IcebergExport) -> StaticTable:
    """Compare all versions and tags with Kubothek's own scans."""
    table = StaticTable.from_metadata(exported.table_location)
    assert table.metadata_location.endswith(f"v{dataset.version}.metadata.json")
    versions = sorted({record.version for record in dataset.history()} | {*dataset.tags().values()})
    snapshots = {each.snapshot_id: each for each in table.snapshots()}
    assert sorted(snapshots) == versions
    for version in versions:
        ours = dataset.scan(as_of=version).read_all()
        assert multiset(table.scan(snapshot_id=version).to_arrow()) == multiset(ours), version
        summary = snapshots[version].summary
        assert summary is not None
        assert summary["total-records"] == str(ours.num_rows)
    refs = {name: ref.snapshot_id for name, ref in table.refs().items()}
    assert refs == {"main": dataset.version, **dataset.tags()}
    return table


def directory(exported: IcebergExport) -> Path:
    return Path(exported.table_location.removeprefix("file://")) / "metadata"


def files(exported: IcebergExport) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory(exported).iterdir()}


@pytest.mark.parametrize("column", VALUES)
def test_partition_values_of_every_type_are_read(lake: Lake, column: str) -> None:
    data_type, values = VALUES[column]
    schema = PAYLOAD.append(pa.field(column, data_type))
    dataset = lake.create_dataset("t", column, schema)
    for n, value in enumerate(values):
        dataset.append(rows(10 * n, 10, **{column: value}))
    table = check(dataset, dataset.export_iceberg())
    for value in values:
        literal = value.isoformat() if isinstance(value, date) else value
        scan = table.scan(row_filter=_equal(column, literal))
        assert scan.to_arrow().num_rows == 10, value
        assert len(list(scan.plan_files())) == 1


def test_export_continues_from_one_without_columns(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    assert dataset.export_iceberg().version == 1
    dataset.append(rows(0, 3))
    check(dataset, dataset.export_iceberg())


def _equal(column: str, literal: Any) -> BooleanExpression:
    return EqualTo(column, literal)  # type: ignore[call-arg, misc, unused-ignore]


def test_bounds_of_columns_prune_files(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    for n in range(4):
        dataset.append(rows(100 * n, 100))
    table = check(dataset, dataset.export_iceberg())
    for filter_ in ("row = 250", "amount >= 99.75"):
        assert len(list(table.scan(row_filter=filter_).plan_files())) == 1, filter_
    assert (
        table.scan(row_filter="name is null").to_arrow().num_rows
        == dataset.scan(where="name IS NULL").read_all().num_rows
    )


def test_export_again_writes_no_manifest(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    first = dataset.export_iceberg()
    before = files(first)
    assert first.manifests_written == 1
    assert dataset.export_iceberg().manifests_written == 0
    assert files(first) == before
    dataset.append(rows(3, 3))
    second = dataset.export_iceberg()
    assert second.manifests_written == 1
    assert before.items() - {("version-hint.text", b"2")} <= files(second).items()


def test_deleted_files_are_entries_of_a_rewritten_manifest(lake: Lake) -> None:
    dataset = lake.create_dataset("t", "day", PAYLOAD.append(pa.field("day", pa.date32())))
    for day in VALUES["day"][1]:
        dataset.append(rows(0, 5, day=day))
    dataset.replace(rows(9, 1, day=date(2024, 2, 29)))
    table = check(dataset, dataset.export_iceberg())
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [
        (entry.status, entry.snapshot_id, entry.sequence_number)
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    assert sorted(entries) == [
        (ManifestEntryStatus.ADDED, 2, 2),
        (ManifestEntryStatus.ADDED, 4, 4),
        (ManifestEntryStatus.DELETED, 4, 3),
    ]


def test_many_manifests_are_merged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "MOST_SMALL", 3)
    monkeypatch.setattr(manifests, "FULL", 6)
    dataset = lake.create_dataset("t")
    for n in range(14):
        dataset.append(rows(n, 1))
        if n % 3 == 0:
            dataset.export_iceberg()
    table = check(dataset, dataset.export_iceberg())
    for snapshot in table.snapshots():
        assert len(snapshot.manifests(table.io)) <= 3 + 14 // 6 + 1


def test_field_ids_stay_through_evolution(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    before = StaticTable.from_metadata(dataset.export_iceberg().table_location).schema()
    dataset.append(rows(3, 3, alpha="a"), evolve=True)
    table = check(dataset, dataset.export_iceberg())
    ids = {field.name: field.field_id for field in table.schema().fields}
    assert {field.name: field.field_id for field in before.fields}.items() <= ids.items()
    assert ids["alpha"] == table.metadata.last_column_id
    assert sorted(table.schemas()) == [0, 1, 2]


def test_double_partition_values_stay_exact_when_rewritten(lake: Lake) -> None:
    dataset = lake.create_dataset("t", "fraction", {"fraction": "float64", "row": "int64"})
    dataset.append(pa.table({"fraction": [0.1, -1e300], "row": [1, 2]}))
    before = files(dataset.export_iceberg())
    dataset.delete("fraction = 0.1")
    exported = dataset.export_iceberg()
    (rewritten,) = [data for name, data in files(exported).items() if name.endswith("-m.avro") and name not in before]
    assert struct.pack("<d", -1e300) in rewritten.partition(b"data_file")[2]
    assert struct.pack("<d", 0.1) in rewritten


def test_sort_order_is_that_of_the_layout(lake: Lake) -> None:
    dataset = lake.create_dataset("t", schema=PAYLOAD, sort_by=["row", "name"])
    table = check(dataset, dataset.export_iceberg())
    order = [
        (table.schema().find_column_name(field.source_id), field.null_order) for field in table.sort_order().fields
    ]
    assert order == [("row", NullOrder.NULLS_LAST), ("name", NullOrder.NULLS_LAST)]


def test_columns_without_an_equal_are_named_or_left_out(lake: Lake) -> None:
    dataset = lake.create_dataset("t", "big", {"big": "uint64", "row": "int64", "span": "duration[us]"})
    dataset.append(pa.table({"big": pa.array([2**63], pa.uint64()), "row": [1], "span": [timedelta(1)]}))
    with pytest.raises(SchemaMismatch, match=r"column 'big' \(uint64\), column 'span' \(duration\[us\]\)"):
        dataset.export_iceberg()
    exported = dataset.export_iceberg(omit_unsupported=True)
    table = StaticTable.from_metadata(exported.table_location)
    assert table.schema().column_names == ["row"]
    assert table.spec().fields == ()
    (task,) = table.scan().plan_files()  # pyiceberg 0.12 opens no file with a column of such a type
    assert task.file.record_count == 1


def test_rescaled_decimals_beside_old_files_are_an_error(lake: Lake) -> None:
    dataset = lake.create_dataset("t", schema={"price": "decimal128(5,2)"})
    dataset.append(pa.table({"price": [Decimal("1.25")]}))
    dataset.append(pa.table({"price": pa.array([Decimal("1.2505")], pa.decimal128(7, 4))}), evolve=True)
    with pytest.raises(SchemaMismatch, match="scale of the decimals of 'price'"):
        dataset.export_iceberg()


def test_expired_versions_leave_the_snapshots_and_tagged_ones_stay(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    for n in range(4):
        dataset.append(rows(n, 2))
    dataset.tag("audit", 2)
    dataset.overwrite(rows(9, 2))
    dataset.export_iceberg()
    dataset.collect(keep_versions=1, enforce=True)
    kept = check(dataset, dataset.export_iceberg())
    anew = check(dataset, dataset.export_iceberg(rebuild=True))
    assert sorted(each.snapshot_id for each in kept.snapshots()) == sorted(
        each.snapshot_id for each in anew.snapshots()
    )


def test_restored_dataset_is_exported_as_before(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    before = dataset.export_iceberg()
    log = DatasetLog(lake.store, "t")
    log.delete()
    log.restore()
    table = StaticTable.from_metadata(dataset.export_iceberg().table_location)
    assert table.scan().to_arrow().num_rows == 3
    assert before.version < dataset.version


def test_recreated_dataset_is_a_table_of_its_own(lake: Lake) -> None:
    first = lake.create_dataset("t")
    first.append(rows(0, 3))
    former = StaticTable.from_metadata(first.export_iceberg().table_location)
    DatasetLog(lake.store, "t").delete()
    log = DatasetLog(lake.store, "t", claim=Claim("new", "2"))
    started = log.begin_new("new")
    assert isinstance(started, Transaction)
    written = write_rows(lake.store, started.snapshot, rows(5, 1), table=None)
    started.commit(append(written))
    table = StaticTable.from_metadata(export(lake.store, log).table_location)
    assert table.metadata.table_uuid != former.metadata.table_uuid
    assert table.scan().to_arrow().num_rows == 1


def test_overwritten_versions_leave_the_snapshots(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    head = directory_of(lake) / "t.by-dataset-metadata.json"
    former = head.read_bytes()
    dataset.append(rows(3, 3))
    dataset.export_iceberg()
    foreign = json.loads(former)
    foreign["metadata"]["other"] = "program"
    head.write_text(json.dumps(foreign))
    lake.dataset("t").append(rows(6, 1))
    dataset = lake.dataset("t")
    check(dataset, dataset.export_iceberg())


def test_crash_at_every_call_then_export_gives_the_same(lake: Lake, tmp_path: Path) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    dataset.export_iceberg()
    dataset.append(rows(3, 3))
    dataset.delete("row = 1", row_level=True)
    root = directory_of(lake)
    kept = tmp_path / "kept"
    shutil.copytree(root, kept)
    counting = FaultStore(open_store(StoreConfig(lake.store.url)))
    expected = files(export(counting, DatasetLog(counting, "t")))
    assert sum(call.name == "put" for call in counting.calls) >= 6
    for fault in every_crash(counting.calls):
        shutil.rmtree(root)
        shutil.copytree(kept, root)
        store = FaultStore(open_store(StoreConfig(lake.store.url)), fault)
        with pytest.raises(Crash):
            export(store, DatasetLog(store, "t"))
        readable = StaticTable.from_metadata(f"file://{root}/.kubothek/t/iceberg")
        assert readable.scan().to_arrow().num_rows in (3, 5)
        assert files(export(store.inner, DatasetLog(store.inner, "t"))) == expected


def directory_of(lake: Lake) -> Path:
    location = parse_url(lake.store.url)
    assert isinstance(location, FileLocation)
    return location.root


@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_damaged_files_are_made_anew(lake: Lake, damage: str) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    dataset.append(rows(3, 3))
    exported = dataset.export_iceberg()
    sound = files(exported)
    for name in sound:
        if name.startswith("snap-") and not name.startswith("snap-3") and damage == "truncated":
            continue  # only a rebuild reads the lists of former versions
        path = directory(exported) / name
        if damage == "removed":
            path.unlink()
        else:
            path.write_bytes(sound[name][: len(sound[name]) // 2])
        assert files(dataset.export_iceberg()) == sound, name
    for name in sound:
        (directory(exported) / name).write_bytes(b"\0" * len(sound[name]))
    assert files(dataset.export_iceberg(rebuild=True)) == sound


def test_unreadable_files_of_the_same_size_are_made_anew_when_read(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    dataset.append(rows(0, 3))
    dataset.append(rows(3, 3))
    exported = dataset.export_iceberg()
    sound = files(exported)
    for name in sound:
        if name.startswith(("v", "snap-3")):
            (directory(exported) / name).write_bytes(b"\0" * len(sound[name]))
            assert files(dataset.export_iceberg()) == sound, name
    for name in sound:
        if name.endswith("-m.avro"):
            (directory(exported) / name).write_bytes(b"\0" * len(sound[name]))
    dataset.delete("row = 1", row_level=True)
    check(dataset, dataset.export_iceberg())


def test_collector_and_verification_leave_the_metadata(lake: Lake) -> None:
    dataset = lake.create_dataset("t")
    for n in range(3):
        dataset.append(rows(n, 2))
    exported = dataset.export_iceberg()
    before = files(exported)
    dataset.overwrite(rows(9, 1))
    collection = dataset.collect(keep_versions=1, enforce=True)
    assert (collection.unknown.objects, collection.young.objects) == (0, 0)
    assert dataset.verify().wrong == 0
    assert dataset.heal().repaired == ()
    assert files(exported) == before
    assert lake.datasets() == ["t"]
    check(dataset, dataset.export_iceberg())


def test_plateau_reads_the_table_beside_the_metadata(lake: Lake, tmp_path: Path) -> None:
    from plateau.io.eager import read_table

    plain = kubothek.open(tmp_path / "plain")
    dataset = plain.create_dataset("t", "number", {"number": "int64", "row": "int64"})
    dataset.append(pa.table({"number": [1, 2], "row": [3, 4]}))
    dataset.export_iceberg()
    found = read_table("t", f"hfs://{tmp_path / 'plain'}")
    assert sorted(found["row"]) == [3, 4]


def test_name_mapping_covers_columns_of_all_versions(lake: Lake) -> None:
    dataset = lake.create_dataset("t", schema={"old": "int64"})
    dataset.append(pa.table({"old": [1]}))
    dataset.overwrite(pa.table({"new": ["x"]}), allow_schema_change=True)
    table = check(dataset, dataset.export_iceberg())
    mapping = json.loads(table.properties["schema.name-mapping.default"])
    assert {name for field in mapping for name in field["names"]} == {"old", "new"}


STEPS = st.sampled_from(("append", "evolve", "delete", "replace", "compact", "rollback", "tag", "export", "layout"))


@settings(
    max_examples=4, deadline=None, database=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
@given(column=st.sampled_from(list(VALUES)), steps=st.lists(STEPS, min_size=4, max_size=8), data=st.data())
def test_random_histories_are_read_as_kubothek_does(
    tmp_path_factory: pytest.TempPathFactory, column: str, steps: list[str], data: st.DataObject
) -> None:
    lake = kubothek.open(tmp_path_factory.mktemp("lake"))
    data_type, values = VALUES[column]
    dataset = lake.create_dataset("t", column, PAYLOAD.append(pa.field(column, data_type)))
    more: dict[str, Any] = {}
    for n, step in enumerate(["append", *steps]):
        value = data.draw(st.sampled_from(values))
        if step == "append":
            dataset.append(rows(10 * n, 6, **{column: value}, **more))
        elif step == "evolve":
            more[f"more{n}"] = data.draw(st.sampled_from((1, "x", 0.5)))
            dataset.append(rows(10 * n, 3, **{column: value}, **more), evolve=True)
        elif step == "delete":
            dataset.delete(f"row >= {10 * n - 8}", row_level=True)
        elif step == "replace":
            dataset.overwrite(rows(10 * n, 2, **{column: value}, **more))
        elif step == "compact":
            dataset.compact()
        elif step == "rollback":
            dataset.rollback(data.draw(st.integers(1, dataset.version)))
        elif step == "tag":
            dataset.tag(f"tag{n % 2}", data.draw(st.integers(1, dataset.version)))
        else:
            dataset.export_iceberg()
    check(dataset, dataset.export_iceberg())
    check(dataset, dataset.export_iceberg(rebuild=True))
