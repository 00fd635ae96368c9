"""Entries of manifests as bytes: an export writes each as one Avro block.

Iceberg specification, "Manifests", ``manifest_entry``; Avro specification, "Binary Encoding" and "Object Container
Files". An entry that a later version carries differs in its status, and a deleted one in its snapshot id. So no field
of a data file is decoded or encoded again, which takes 27 ms for 1,000 entries with pyiceberg, and 19 ms with fastavro.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    PartitionFieldSummary,
)
from pyiceberg.types import PrimitiveType

from kubothek.table.iceberg.objects import AvroBuffer

_EXISTING: Final = b"\x00"
"""The status, encoded."""
_PRESENT: Final = 1
"""The branch of a value that is not null, in a union with null."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a manifest.

    ``block``     its Avro block
    ``status``    of the version that wrote the manifest
    ``snapshot``  the id of the snapshot that added the file, or deleted it
    ``sequence``  the data sequence number
    ``location``  of the file
    ``_status``   where the status is in the block
    ``_rest``     where the fields after the snapshot id begin
    """

    block: bytes
    status: int
    snapshot: int
    sequence: int
    location: str
    _status: int
    _rest: int

    @classmethod
    def parse(cls, block: bytes) -> Entry:
        """Read a block. Raises ValueError for one that no export wrote, EOFError for a part of one."""
        decoder = new_decoder(block)
        if decoder.read_int() != 1:
            raise ValueError("an Avro block with several entries")
        decoder.read_int()  # its size
        at_status = decoder.tell()
        status = decoder.read_int()
        snapshot, at_rest, sequence, _ = _present(decoder), decoder.tell(), _present(decoder), _present(decoder)
        decoder.read_int()  # content: data
        return cls(block, status, snapshot, sequence, decoder.read_utf8(), at_status, at_rest)

    def carried(self, version: int) -> Entry:
        """Return the entry of a live file as the manifest of a version has it: EXISTING, unless that added it."""
        if self.status == ManifestEntryStatus.EXISTING or self.snapshot == version:
            return self
        block = self.block[: self._status] + _EXISTING + self.block[self._status + 1 :]
        return replace(self, block=block, status=ManifestEntryStatus.EXISTING)

    def deleted(self, version: int) -> Entry:
        """Return the entry of a file that a version deletes."""
        content = io.BytesIO()
        encoder = BinaryEncoder(content)
        for value in (ManifestEntryStatus.DELETED.value, _PRESENT, version):
            encoder.write_int(value)
        encoder.write(self.block[self._rest :])
        block = io.BytesIO()
        encoder = BinaryEncoder(block)
        encoder.write_int(1)
        encoder.write_bytes(content.getvalue())
        return Entry.parse(block.getvalue())


class Entries:
    """The entries of a manifest, in its order.

    Each is parsed when it is iterated, and not kept: a list of them would make Python's garbage collector run. That
    raises ValueError or EOFError for bytes that no export wrote.
    """

    def __init__(self, manifest: bytes) -> None:
        self._template = AvroBuffer.of(manifest)

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry.parse, self._template.blocks)

    @cached_property
    def partition_types(self) -> tuple[PrimitiveType, ...]:
        """The types of the partition fields: those of the table's schema when the manifest was first written."""
        with AvroFile[Any](self._template.to_input_file()) as file:
            partition: Any = file.schema.find_field(102).field_type
            return tuple(field.field_type for field in partition.fields)

    def rewritten(self, blocks: Sequence[bytes]) -> AvroBuffer:
        """Return a file with this manifest's header and the blocks of other entries: ones of its partition types."""
        return AvroBuffer.of(self._template.data, blocks)

    def rows(self, blocks: Sequence[bytes]) -> int:
        """Return the number of rows of files, given the blocks of their entries."""
        if not blocks:
            return 0
        with AvroFile[ManifestEntry](
            self.rewritten(blocks).to_input_file(),
            MANIFEST_ENTRY_SCHEMAS[2],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat},
        ) as file:
            return sum(entry.data_file.record_count for entry in file)


def united(
    types: Sequence[PrimitiveType], summaries: Sequence[Sequence[PartitionFieldSummary]]
) -> list[PartitionFieldSummary]:
    """Return the summary of each partition field of several manifests, given those of each manifest."""
    return [_union(field_type, each) for field_type, *each in zip(types, *summaries, strict=True)]


def _union(field_type: PrimitiveType, summaries: Sequence[PartitionFieldSummary]) -> PartitionFieldSummary:
    bounds = chain.from_iterable((each.lower_bound, each.upper_bound) for each in summaries)
    values = [from_bytes(field_type, bound) for bound in bounds if bound is not None]
    return PartitionFieldSummary(
        any(each.contains_null for each in summaries),
        any(each.contains_nan for each in summaries),
        to_bytes(field_type, min(values)) if values else None,
        to_bytes(field_type, max(values)) if values else None,
    )


def _present(decoder: Any) -> int:
    """Read a whole number that is a union with null."""
    if decoder.read_int() != _PRESENT:
        raise ValueError("an entry without its sequence number")
    number: int = decoder.read_int()
    return number
