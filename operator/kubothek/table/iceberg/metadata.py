"""The table metadata of one version. Iceberg specification, "Table Metadata" and "Snapshots".

A version of the table is a snapshot with the same number; a tag is a ref. What an export needs of an earlier one is in
the summaries of its snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.snapshots import Operation as IcebergOperation
from pyiceberg.table.sorting import SortOrder

from kubothek.table.iceberg.schemas import Schemas
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.head import Tag
from kubothek.table.log.model.record import Record

_RECORD: Final = "kubothek.record"
_SCHEMA: Final = "kubothek.schema"
_PARTITION_KEYS: Final = "kubothek.partition-keys"
_FORMER: Final = 100
"""Entries of a metadata log, as Iceberg's writers keep by default."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The stored schema of a version, by its hash, and its partition keys."""

    schema_hash: str | None
    partition_keys: tuple[str, ...]


def snapshot(record: Record, columns: Columns, schema: Schema, manifest_list: str, parent: int | None) -> Snapshot:
    """Return the snapshot of the version that a commit made."""
    added, removed, totals = record.added, len(record.delta.removed), record.totals
    summary = {
        "added-data-files": str(added.files),
        "added-records": str(added.rows),
        "deleted-data-files": str(removed),
        "total-data-files": str(totals.files),
        "total-records": str(totals.rows),
        "total-files-size": str(totals.bytes),
        _RECORD: record.key,
        _SCHEMA: columns.schema_hash or "",
        _PARTITION_KEYS: json.dumps(columns.partition_keys),
    }
    return Snapshot(
        snapshot_id=record.version,
        parent_snapshot_id=parent,
        sequence_number=record.version,
        timestamp_ms=int(record.time.timestamp() * 1000),
        manifest_list=manifest_list,
        summary=Summary(_operation(record), **summary),
        schema_id=schema.schema_id,
    )


def record_of(exported: Snapshot) -> str:
    """Return the key of the record of an exported snapshot. Raises KeyError if another program wrote it."""
    if exported.summary is None or (key := exported.summary[_RECORD]) is None:
        raise KeyError(_RECORD)
    return str(key)


def columns_of(exported: Snapshot) -> Columns:
    """Return the columns of an exported snapshot. Raises KeyError or ValueError if another program wrote it."""
    if exported.summary is None or exported.summary[_PARTITION_KEYS] is None:
        raise KeyError(_PARTITION_KEYS)
    return Columns(exported.summary[_SCHEMA] or None, tuple(json.loads(exported.summary[_PARTITION_KEYS])))


def table_metadata(
    location: str,
    since: int,
    schemas: Schemas,
    current: Snapshot,
    spec: PartitionSpec,
    order: SortOrder,
    snapshots: Sequence[Snapshot],
    log: Iterable[Snapshot],
    known_log: Iterable[SnapshotLogEntry],
    tags: Mapping[str, Tag],
    former: Sequence[MetadataLogEntry],
) -> TableMetadata:
    """Return the table metadata whose current snapshot is ``current``.

    ``since``      version of the tombstone below this incarnation of the dataset, which is a table of its own
    ``snapshots``  all that readers can request
    ``log``        those that were once current, oldest first
    ``known_log``  the snapshot log of the last export; to make an entry costs more than to find it
    ``former``     the table metadata before this one, oldest first
    """
    known = {entry.snapshot_id: entry for entry in known_log}
    numbers = {each.snapshot_id for each in snapshots}
    refs = {name: _ref(tag.version, SnapshotRefType.TAG) for name, tag in tags.items() if tag.version in numbers}
    refs[MAIN_BRANCH] = _ref(current.snapshot_id, SnapshotRefType.BRANCH)
    assert current.schema_id is not None, "every snapshot of an export names its schema"
    return TableMetadataV2(
        location=location,
        table_uuid=uuid5(NAMESPACE_URL, f"{location}#{since}"),
        last_updated_ms=current.timestamp_ms,
        last_column_id=schemas.last_column_id,
        last_sequence_number=current.snapshot_id,
        schemas=schemas.schemas,
        current_schema_id=current.schema_id,
        partition_specs=schemas.specs,
        default_spec_id=spec.spec_id,
        last_partition_id=schemas.last_partition_id,
        sort_orders=[SortOrder(order_id=0), order] if order.fields else [order],
        default_sort_order_id=order.order_id,
        properties={TableProperties.DEFAULT_NAME_MAPPING: schemas.name_mapping.model_dump_json()},
        current_snapshot_id=current.snapshot_id,
        snapshots=list(snapshots),
        snapshot_log=[_log_entry(each, known) for each in log],
        metadata_log=list(former),
        refs=refs,
    )


def following_log(last: TableMetadata | None, location: str) -> list[MetadataLogEntry]:
    """Return the metadata log of what replaces the table metadata at a location; None: nothing is known to precede."""
    if last is None:
        return []
    entry = MetadataLogEntry(metadata_file=location, timestamp_ms=last.last_updated_ms)
    return [*last.metadata_log, entry][-_FORMER:]


def _log_entry(each: Snapshot, known: Mapping[int, SnapshotLogEntry]) -> SnapshotLogEntry:
    found = known.get(each.snapshot_id)
    if found is not None and found.timestamp_ms == each.timestamp_ms:
        return found
    return SnapshotLogEntry(snapshot_id=each.snapshot_id, timestamp_ms=each.timestamp_ms)


def _ref(version: int, kind: SnapshotRefType) -> SnapshotRef:
    return SnapshotRef(
        snapshot_id=version,
        snapshot_ref_type=kind,
        min_snapshots_to_keep=None,
        max_snapshot_age_ms=None,
        max_ref_age_ms=None,
    )


def _operation(record: Record) -> IcebergOperation:
    added, removed = bool(record.delta.added), bool(record.delta.removed)
    if record.operation is Operation.COMPACT or not (added or removed):
        return IcebergOperation.REPLACE
    if added and removed:
        return IcebergOperation.OVERWRITE
    return IcebergOperation.APPEND if added else IcebergOperation.DELETE
