"""From the manifests of one version to those of the next. Iceberg specification, "Manifests" and "Manifest Lists".

A commit writes one manifest for the files that it adds. Deletes are copy-on-write: a manifest with a removed file is
written again, where the file is DELETED and the others are EXISTING. Small manifests are merged when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
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

from kubothek.table.iceberg.data_files import may_list, partition_types
from kubothek.table.iceberg.entries import Entries, Entry, united
from kubothek.table.iceberg.objects import AvroBuffer, Listed

MOST_SMALL: Final = 32
"""Number of manifests that are not full, after which some are merged."""
FULL: Final = 1_000
"""Number of files in a manifest that is not merged any more; those that are merged are fewer than twice as many."""

Name = Callable[[str], str]
"""Returns the location of a file, given its name."""
Write = Callable[[AvroBuffer], None]
"""Stores a file."""
Read = Callable[[ManifestFile], Entries]
"""Reads a manifest."""
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
        self._entries: dict[str, Entries] = {}
        self._unwritten: dict[str, AvroBuffer] = {}

    def next(
        self, before: Sequence[Listed], version: Version, added: Iterable[DataFile], removed: Removed
    ) -> list[Listed]:
        """Return the manifests of a version, given those before it, the added and the removed files.

        Raises KeyError with a location that no manifest lists.
        """
        manifests = list(self._without([each for each in before if each.live], version, removed))
        files = iter(added)
        while batch := list(islice(files, FULL)):
            manifests.append(self._added(batch, version))
        return self._merged(manifests, version.number)

    def write_list(self, manifests: Sequence[Listed], version: int, parent: int | None) -> tuple[str, Sequence[Listed]]:
        """Write the manifest list of a version after the manifests that it names; return its location, and what it has.

        Manifests that are in an earlier list keep their blocks.
        """
        buffer = AvroBuffer()
        new = [each.file for each in manifests if not each.block]
        with write_manifest_list(2, buffer, version, parent, version, "null") as writer:
            for file in new:
                writer.add_manifests([file])
                if (unwritten := self._unwritten.get(file.manifest_path)) is not None:
                    self._write(unwritten)
        self._unwritten.clear()
        blocks = iter(buffer.blocks)
        listed = [each if each.block else replace(each, block=next(blocks)) for each in manifests]
        buffer.blocks = [each.block for each in listed]
        buffer.name(lambda digest: self._name(f"snap-{version}-{digest}.avro"))
        self._write(buffer)
        return buffer.location, listed

    def _without(self, before: Sequence[Listed], version: Version, removed: Removed) -> Iterator[Listed]:
        listing = self._listing(before, version, removed)
        for each in before:
            if each.file.manifest_path in listing:
                yield self._rewritten([each.file], version.number, removed.keys())
            else:
                yield each

    def _listing(self, before: Sequence[Listed], version: Version, removed: Removed) -> set[str]:
        """Return the paths of the manifests that list removed files.

        Reads the newest first, as what is compacted is mostly new, and last those whose partitions have none of them.
        """
        if not removed:
            return set()
        left, listing = set(removed), set[str]()
        partitions = [dict(values) for values in {tuple(values.items()) for values in removed.values()}]

        columns = {spec_id: partition_types(spec, version.former) for spec_id, spec in version.specs.items()}

        def is_unlikely(manifest: ManifestFile) -> bool:
            return not may_list(manifest, columns[manifest.partition_spec_id], partitions)

        newest_first = [each.file for each in reversed(before)]
        for manifest in sorted(newest_first, key=is_unlikely):
            live = {entry.location for entry in self._of(manifest) if entry.status != ManifestEntryStatus.DELETED}
            if not left.isdisjoint(live):
                listing.add(manifest.manifest_path)
                left -= live
            if not left:
                return listing
        raise KeyError(min(left))

    def _merged(self, manifests: list[Listed], version: int) -> list[Listed]:
        """Merge the newest manifests once too many are small: as many as make the oldest of them no more than half.

        So a file is written again about once each time that the number of files doubles.
        """
        small = [each for each in manifests if 0 < each.live < FULL]
        if len(small) <= MOST_SMALL:
            return manifests
        counts = [each.live for each in small]
        start = next(n for n in range(len(small)) if counts[n] <= sum(counts[n + 1 :]) or n == len(small) - 2)
        chosen = [each.file for each in small[start:]]
        paths = {file.manifest_path for file in chosen}
        kept = [each for each in manifests if each.file.manifest_path not in paths]
        return kept + [self._rewritten(sources, version) for sources in self._alike(chosen)]

    def _alike(self, manifests: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
        """Divide manifests into those of one partition spec and types, of about the number of files of a full one."""

        def kind(manifest: ManifestFile) -> tuple[int, str]:
            return manifest.partition_spec_id, str(self._of(manifest).partition_types)

        for _, alike in groupby(sorted(manifests, key=kind), kind):
            batch: list[ManifestFile] = []
            for manifest in alike:
                batch.append(manifest)
                if sum(Listed.of(each).live for each in batch) >= FULL:
                    yield batch
                    batch = []
            if batch:
                yield batch

    def _of(self, manifest: ManifestFile) -> Entries:
        known = self._entries.get(manifest.manifest_path)
        if known is None:
            known = self._entries[manifest.manifest_path] = self._read(manifest)
        return known

    def _added(self, files: Sequence[DataFile], version: Version) -> Listed:
        spec = version.specs[files[0].spec_id]
        buffer = AvroBuffer()
        with write_manifest(2, _named_for_avro(spec), version.schema, buffer, version.number, "null") as writer:
            for file in files:
                writer.add_entry(_entry(version.number, file))
        self._name_manifest(buffer)
        manifest = writer.to_manifest_file()
        manifest.sequence_number = version.number
        return Listed.of(manifest)

    def _rewritten(self, sources: Sequence[ManifestFile], version: int, removed: Collection[str] = ()) -> Listed:
        """Write the entries of manifests that a version has live or deletes, in one manifest."""
        entries = [self._of(source) for source in sources]
        live, gone, oldest = list[bytes](), list[bytes](), version
        for entry in _carried(chain.from_iterable(entries), version, removed):
            if entry.status == ManifestEntryStatus.DELETED:
                gone.append(entry.block)
            else:
                live.append(entry.block)
                oldest = min(oldest, entry.sequence)
        buffer = entries[-1].rewritten([*live, *gone])
        self._name_manifest(buffer)
        added = [each for each in sources if each.added_snapshot_id == version]
        added_files = sum(each.added_files_count or 0 for each in added)
        added_rows = sum(each.added_rows_count or 0 for each in added)
        deleted_rows = entries[-1].rows(gone)
        rows = sum((each.added_rows_count or 0) + (each.existing_rows_count or 0) for each in sources)
        manifest = ManifestFile.from_args(
            manifest_path=buffer.location,
            manifest_length=len(buffer),
            partition_spec_id=sources[-1].partition_spec_id,
            content=sources[-1].content,
            sequence_number=version,
            min_sequence_number=oldest,
            added_snapshot_id=version,
            added_files_count=added_files,
            existing_files_count=len(live) - added_files,
            deleted_files_count=len(gone),
            added_rows_count=added_rows,
            existing_rows_count=rows - added_rows - (deleted_rows if removed else 0),
            deleted_rows_count=deleted_rows,
            partitions=united(entries[-1].partition_types, [each.partitions or [] for each in sources]),
            key_metadata=None,
        )
        return Listed.of(manifest)

    def _name_manifest(self, buffer: AvroBuffer) -> None:
        buffer.name(lambda digest: self._name(f"{digest}-m.avro"))
        self._unwritten[buffer.location] = buffer
        self._entries[buffer.location] = Entries(buffer.data)


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


def _carried(entries: Iterable[Entry], version: int, removed: Collection[str]) -> Iterator[Entry]:
    """Return the entries of files that a version has, or deletes, as a manifest of it has them."""
    for entry in entries:
        if entry.status == ManifestEntryStatus.DELETED:
            if entry.snapshot == version:
                yield entry
        else:
            yield entry.deleted(version) if entry.location in removed else entry.carried(version)


def _entry(version: int, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        _table_format_version=2,
        status=ManifestEntryStatus.ADDED,
        snapshot_id=version,
        sequence_number=version,
        file_sequence_number=version,
        data_file=file,
    )
