"""Manifests whose entries were carried as bytes say of them what pyiceberg finds in them."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable

import kubothek
from kubothek.table.iceberg import manifests
from kubothek.table.iceberg.entries import Entries, Entry
from kubothek.table.iceberg.published import DAMAGED
from tests.table.iceberg.test_export import VALUES


@pytest.mark.parametrize("column", VALUES)
def test_carried_entries_agree_with_their_manifest_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setattr(manifests, "MOST_SMALL", 3)
    monkeypatch.setattr(manifests, "FULL", 6)
    field_type, values = VALUES[column]
    dataset = kubothek.open(tmp_path).create_dataset("t", column, pa.schema({column: field_type, "row": pa.int64()}))
    for n in range(13):
        dataset.append(pa.table({column: pa.array([values[n % len(values)]], field_type), "row": [n]}))
        if n % 4 == 3:
            dataset.delete(f"row = {n - 2}", row_level=True)
        dataset.export_iceberg()
    table = StaticTable.from_metadata(dataset.export_iceberg().table_location)
    statuses = set()
    for snapshot in table.snapshots():
        for manifest in snapshot.manifests(table.io):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            statuses |= {entry.status for entry in entries}
            _agree(table, manifest, entries)
    assert statuses == set(ManifestEntryStatus)


def _agree(table: StaticTable, manifest: ManifestFile, entries: list[ManifestEntry]) -> None:
    rows = {status: [0, 0] for status in ManifestEntryStatus}
    for entry in entries:
        rows[entry.status][0] += 1
        rows[entry.status][1] += entry.data_file.record_count
    assert [
        [manifest.existing_files_count, manifest.existing_rows_count],
        [manifest.added_files_count, manifest.added_rows_count],
        [manifest.deleted_files_count, manifest.deleted_rows_count],
    ] == [*rows.values()]
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    oldest = min((entry.sequence_number or 0 for entry in live), default=manifest.sequence_number)
    assert manifest.min_sequence_number == oldest
    assert all(entry.snapshot_id == manifest.added_snapshot_id for entry in entries if entry not in live or _new(entry))
    assert manifest.partitions is not None
    ((summary, field),) = zip(manifest.partitions, table.specs()[manifest.partition_spec_id].fields, strict=True)
    field_type: Any = table.schema().find_type(field.source_id)
    for entry in entries:
        value = entry.data_file.partition[0]
        assert summary.lower_bound is not None
        assert summary.upper_bound is not None
        assert from_bytes(field_type, summary.lower_bound) <= value <= from_bytes(field_type, summary.upper_bound)


def _new(entry: ManifestEntry) -> bool:
    return entry.status == ManifestEntryStatus.ADDED


def _manifest(directory: Path) -> bytes:
    dataset = kubothek.open(directory).create_dataset("t", schema={"row": "int64"})
    dataset.append(pa.table({"row": [1]}))
    dataset.export_iceberg()
    (path,) = directory.rglob("*-m.avro")
    return path.read_bytes()


def test_entry_of_a_late_version_grows_by_its_snapshot_id(tmp_path: Path) -> None:
    manifest = Entries(_manifest(tmp_path))
    (entry,) = manifest
    deleted = entry.deleted(2**40)
    assert (deleted.status, deleted.snapshot, deleted.sequence) == (ManifestEntryStatus.DELETED, 2**40, entry.sequence)
    assert deleted.location == entry.location
    assert manifest.rows([deleted.block]) == manifest.rows([entry.block]) == 1
    assert entry.carried(entry.snapshot) is entry
    assert entry.carried(8).carried(9) == entry.carried(9)


def test_fuzzed_manifest_is_damaged_or_gives_entries(tmp_path_factory: pytest.TempPathFactory) -> None:
    manifest = _manifest(tmp_path_factory.mktemp("lake"))

    @settings(max_examples=200, deadline=None)
    @given(st.integers(0, len(manifest) - 1), st.binary(max_size=40), st.integers(0, 40))
    def fuzz(at: int, new: bytes, cut: int) -> None:
        data = io.BytesIO(manifest[:at] + new + manifest[at + cut :]).getvalue()
        with suppress(*DAMAGED):
            assert all(isinstance(entry, Entry) for entry in Entries(data))

    fuzz()
