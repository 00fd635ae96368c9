"""One data file of a table against what its commit's record says of it: bytes, rows, columns.

Files are looked at in portions, which is what one task does; only a few numbers of each come back.
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
from kubothek.table.untrusted_parquet import open_parquet_file
from kubothek.verify.finding import Finding
from kubothek.verify.values import Values, values_in

_PORTION_BYTES: Final = 256 << 20
_PORTION_FILES: Final = 256
_ROWS: Final = 1 << 16
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, RuntimeError, MemoryError, OverflowError, KeyError)
"""What reading a strange file can raise."""
ADVICE: Final = "put the file back from a copy, roll back to a version without it, or delete what it held"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What was found of one file. ``values`` are those of its indexed columns, if it was read and is sound."""

    label: str
    rows: int = 0
    bytes: int = 0
    finding: Finding | None = None
    values: dict[str, Values] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """How files are looked at; travels to executors.

    ``schema``   the stored schema of the table
    ``inside``   columns of it that are in files: all but the partition columns
    ``indexed``  columns whose values are to be known
    """

    level: Level
    schema: pa.Schema | None
    inside: tuple[str, ...] = ()
    indexed: tuple[str, ...] = ()

    def __call__(self, store: Store, files: Sequence[PartitionFile]) -> list[FileFacts]:
        """The facts of each. Raises StoreError, and OSError if a large file finds no room on the disk."""
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
                # nothing vouches for its bytes: every page is read
                for _ in reader.iter_batches(_ROWS, use_threads=False):
                    pass
            return FileFacts(file.label, rows, found.size, None, dict(self._values(reader)))
        except (SchemaMismatch, DataTypeMismatch) as error:
            return FileFacts(file.label, 0, found.size, _wrong("FileColumns", file, str(error)))
        except _UNREADABLE as error:
            wrong = _wrong("FileUnreadable", file, f"it is no Parquet that can be read: {error}")
            return FileFacts(file.label, 0, found.size, wrong)

    def _values(self, reader: Any) -> Iterator[tuple[str, Values]]:
        """Of each indexed column; one that the file lacks has none."""
        assert self.schema is not None or not self.indexed, "indices are on columns of the schema"
        for column in self.indexed:
            assert self.schema is not None, "as above"
            if column in reader.schema_arrow.names:
                read = reader.read(columns=[column], use_threads=False).column(0)
                yield column, values_in(read, self.schema.field(column).type)
            else:
                yield column, Values()


def portions(files: Sequence[PartitionFile], at_least: int) -> list[list[PartitionFile]]:
    """The files in pieces of work: not too large for a task to be done again, and enough for all cores."""
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
        told = f"{found.size:,} of them, {file.bytes:,} were committed"
        return _wrong("FileHash", file, f"its bytes are not those that were committed ({told})")
    if file.bytes >= 0 and found.size != file.bytes:
        return _wrong("FileSize", file, f"it has {found.size:,} bytes, {file.bytes:,} were committed")
    return None


def _wrong(code: str, file: PartitionFile, what: str) -> Finding:
    return Finding(code=code, message=f"{what}; {ADVICE}", object=file.key)
