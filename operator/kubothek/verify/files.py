"""Verification of a data file against its commit's record: bytes, rows, columns.

A task verifies a portion of files, and returns a few numbers for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import DataTypeMismatch, ObjectNotFound, SchemaMismatch
from kubothek.odf import Level
from kubothek.storage import Store
from kubothek.storage.hashed import Hashed, hashed_each
from kubothek.table.log import PartitionFile
from kubothek.table.schema import conform
from kubothek.table.untrusted_parquet import UNREADABLE, open_parquet_file
from kubothek.verify.finding import Finding
from kubothek.verify.values import Values, values_in

_PORTION_BYTES: Final = 256 << 20
_PORTION_FILES: Final = 256
_ROWS: Final = 1 << 16
ADVICE: Final = "put the file back from a copy, roll back to a version without it, or delete what it held"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The results for one file. ``values`` are those of its indexed columns, if it was read and is sound."""

    label: str
    rows: int = 0
    bytes: int = 0
    finding: Finding | None = None
    values: dict[str, Values] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """How files are verified; sent to executors.

    ``schema``   the stored schema of the table
    ``inside``   its columns that files hold: all but the partition columns
    ``indexed``  columns whose values are collected
    """

    level: Level
    schema: pa.Schema | None
    inside: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()

    def __call__(self, store: Store, files: Sequence[PartitionFile]) -> list[FileFacts]:
        """Return the facts of each file. Raises StoreError, and OSError if the disk has no room for a large file."""
        with closing(hashed_each(store, (file.key for file in files))) as objects:
            return [self._one(file, found) for file, found in zip(files, objects, strict=True)]

    def _one(self, file: PartitionFile, found: Hashed | ObjectNotFound) -> FileFacts:
        if isinstance(found, ObjectNotFound):
            return FileFacts(file.label, finding=_wrong("FileMissing", file, "it is gone"))
        finding = _bytes_problem(file, found)
        if finding is None and self.level is Level.FULL:
            return self._inside(file, found)
        return FileFacts(file.label, 0, found.size, finding)

    def _inside(self, file: PartitionFile, found: Hashed) -> FileFacts:
        try:
            reader = open_parquet_file(found.file)
            rows = reader.metadata.num_rows
            if rows != file.rows and file.rows >= 0:
                wrong = _wrong("FileRows", file, f"it has {rows:,} rows, {file.rows:,} were committed")
                return FileFacts(file.label, rows, found.size, wrong)
            if self.schema is not None:
                present = [name for name in self.inside if name in reader.schema_arrow.names]
                wanted = pa.schema([self.schema.field(name) for name in present])
                conform(reader.schema_arrow.empty_table(), wanted)
            if file.sha3 is None:
                # no hash proves its bytes: read every page
                for _ in reader.iter_batches(_ROWS, use_threads=False):
                    pass
            return FileFacts(file.label, rows, found.size, None, dict(self._values(reader)))
        except (SchemaMismatch, DataTypeMismatch) as error:
            return FileFacts(file.label, 0, found.size, _wrong("FileColumns", file, str(error)))
        except UNREADABLE as error:
            wrong = _wrong("FileUnreadable", file, f"it is no Parquet that can be read: {error}")
            return FileFacts(file.label, 0, found.size, wrong)

    def _values(self, reader: Any) -> Iterator[tuple[str, Values]]:
        """Yield the values of each indexed column; empty for one that the file lacks."""
        assert self.schema is not None or not self.indexed, "indices are on columns of the schema"
        for column in self.indexed:
            assert self.schema is not None, "as above"
            if column in reader.schema_arrow.names:
                read = reader.read(columns=[column], use_threads=False).column(0)
                yield column, values_in(read, self.schema.field(column).type)
            else:
                yield column, Values()


def portions(files: Sequence[PartitionFile], at_least: int) -> list[list[PartitionFile]]:
    """Return the files in pieces of work: small enough to repeat a task, and enough for all cores."""
    total = sum(file.bytes for file in files)
    most_bytes = min(_PORTION_BYTES, max(1, total // max(1, at_least)))
    most_files = min(_PORTION_FILES, max(1, len(files) // max(1, at_least)))
    found: list[list[PartitionFile]] = []
    size = 0
    for file in files:
        if not found or size + file.bytes > most_bytes or len(found[-1]) >= most_files:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.bytes
    return found


def _bytes_problem(file: PartitionFile, found: Hashed) -> Finding | None:
    if file.sha3 is not None and found.digest.hex() != file.sha3:
        sizes = f"{found.size:,} of them, {file.bytes:,} were committed"
        return _wrong("FileHash", file, f"its bytes are not those that were committed ({sizes})")
    if file.bytes >= 0 and found.size != file.bytes:
        return _wrong("FileSize", file, f"it has {found.size:,} bytes, {file.bytes:,} were committed")
    return None


def _wrong(code: str, file: PartitionFile, what: str) -> Finding:
    return Finding(code=code, message=f"{what}; {ADVICE}", object=file.key)
