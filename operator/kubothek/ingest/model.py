"""A source and its division into splits: plain data, sent to executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import pyarrow as pa

from kubothek.errors import SourceRefused
from kubothek.ingest.fetch.policy import UrlPolicy
from kubothek.storage.base import StoreConfig


class Format(StrEnum):
    """The format of the rows in a file."""

    CSV = "CSV"
    JSON_LINES = "JSONLines"
    PARQUET = "Parquet"


class Compression(StrEnum):
    """The compression around a text file. ``AUTO`` decides by the file's name; Parquet compresses inside."""

    AUTO = "Auto"
    NONE = "None"
    GZIP = "Gzip"
    ZIP = "Zip"


@dataclass(frozen=True, slots=True)
class Unpacking:
    """Limits of decompression: ``max_bytes``, and beyond ``free_bytes`` at most ``max_ratio`` times the packed size."""

    max_bytes: int = 64 << 30
    max_ratio: int = 200
    free_bytes: int = 256 << 20

    def limit(self, packed: int) -> int:
        """Return the maximum size of ``packed`` bytes after decompression."""
        return min(self.max_bytes, max(self.free_bytes, packed * self.max_ratio))

    def check(self, name: str, unpacked: int, packed: int) -> None:
        """Raise SourceRefused if ``packed`` bytes of a file have unpacked to more than the limit."""
        if unpacked > self.limit(packed):
            raise SourceRefused(
                f"{name!r} unpacks to more than the limit: {self.max_bytes >> 30} GiB, or {self.max_ratio} times its "
                f"compressed size beyond {self.free_bytes >> 20} MiB; upload it unpacked, or split it"
            )


UNPACKING: Final = Unpacking()


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How to read CSV.

    A value equal to one of ``null_values`` is null unless it is quoted: quoted values are text. An empty ``quote``
    disables quoting. Without ``header`` the source must declare its columns.
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    null_values: tuple[str, ...] = ("", "NA", "NULL", "null")


@dataclass(frozen=True, slots=True)
class Source:
    """Files of one format: keys of ``store``, or ``urls``. ``columns`` declares types; None = they are inferred."""

    format: Format
    store: StoreConfig | None = None
    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    compression: Compression = Compression.AUTO
    csv: CsvOptions = CsvOptions()
    columns: pa.Schema | None = None
    policy: UrlPolicy = field(default_factory=UrlPolicy)
    unpacking: Unpacking = UNPACKING

    @property
    def names(self) -> tuple[str, ...]:
        """The files as the user named them."""
        return self.paths or self.urls


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as of planning: ``size`` in stored bytes; ``fingerprint`` changes with its content."""

    name: str
    size: int
    fingerprint: str
    compression: Compression


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file that is read on its own.

    ``start`` and ``stop`` are bytes of an uncompressed text file: the split has the lines that begin in that half-open
    range. ``row_groups`` are those of a Parquet file. With neither it is the whole file. ``size`` is in stored bytes.
    """

    file: SourceFile
    size: int
    start: int | None = None
    stop: int | None = None
    row_groups: tuple[int, ...] | None = None

    @property
    def is_range(self) -> bool:
        """Whether it is a byte range, which does not know the number of its first row."""
        return self.start is not None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """All splits of a source, in the order of its files and of their rows."""

    splits: tuple[Split, ...]

    @property
    def total_bytes(self) -> int:
        """Stored bytes of all files."""
        return sum(split.size for split in self.splits)

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files, once each, in order."""
        return tuple(dict.fromkeys(split.file for split in self.splits))

    def describe(self) -> str:
        """Return the names of the files, or of the first five, for messages."""
        files = self.files
        shown = ", ".join(repr(file.name) for file in files[:5])
        return shown if len(files) <= 5 else f"{shown} and {len(files) - 5} more"

    def bundles(self, target_bytes: int) -> list[tuple[Split, ...]]:
        """Return adjacent splits bundled up to ``target_bytes``, a bundle per task."""
        bundles: list[tuple[Split, ...]] = []
        current: list[Split] = []
        for split in self.splits:
            if current and sum(s.size for s in current) + split.size > target_bytes:
                bundles.append(tuple(current))
                current = []
            current.append(split)
        return [*bundles, tuple(current)] if current else bundles

    @property
    def unsplit(self) -> SourcePlan:
        """The plan with all files unsplit."""
        return SourcePlan(tuple(Split(file, file.size) for file in self.files))

    def with_unsplit_files(self, names: Sequence[str]) -> SourcePlan:
        """Return the plan with these files unsplit."""
        splits: dict[Split, None] = {}
        for split in self.splits:
            unsplit = Split(split.file, split.file.size) if split.file.name in names else split
            splits[unsplit] = None
        return SourcePlan(tuple(splits))
