"""From the manifests of one version to those of the next. Iceberg specification, "Manifests" and "Manifest Lists".

A commit writes one manifest for the files that it adds. Deletes are copy-on-write: a manifest with a removed file is
written again, where the file is DELETED and the others are EXISTING. Small manifests are merged when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from kubothek.storage.immutable_cache import Kept
from kubothek.table.iceberg.data_files import may_list, partition_types
from kubothek.table.iceberg.objects import AvroBuffer

MOST_SMALL: Final = 32
"""Number of manifests that are not full, after which some are merged."""
FULL: Final = 1_000
"""Number of files in one manifest: a removal of one of them writes all of them again."""
_KEPT_BYTES: Final = 16 << 20

Name = Callable[[str], str]
"""Returns the location of a file, given its name."""
Write = Callable[[AvroBuffer], None]
"""Stores a file."""
Read = Callable[[ManifestFile], Sequence[ManifestEntry]]
"""Reads the live entries of a manifest."""
Removed = Mapping[str, Mapping[str, Any]]
"""The values of partition columns of removed files, as manifests hold them, by location."""


@dataclass(frozen=True, slots=True)
class Version:
    """What the manifests of one version need: its number, its schema and the partition specs by id.

    ``former``  the schema before it: partition columns of removed files can have other types
    """

    number: int
    schema: Schema
    former: Schema
    specs: Mapping[int, PartitionSpec]


class Manifests:
    """Writes and reads the manifests of an export; remembers the entries of those that it wrote or read."""

    def __init__(self, name: Name, write: Write, read: Read) -> None:
        self._name = name
        self._write = write
        self._read = read
        self._entries: dict[str, Sequence[ManifestEntry]] = {}
        self._unwritten: dict[str, AvroBuffer] = {}

    def next(
        self, before: Sequence[ManifestFile], version: Version, added: Iterable[DataFile], removed: Removed
    ) -> list[ManifestFile]:
        """Return the manifests of a version, given those before it, the added and the removed files.

        Raises KeyError with a location that no manifest lists.
        """
        manifests = list(self._without(_live(before), version, removed))
        files = iter(added)
        while batch := list(islice(files, FULL)):
            entries = [_entry(ManifestEntryStatus.ADDED, version.number, version.number, file) for file in batch]
            manifests.append(self._manifest(version, entries))
        return self._merged(manifests, version)

    def write_list(self, manifests: Sequence[ManifestFile], version: int, parent: int | None) -> str:
        """Write the manifest list of a version after the manifests that it names; return its location."""
        for manifest in manifests:
            if (unwritten := self._unwritten.get(manifest.manifest_path)) is not None:
                self._write(unwritten)
        self._unwritten.clear()
        buffer = AvroBuffer()
        identities = [(manifest.manifest_path, manifest.sequence_number) for manifest in manifests]
        blocks = {identity: found[0] for identity in identities if (found := _BLOCKS.recall(identity))}
        new = {identity: each for identity, each in zip(identities, manifests, strict=True) if identity not in blocks}
        with write_manifest_list(2, buffer, version, parent, version, "null") as writer:
            for manifest in new.values():
                writer.add_manifests([manifest])
        blocks.update(zip(new, buffer.blocks, strict=True))
        for identity in new:
            _BLOCKS.keep(identity, blocks[identity], len(blocks[identity]))
        buffer.blocks = [blocks[identity] for identity in identities]
        buffer.name(lambda digest: self._name(f"snap-{version}-{digest}.avro"))
        self._write(buffer)
        return buffer.location

    def _without(self, before: list[ManifestFile], version: Version, removed: Removed) -> Iterator[ManifestFile]:
        version = replace(version, schema=version.former)
        listing = self._listing(before, version, removed)
        for manifest in before:
            if manifest.manifest_path in listing:
                entries = [_carried(entry, version.number, removed.keys()) for entry in self._of(manifest)]
                yield self._manifest(version, entries)
            else:
                yield manifest

    def _listing(self, before: Sequence[ManifestFile], version: Version, removed: Removed) -> set[str]:
        """Return the paths of the manifests that list removed files.

        Reads the newest first, as what is compacted is mostly new, and last those whose partitions have none of them.
        """
        if not removed:
            return set()
        left, listing = set(removed), set[str]()
        partitions = [dict(values) for values in {tuple(values.items()) for values in removed.values()}]

        columns = {spec_id: partition_types(spec, version.schema) for spec_id, spec in version.specs.items()}

        def is_unlikely(manifest: ManifestFile) -> bool:
            return not may_list(manifest, columns[manifest.partition_spec_id], partitions)

        newest_first = before[::-1]
        for manifest in sorted(newest_first, key=is_unlikely):
            entries = {entry.data_file.file_path for entry in self._of(manifest)}
            if not left.isdisjoint(entries):
                listing.add(manifest.manifest_path)
                left -= entries
            if not left:
                return listing
        raise KeyError(min(left))

    def _merged(self, manifests: list[ManifestFile], version: Version) -> list[ManifestFile]:
        """Merge the newest manifests once too many are small: as many as make the oldest of them no more than half.

        So a file is written again about once each time that the number of files doubles.
        """
        small = [manifest for manifest in manifests if 0 < _count(manifest) < FULL]
        if len(small) <= MOST_SMALL:
            return manifests
        counts = [_count(manifest) for manifest in small]
        start = next(n for n in range(len(small)) if counts[n] <= sum(counts[n + 1 :]) or n == len(small) - 2)
        chosen = small[start:]
        kept = [manifest for manifest in manifests if manifest not in chosen]
        for spec_id in sorted({manifest.partition_spec_id for manifest in chosen}):
            entries = iter(
                [
                    _carried(entry, version.number, ())
                    for manifest in chosen
                    if manifest.partition_spec_id == spec_id
                    for entry in self._entries_with_deleted(manifest, version.number)
                ]
            )
            while batch := list(islice(entries, FULL)):
                kept.append(self._manifest(version, batch))
        return kept

    def _entries_with_deleted(self, manifest: ManifestFile, version: int) -> Sequence[ManifestEntry]:
        """Return the live entries, and those that this very version deletes."""
        if manifest.added_snapshot_id == version:
            return self._entries[manifest.manifest_path]
        return self._of(manifest)

    def _of(self, manifest: ManifestFile) -> Sequence[ManifestEntry]:
        """Return the live entries of a manifest."""
        known = self._entries.get(manifest.manifest_path)
        if known is None:
            known = self._entries[manifest.manifest_path] = self._read(manifest)
        return [entry for entry in known if entry.status != ManifestEntryStatus.DELETED]

    def _manifest(self, version: Version, entries: Sequence[ManifestEntry]) -> ManifestFile:
        spec = version.specs[entries[0].data_file.spec_id]
        buffer = AvroBuffer()
        with write_manifest(2, _named_for_avro(spec), version.schema, buffer, version.number, "null") as writer:
            for entry in entries:
                writer.add_entry(entry)
        buffer.name(lambda digest: self._name(f"{digest}-m.avro"))
        self._unwritten[buffer.location] = buffer
        manifest = writer.to_manifest_file()
        manifest.sequence_number = version.number
        if manifest.min_sequence_number < 0:  # all of its files are deleted
            manifest.min_sequence_number = version.number
        self._entries[manifest.manifest_path] = entries
        return manifest


_BLOCKS: Final[Kept[tuple[str, int], bytes]] = Kept(_KEPT_BYTES)
"""The block of a manifest in manifest lists, by its path and sequence number: each list repeats most of the last."""


def _named_for_avro(spec: PartitionSpec) -> PartitionSpec:
    """Return the spec with names that Avro allows: DuckDB and iceberg-rust read no manifest with other letters.

    pyiceberg, like Iceberg for Java, replaces only characters that are no letter of any script. Readers find the fields
    of a partition by their ids.
    """
    fields = (
        field
        if field.name.isascii() and field.name.isidentifier()
        else field.model_copy(update={"name": f"_{field.field_id}"})
        for field in spec.fields
    )
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def _live(manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    return [manifest for manifest in manifests if _count(manifest)]


def _count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _carried(entry: ManifestEntry, version: int, removed: Collection[str]) -> ManifestEntry:
    """Return the entry of an earlier version as a new manifest has it."""
    assert entry.sequence_number is not None, "entries get theirs when they are written"
    if entry.data_file.file_path in removed or entry.status == ManifestEntryStatus.DELETED:
        return _entry(ManifestEntryStatus.DELETED, version, entry.sequence_number, entry.data_file)
    if entry.snapshot_id == version or entry.status == ManifestEntryStatus.EXISTING:
        return entry
    assert entry.snapshot_id is not None, "entries get theirs when they are written"
    return _entry(ManifestEntryStatus.EXISTING, entry.snapshot_id, entry.sequence_number, entry.data_file)


def _entry(status: ManifestEntryStatus, snapshot: int, sequence: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        _table_format_version=2,
        status=status,
        snapshot_id=snapshot,
        sequence_number=sequence,
        file_sequence_number=sequence,
        data_file=file,
    )
