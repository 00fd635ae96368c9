"""Export of a table as Iceberg metadata, of which only what changed since the last export is written.

All objects but ``v<N>.metadata.json`` and ``version-hint.text`` are named by their content, and the hint is written
last: a crash at any point leaves the last export readable, and the next one complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from kubothek.errors import InputError, ObjectNotFound, SchemaMismatch
from kubothek.storage import Store
from kubothek.table.iceberg.data_files import correct_doubles, data_file
from kubothek.table.iceberg.manifests import Manifests, Version
from kubothek.table.iceberg.metadata import Columns, columns_of, record_of, snapshot, table_metadata
from kubothek.table.iceberg.objects import AvroBuffer, Locations, StoreFiles
from kubothek.table.iceberg.result import IcebergExport
from kubothek.table.iceberg.schemas import Schemas, rescaled, sort_order
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.history.rebuild import rebuild as rebuild_head
from kubothek.table.log.journal import Journal, Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation, PartitionFile
from kubothek.table.log.model.record import Record
from kubothek.table.log.records import chain, down_to
from kubothek.table.log.settle import read_head
from kubothek.table.scan.statistics import footers

_AT_ONCE: Final = 1_000
"""Files whose footers are read together."""
_DAMAGED: Final = (ObjectNotFound, ValidationError, ValueError, KeyError, TypeError, EOFError, IndexError)
"""What metadata that is missing, or not that of an export, raises when it is read."""


class _ManifestDamagedError(Exception):
    """A manifest of an earlier export is missing or damaged."""


@dataclass(frozen=True, slots=True)
class _State:
    manifests: Sequence[ManifestFile]
    columns: Columns
    schema: Schema
    snapshot: Snapshot


def export(store: Store, log: DatasetLog, *, omit_unsupported: bool = False, rebuild: bool = False) -> IcebergExport:
    """Write the Iceberg metadata of the current version and of all versions that readers can request.

    ``omit_unsupported``  leave out columns whose type Iceberg lacks, instead of an error
    ``rebuild``           write all of it again, as after damage that a listing does not show

    A change by another program is exported once it is adopted. Raises DatasetNotFound, SchemaMismatch,
    VersionIncomplete, InputError.
    """
    seen = read_head(log.journal)
    if seen is None or seen.head.tombstone:
        log.tags()  # raises DatasetNotFound with the reason
    assert seen is not None, "or there is no dataset"
    newest = log.journal.record(seen.marker.record) if seen.marker else seen.base
    if newest is None:
        raise InputError(f"dataset {log.uuid!r} has no commit of Kubothek: adopt it first (kubothek adopt)")

    def run(*, rebuild: bool) -> IcebergExport:
        return _Export(store, log.journal, omit_unsupported=omit_unsupported).run(seen, newest, rebuild=rebuild)

    try:
        return run(rebuild=rebuild)
    except _ManifestDamagedError:
        return run(rebuild=True)


class _Export:
    def __init__(self, store: Store, journal: Journal, *, omit_unsupported: bool) -> None:
        self._store = store
        self._journal = journal
        self._omit = omit_unsupported
        self._locations = Locations(store, journal.uuid)
        self._files = StoreFiles(store, self._locations)
        self._manifests = Manifests(self._location, self._write, self._read)
        self._written = 0
        self._schemas = Schemas()
        self._stored = cache(self._read_stored)
        self._list = cache(self._read_list)

    def run(self, seen: Observed, newest: Record, *, rebuild: bool) -> IcebergExport:
        """Write what the last export lacks."""
        head = seen.head if seen.marker else rebuild_head(self._journal, newest)
        known = None if rebuild else self._last()
        if known:
            names = known.name_mapping()
            assert names is not None, "or it was no export"
            self._schemas = Schemas(known.schemas, known.partition_specs, names)
        schemas = self._schemas
        tagged = {tag.record for tag in seen.head.tags.values()}
        oldest = max(seen.head.horizon, seen.head.since + 1)
        exported = {key: each for each in (known.snapshots if known else ()) if (key := record_of(each))}
        missing, joint = self._missing(newest, oldest, exported)
        kept = {
            key: each
            for key, each in exported.items()
            if oldest <= each.snapshot_id <= joint or (key in tagged and key not in missing)
        }
        missing |= {key: self._journal.record(key) for key in tagged - missing.keys() - kept.keys()}
        states: dict[str, _State] = {}
        for record in sorted(missing.values(), key=lambda record: record.version):
            if record.operation is not Operation.DROP:
                states[record.key] = self._next(record, kept, states)
        snapshots = [*kept.values(), *(state.snapshot for state in states.values())]
        current = states[newest.key].snapshot if newest.key in states else kept[newest.key]
        schema = next(each for each in schemas.schemas if each.schema_id == current.schema_id)
        snapshots.sort(key=lambda each: each.snapshot_id)
        metadata = table_metadata(
            self._locations.table,
            seen.head.since,
            schemas,
            current,
            schemas.spec(head.partition_keys, schema),
            sort_order(Layout.of(head).sort_by, schema),
            snapshots,
            [each for each in snapshots if each.snapshot_id >= oldest],
            seen.head.tags,
        )
        name = f"v{newest.version}.metadata.json"
        self._store.put(self._key(name), metadata.model_dump_json().encode())
        self._store.put(self._key("version-hint.text"), str(newest.version).encode())
        return IcebergExport(newest.version, self._location(name), self._locations.table, len(snapshots), self._written)

    def _missing(self, newest: Record, oldest: int, exported: Mapping[str, Snapshot]) -> tuple[dict[str, Record], int]:
        """Return the commits above the newest one that is exported, and its version; 0 if none is.

        Exported versions above that one are not in the history any more: another program overwrote them.
        """
        parent = down_to(self._journal.uuid, oldest)

        def above(record: Record) -> str | None:
            return None if record.parent in exported else parent(record)

        if newest.key in exported:
            return {}, newest.version
        missing = {record.key: record for record in chain(self._journal, newest, above)}
        last = exported.get(list(missing.values())[-1].parent or "")
        return missing, last.snapshot_id if last else 0

    def _next(self, record: Record, kept: dict[str, Snapshot], states: dict[str, _State]) -> _State:
        """Write the manifests of a version, from those of the version that it builds on, if that is exported."""
        delta, parent = record.delta, record.content_parent
        before = states.get(parent or "") or self._state(kept.get(parent or ""))
        added: Sequence[PartitionFile] = delta.added
        if before is not None or parent is None:
            columns = _columns_after(before.columns if before else Columns(None, ()), record)
            manifests = before.manifests if before else ()
            removed = {self._locations.of(key) for _, key in delta.removed}
        else:
            head = rebuild_head(self._journal, record)
            columns = Columns(head.schema_hash, head.partition_keys)
            added, manifests, removed = measure(self._store, head.files().items()), (), set()
        stored = self._stored(columns.schema_hash)
        schema = self._schemas.schema(stored, omit_unsupported=self._omit)
        spec = self._schemas.spec(columns.partition_keys, schema)
        version = Version(record.version, schema, {each.spec_id: each for each in self._schemas.specs})
        following = self._manifests.next(manifests, version, self._data_files(added, stored, schema, spec), removed)
        if before is not None:
            _require_scales(before.schema, schema, following, record.version)
        above = before.snapshot.snapshot_id if before else None
        location = self._manifests.write_list(following, record.version, above)
        return _State(following, columns, schema, snapshot(record, columns, schema, location, above))

    def _state(self, exported: Snapshot | None) -> _State | None:
        """Return the state of a version of the last export."""
        if exported is None:
            return None
        schema = next(each for each in self._schemas.schemas if each.schema_id == exported.schema_id)
        return _State(self._list(exported.manifest_list), columns_of(exported), schema, exported)

    def _data_files(
        self, added: Sequence[PartitionFile], stored: pa.Schema, schema: Schema, spec: PartitionSpec
    ) -> Iterator[DataFile]:
        for start in range(0, len(added), _AT_ONCE):
            files = added[start : start + _AT_ONCE]
            for file, footer in zip(files, footers(self._store, [file.key for file in files]), strict=True):
                if footer is not None:
                    paths = (footer.schema.column(n).path for n in range(footer.num_columns))
                    self._schemas.name_columns(path.partition(".")[0] for path in paths)
                yield data_file(self._locations.of(file.key), file, footer, stored, schema, spec)

    # --- objects ---

    def _last(self) -> TableMetadata | None:
        """Return the last export; None if there is none, or a part of it that the next one needs is lost or damaged."""
        try:
            hint = int(self._store.get(self._key("version-hint.text")))
            metadata = TableMetadataUtil.parse_raw(self._store.get(self._key(f"v{hint}.metadata.json")).decode())
            current = metadata.current_snapshot()
            if current is None or metadata.location != self._locations.table or metadata.name_mapping() is None:
                return None
            present = {info.key: info.size for info in self._store.list(self._key(""))}
            sizes = {each.manifest_path: each.manifest_length for each in self._list(current.manifest_list)}
            for each in metadata.snapshots:
                columns_of(each)
        except _DAMAGED:
            return None
        lists = {self._locations.key(each.manifest_list) for each in metadata.snapshots}
        sound = all(present.get(self._locations.key(path)) == size for path, size in sizes.items())
        return metadata if sound and lists <= present.keys() else None

    def _read_list(self, location: str) -> list[ManifestFile]:
        return list(read_manifest_list(self._files.new_input(location)))

    def _read(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        try:
            entries = manifest.fetch_manifest_entry(self._files)
        except _DAMAGED as error:
            raise _ManifestDamagedError(manifest.manifest_path) from error
        spec, doubles = self._schemas.specs[manifest.partition_spec_id], self._schemas.doubles
        if not doubles.isdisjoint(field.source_id for field in spec.fields):
            for entry in entries:
                correct_doubles(entry.data_file, self._locations.key(entry.data_file.file_path), spec, doubles)
        return entries

    def _write(self, file: AvroBuffer) -> None:
        self._store.put(self._locations.key(file.location), file.data)
        self._written += file.location.endswith("-m.avro")

    def _key(self, name: str) -> str:
        return f"{keys.iceberg(self._journal.uuid)}metadata/{name}"

    def _location(self, name: str) -> str:
        return self._locations.of(self._key(name))

    def _read_stored(self, schema_hash: str | None) -> pa.Schema:
        return self._journal.schemas.get(schema_hash) or pa.schema([])


def _columns_after(before: Columns, record: Record) -> Columns:
    delta = record.delta
    partition_keys = before.partition_keys if delta.partition_keys is None else delta.partition_keys
    return Columns(delta.schema or before.schema_hash, partition_keys)


def _require_scales(before: Schema, after: Schema, manifests: Sequence[ManifestFile], version: int) -> None:
    """Raise SchemaMismatch if files of a version have decimals of another scale than its schema."""
    old_files = any(manifest.min_sequence_number < version for manifest in manifests)
    if old_files and (columns := rescaled(before, after)):
        raise SchemaMismatch(
            f"version {version} changed the scale of the decimals of {', '.join(map(repr, columns))} and kept files of "
            "the former scale, which no Iceberg reader reads; rewrite the table (overwrite)"
        )
