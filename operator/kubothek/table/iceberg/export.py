"""Export of a table as Iceberg metadata, of which only what changed since the last export is written.

All objects but ``v<N>.metadata.json`` and ``version-hint.text`` are named by their content, and these two are written
last: a crash at any point leaves the last export readable, and the next one complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot

from kubothek.errors import Contended, InputError, PreconditionFailed, SchemaMismatch
from kubothek.storage import Store
from kubothek.table.iceberg.data_files import data_file, partition_values
from kubothek.table.iceberg.entries import Entries
from kubothek.table.iceberg.locations import Locations
from kubothek.table.iceberg.manifests import Manifests, Removed, Version
from kubothek.table.iceberg.metadata import Columns, columns_of, following_log, snapshot, table_metadata
from kubothek.table.iceberg.objects import AvroBuffer, Listed, StoreFiles
from kubothek.table.iceberg.published import DAMAGED, Publications, Published
from kubothek.table.iceberg.schemas import Schemas, rescaled, sort_order
from kubothek.table.iceberg.state import IcebergExport
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.history.rebuild import rebuild as rebuild_head
from kubothek.table.log.journal import Observed
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import Operation, PartitionFile
from kubothek.table.log.model.markers import Marker
from kubothek.table.log.model.record import Record
from kubothek.table.log.records import chain, down_to
from kubothek.table.log.settle import read_head
from kubothek.table.scan.statistics import footers

_AT_ONCE: Final = 1_000
"""Files whose footers are read together."""
_WRITES_AT_ONCE: Final = 64
"""Manifests and manifest lists that are written together."""
_TRIES: Final = 5


class _DamagedError(Exception):
    """A manifest or manifest list of an earlier export is missing or damaged."""


@dataclass(frozen=True, slots=True)
class _State:
    manifests: Sequence[Listed]
    columns: Columns
    schema: Schema
    snapshot: Snapshot


def export(
    store: Store,
    log: DatasetLog,
    *,
    omit_unsupported: bool = False,
    rebuild: bool = False,
    committed: str | None = None,
    version_hint: bool | None = None,
) -> IcebergExport:
    """Write the Iceberg metadata of the current version and of all versions that readers can request.

    ``omit_unsupported``  leave out columns whose type Iceberg lacks, instead of an error
    ``rebuild``           write all of it again, as after damage that a listing does not show
    ``committed``         the key of the record that the caller has just committed through ``log``: the head is not read
                          again, nor what this process exported last, and the files of the last export are not verified
    ``version_hint``      write ``version-hint.text`` too; None: as the head has it for exports after commits

    A change by another program is exported once it is adopted. Of two exports at a time, one continues the other, or
    returns it if it is of the same version or a later one. Raises DatasetNotFound, SchemaMismatch, VersionIncomplete,
    InputError, TooSlow; Contended if other exports replaced the last one again and again.
    """
    sufficient: int | None = None
    for _ in range(_TRIES):
        trusts = committed is not None and not rebuild
        run = _Export(store, log, omit_unsupported=omit_unsupported, trusts=trusts, version_hint=version_hint)
        try:
            return run.run(committed, rebuild=rebuild, sufficient=sufficient)
        except _DamagedError:
            rebuild = True
        except PreconditionFailed:
            committed = None  # another export took the place of the last one
            sufficient = None if rebuild else sufficient or run.version
    raise Contended(
        f"dataset {log.uuid!r} in {store.url}: other exports replaced its Iceberg metadata {_TRIES} times ahead of "
        "this one; try again when fewer write"
    )


def _newest(log: DatasetLog) -> tuple[Observed, Record]:
    """Return the head, and the record of the newest commit of Kubothek; of a member, as its cube's head names them.

    The own head of a member can be that of a commit of the cube that is in progress, and that may be undone.
    """
    in_cube = log.record_in_cube()
    seen = read_head(log.journal)
    if seen is None or (seen.head.tombstone and in_cube is None):
        log.tags()  # raises DatasetNotFound with the reason
    assert seen is not None, "or there is no dataset"
    if in_cube is not None and not (seen.marker and seen.marker.record == in_cube):
        named = log.journal.record(in_cube)
        return replace(seen, head=rebuild_head(log.journal, named), marker=Marker.of(named)), named
    newest = log.journal.record(seen.marker.record) if seen.marker else seen.base
    if newest is None:
        raise InputError(f"dataset {log.uuid!r} has no commit of Kubothek: adopt it first (kubothek adopt)")
    return seen, newest


class _Export:
    def __init__(
        self, store: Store, log: DatasetLog, *, omit_unsupported: bool, trusts: bool, version_hint: bool | None
    ) -> None:
        self._store = store
        self._log = log
        self._journal = log.journal
        self._omit = omit_unsupported
        self._trusts = trusts
        self._version_hint = version_hint
        self.version = 0
        """Of the dataset, once it is known."""
        self._locations = Locations(store, log.uuid)
        self._files = StoreFiles(store, self._locations, trusts=trusts)
        self._publications = Publications(log.journal, self._locations, self._files)
        self._manifests = Manifests(self._location, self._write, self._read)
        self._unwritten: list[AvroBuffer] = []
        self._written = 0
        self._schemas = Schemas()
        self._stored = cache(self._read_stored)
        self._lists: dict[str, Sequence[Listed]] = {}

    def run(self, committed: str | None, *, rebuild: bool, sufficient: int | None) -> IcebergExport:
        """Write what the last export lacks; nothing if that is of the version ``sufficient`` or a later one."""
        made = self._journal.published(committed) if committed else None
        last = self._publications.recall(made[1].version) if self._trusts and made else None
        # The last export before the head: read later, it could be of a version above the head.
        found = None if last else self._publications.find()
        last_version = found.newest if found else last.version if last else 0
        is_newer = made is not None and made[1].version > last_version and not made[0].head.tombstone
        seen, newest = made if made and is_newer else _newest(self._log)
        if found is not None:
            last = self._publications.read(found, newest.version, verify=not (self._trusts or rebuild))
        assert last is not None, "recalled or read"
        self.version = newest.version
        if sufficient is not None and last.metadata is not None and last.version >= sufficient:
            return self._result(last.version, len(last.metadata.snapshots), version_hint=last.hint is not None)
        if rebuild:
            last = replace(last, metadata=None, data=b"", snapshots={}, manifests=())
        known = last.metadata
        head = seen.head if seen.marker else rebuild_head(self._journal, newest)
        if known and (present := known.current_snapshot()) and (names := known.name_mapping()) is not None:
            self._schemas = Schemas(known.schemas, known.partition_specs, names)
            self._lists[present.manifest_list] = last.manifests
        schemas = self._schemas
        tagged = {tag.record for tag in seen.head.tags.values()}
        oldest = max(seen.head.horizon, seen.head.since + 1)
        exported = last.snapshots
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
        by_record = {**kept, **{key: state.snapshot for key, state in states.items()}}
        snapshots = sorted(by_record.values(), key=lambda each: each.snapshot_id)
        current = states[newest.key].snapshot if newest.key in states else kept[newest.key]
        schema = next(each for each in schemas.schemas if each.schema_id == current.schema_id)
        metadata = table_metadata(
            self._locations.table,
            seen.head.since,
            schemas,
            current,
            schemas.spec(head.partition_keys, schema),
            sort_order(Layout.of(head).sort_by, schema),
            snapshots,
            [each for each in snapshots if each.snapshot_id >= oldest],
            known.snapshot_log if known else (),
            seen.head.tags,
            self._former(last, newest.version),
        )
        self._flush()
        manifests = states[newest.key].manifests if newest.key in states else self._list(current)
        hints = head.iceberg_setting.version_hint if self._version_hint is None else self._version_hint
        self._publications.replace(last, metadata, by_record, manifests, version_hint=hints)
        return self._result(newest.version, len(snapshots), version_hint=hints)

    def _result(self, version: int, snapshots: int, *, version_hint: bool) -> IcebergExport:
        location = self._locations.of(keys.iceberg_table(self._log.uuid, version))
        return IcebergExport(version, location, self._locations.table, snapshots, self._written, version_hint)

    def _former(self, last: Published, version: int) -> Sequence[MetadataLogEntry]:
        if last.metadata is not None and last.version == version:
            return last.metadata.metadata_log
        return following_log(last.metadata, self._locations.of(keys.iceberg_table(self._log.uuid, last.version)))

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
            removed = self._removed(delta.removed, before)
        else:
            head = rebuild_head(self._journal, record)
            columns = Columns(head.schema_hash, head.partition_keys)
            added, manifests, removed = measure(self._store, head.files().items()), (), {}
        stored = self._stored(columns.schema_hash)
        schema = self._schemas.schema(stored, omit_unsupported=self._omit)
        spec = self._schemas.spec(columns.partition_keys, schema)
        former = before.schema if before else schema
        version = Version(record.version, schema, former, {each.spec_id: each for each in self._schemas.specs})
        following = self._manifests.next(manifests, version, self._data_files(added, stored, schema, spec), removed)
        if before is not None:
            _require_scales(before.schema, schema, following, record.version)
        above = before.snapshot.snapshot_id if before else None
        location, listed = self._manifests.write_list(following, record.version, above)
        return _State(listed, columns, schema, snapshot(record, columns, schema, location, above))

    def _removed(self, removed: Sequence[tuple[str, str]], before: _State | None) -> Removed:
        if before is None:
            return {self._locations.of(key): {} for _, key in removed}
        stored = self._stored(before.columns.schema_hash)
        return {self._locations.of(key): partition_values(key, stored, before.schema) for _, key in removed}

    def _state(self, exported: Snapshot | None) -> _State | None:
        """Return the state of a version of the last export."""
        if exported is None:
            return None
        schema = next(each for each in self._schemas.schemas if each.schema_id == exported.schema_id)
        return _State(self._list(exported), columns_of(exported), schema, exported)

    def _list(self, exported: Snapshot) -> Sequence[Listed]:
        location = exported.manifest_list
        if location not in self._lists:
            try:
                self._lists[location] = self._files.manifests(location)
            except DAMAGED as error:
                raise _DamagedError(location) from error
        return self._lists[location]

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

    def _read(self, manifest: ManifestFile) -> Entries:
        try:
            entries = Entries(self._files.read(manifest.manifest_path))
            next(iter(entries))  # parses them
        except (*DAMAGED, StopIteration) as error:
            raise _DamagedError(manifest.manifest_path) from error
        return entries

    def _write(self, file: AvroBuffer) -> None:
        self._unwritten.append(file)
        self._written += file.location.endswith("-m.avro")
        if len(self._unwritten) >= _WRITES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._unwritten:
            self._files.write(self._unwritten)
            self._unwritten.clear()

    def _location(self, name: str) -> str:
        return self._locations.of(keys.iceberg_metadata(self._log.uuid) + name)

    def _read_stored(self, schema_hash: str | None) -> pa.Schema:
        return self._journal.schemas.get(schema_hash) or pa.schema([])


def _columns_after(before: Columns, record: Record) -> Columns:
    delta = record.delta
    partition_keys = before.partition_keys if delta.partition_keys is None else delta.partition_keys
    return Columns(delta.schema or before.schema_hash, partition_keys)


def _require_scales(before: Schema, after: Schema, manifests: Sequence[Listed], version: int) -> None:
    """Raise SchemaMismatch if files of a version have decimals of another scale than its schema."""
    columns = rescaled(before, after)
    if columns and any(each.file.min_sequence_number < version for each in manifests):
        raise SchemaMismatch(
            f"version {version} changed the scale of the decimals of {', '.join(map(repr, columns))} and kept files of "
            "the former scale, which no Iceberg reader reads; rewrite the table (overwrite)"
        )
