"""The source as a whole: find its files, split them, infer their schema, read a split."""

from __future__ import annotations

import difflib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa

from kubothek.errors import (
    InputError,
    ObjectNotFound,
    SchemaMismatch,
    SourceChanged,
    SourceCorrupt,
    SourceEmpty,
    SourceNotFound,
)
from kubothek.ingest.fetch.download import Download, fetch
from kubothek.ingest.model import Compression, Format, Source, SourceFile, SourcePlan, Split
from kubothek.ingest.readers.decoding import decoding
from kubothek.ingest.readers.delimited import parse_sample, read_csv, read_header, schema_of_sample
from kubothek.ingest.readers.infer import unify
from kubothek.ingest.readers.json_lines import infer_json_lines, read_json_lines
from kubothek.ingest.readers.parquet_files import check_parquet_columns, open_parquet, read_parquet, row_group_bytes
from kubothek.ingest.readers.parsed import ParsedFiles
from kubothek.ingest.readers.streams import LineRange, TextStream
from kubothek.ingest.readers.values import check_names, check_required
from kubothek.storage import Store, open_store

SPLIT_BYTES: Final = 64 << 20
"""Larger files are split into parts of about this size."""
SAMPLE_BYTES: Final = 64 << 20
"""Bytes that inference reads over all files; at least ``_FILE_SAMPLE_BYTES`` of each sampled file. As many bytes of
rows wait for their read."""
_FILE_SAMPLE_BYTES: Final = 1 << 20
_SAMPLED_FILES: Final = 64
_THREADS: Final = 8
_LISTED: Final = 1000

T = TypeVar("T")
R = TypeVar("R")


class SourceReader:
    """Reader of one source. A context manager that owns the downloads of URLs. Only its own threads share it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._store: Store | None = open_store(source.store) if source.store and source.paths else None
        self._downloads: dict[str, Download] = {}
        self._parsed = ParsedFiles()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._parsed.clear()
        for download in self._downloads.values():
            download.file.close()

    # --- planning ---

    def plan(self) -> SourcePlan:
        """Find all files and split the large ones.

        Raises InputError for a source without files, SourceNotFound, SourceRefused, SourceEmpty for a file without
        bytes, SourceCorrupt, or a StoreError.
        """
        names = self.source.names
        if not names or (self.source.paths and self._store is None):
            raise InputError("a source has paths in a store, or urls; it has none")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the source names {twice!r} twice, which would read its rows twice; name it once")
        return SourcePlan(tuple(split for splits in _concurrently(self._plan_file, names) for split in splits))

    def _plan_file(self, name: str) -> list[Split]:
        size, fingerprint = self._locate(name)
        file = SourceFile(name, size, fingerprint, self._compression(name))
        if size == 0:
            raise SourceEmpty(f"{name!r} is empty (0 bytes); upload it again, or leave it out")
        unsplit = [Split(file, size)]
        if size <= SPLIT_BYTES or file.compression is not Compression.NONE:
            return unsplit
        if self.source.format is Format.PARQUET:
            with open_parquet(name, self._open(file)) as parquet:
                return _row_group_splits(file, row_group_bytes(parquet))
        parts = -(-size // SPLIT_BYTES)
        cuts = [size * part // parts for part in range(parts + 1)]
        return [Split(file, stop - start, start, stop) for start, stop in pairwise(cuts)]

    def _compression(self, name: str) -> Compression:
        if self.source.format is Format.PARQUET:
            return Compression.NONE
        if self.source.compression is not Compression.AUTO:
            return self.source.compression
        path = name.lower() if self._store else name.lower().partition("?")[0]
        if path.endswith((".gz", ".gzip")):
            return Compression.GZIP
        return Compression.ZIP if path.endswith(".zip") else Compression.NONE

    def _locate(self, name: str) -> tuple[int, str]:
        """Return the present size and fingerprint."""
        if self._store is None:
            download = self._download(name)
            return download.size, download.fingerprint
        try:
            info = self._store.stat(name)
        except ObjectNotFound:
            raise self._not_found(self._store, name) from None
        return info.size, info.etag

    def _not_found(self, store: Store, name: str) -> SourceNotFound:
        directory = name[: name.rfind("/") + 1]
        names = [directory + entry for entry in islice(store.list_names(directory), _LISTED)]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; correct source.paths"
        return SourceNotFound(f"there is no {name!r} in {store.url}{hint}")

    def _download(self, url: str) -> Download:
        if url not in self._downloads:
            self._downloads[url] = fetch(url, self.source.policy)
        return self._downloads[url]

    # --- opening ---

    def _require_unchanged(self, file: SourceFile) -> None:
        """Raise SourceChanged if the file's bytes differ from the planned ones."""
        if self._locate(file.name)[1] != file.fingerprint:
            raise SourceChanged(
                f"{file.name!r} was replaced while it was being read; let its writer finish and try again"
            )

    def _open(self, file: SourceFile) -> io.BufferedIOBase:
        """Return the file's bytes. Raises SourceChanged if they differ from the planned ones."""
        self._require_unchanged(file)
        if self._store is None:
            return self._downloads[file.name].open()
        return self._store.open(file.name)

    def _open_text(self, split: Split) -> TextStream:
        file = self._open(split.file)
        in_range = split.start is not None and split.stop is not None
        raw = LineRange(file, split.start or 0, split.stop or 0) if in_range else file
        quote = self.source.csv.quote.encode() if self.source.format is Format.CSV else b""
        return TextStream(split.file.name, raw, split.file.compression, quote, self.source.unpacking)

    # --- schema ---

    def infer_schema(self, plan: SourcePlan) -> pa.Schema:
        """Return the stored schema of the source, inferred from the beginnings of its files (all of a small file).

        Reads at most 64 files, evenly spread. Keeps the rows of small CSV files for :meth:`read`. Raises SchemaMismatch
        or DataTypeMismatch if they are incompatible, SourceEmpty if none of them has a column, SourceCorrupt.
        """
        files = plan.files
        chosen = [files[i * len(files) // _SAMPLED_FILES] for i in range(_SAMPLED_FILES)]
        chosen = list(files) if len(files) <= _SAMPLED_FILES else chosen
        size = max(_FILE_SAMPLE_BYTES, SAMPLE_BYTES // 2 // len(chosen))
        kept = SAMPLE_BYTES // len(chosen)
        found = _concurrently(partial(self._infer_file, size, kept), chosen)
        schema = unify([(file.name, each) for file, each in zip(chosen, found, strict=True)], self.source.format)
        if not schema.names:
            raise SourceEmpty(f"the source has no rows: {plan.describe()}")
        return schema

    def _infer_file(self, size: int, kept: int, file: SourceFile) -> pa.Schema:
        with decoding(file.name, f"{self.source.format} file"):
            if self.source.format is Format.PARQUET:
                with open_parquet(file.name, self._open(file)) as parquet:
                    return parquet.schema_arrow
            with self._open_text(Split(file, file.size)) as stream:
                sample, is_whole = _read_lines(stream, size)
            if self.source.format is Format.JSON_LINES:
                return infer_json_lines(file.name, sample)
            names = self._csv_names(file, sample)
            table, is_exact = parse_sample(sample, self.source.csv, names, self.source.csv.header)
            # With an odd number of quotes the last one may not be closed, which the reader finds.
            if is_whole and is_exact and stream.quotes % 2 == 0 and 0 < table.nbytes <= kept:
                self._parsed.keep(file, table)
            return schema_of_sample(table)

    def _csv_names(self, file: SourceFile, beginning: bytes = b"") -> list[str]:
        """Return the names of a file's columns, from ``beginning`` if it was read before."""
        if self.source.csv.header:
            if beginning:
                return read_header(file.name, io.BytesIO(beginning), self.source.csv)
            with self._open_text(Split(file, file.size)) as stream:
                return read_header(file.name, stream, self.source.csv)
        if self.source.columns is None:
            raise SchemaMismatch(f"{file.name!r} has no header: name its columns, in order, in source.schema")
        return list(self.source.columns.names)

    def check_columns(self, plan: SourcePlan, schema: pa.Schema, partition_on: Sequence[str] = ()) -> None:
        """Raise the errors of :meth:`read` about the columns of any file, by footers and headers alone.

        For rows that another process reads: those that :meth:`infer_schema` kept are forgotten.
        """
        self._parsed.clear()
        _concurrently(partial(self._check_file, schema, partition_on), plan.files)

    def _check_file(self, schema: pa.Schema, partition_on: Sequence[str], file: SourceFile) -> None:
        with decoding(file.name, f"{self.source.format} file"):
            if self.source.format is Format.PARQUET:
                with open_parquet(file.name, self._open(file)) as parquet:
                    check_parquet_columns(file.name, parquet, schema, partition_on)
            elif self.source.format is Format.CSV:
                check_names(file.name, self._csv_names(file), schema.names)

    # --- reading ---

    def read(self, split: Split, schema: pa.Schema, partition_on: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in the columns and types of ``schema``, some MiB at a time.

        Values may be missing where the schema's field is nullable and is not a partition column. Raises an InputError
        that names file, column and row (counted from 1). A byte range does not know its rows' numbers, nor whether it
        was cut inside quotes: :meth:`diagnose` finds the true error.
        """
        reached = 1
        with decoding(split.file.name, f"{self.source.format} file", where=lambda: f"row {reached} or after it"):
            for first_row, batch in self._batches(split, schema, partition_on):
                check_required(batch, tuple(partition_on), split.file.name, first_row)
                yield batch
                reached = first_row + batch.num_rows

    def read_all(
        self,
        plan: SourcePlan,
        schema: pa.Schema,
        partition_on: Sequence[str] = (),
        report: Callable[[int, int, int], None] = lambda done, files, rows: None,
    ) -> pa.RecordBatchReader:
        """Return the rows of all files of a plan, in their order, as a stream that raises what :meth:`read` raises.

        ``report``  gets the numbers of files read, of all files, and of rows read so far
        """

        def batches() -> Iterator[pa.RecordBatch]:
            splits, rows = plan.unsplit.splits, 0
            for done, split in enumerate(splits):
                for batch in self.read(split, schema, partition_on):
                    rows += batch.num_rows
                    report(done, len(splits), rows)
                    yield batch

        return pa.RecordBatchReader.from_batches(schema, batches())

    def diagnose(self, file: SourceFile, schema: pa.Schema, partition_on: Sequence[str] = ()) -> InputError | None:
        """Return the error of a file, with the true number of the row; None if the whole file can be read."""
        try:
            for _ in self.read(Split(file, file.size), schema, partition_on):
                pass
        except InputError as error:
            return error
        return None

    def _batches(
        self, split: Split, schema: pa.Schema, partition_on: Sequence[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        name = split.file.name
        if self.source.format is Format.PARQUET:
            yield from read_parquet(name, self._open(split.file), schema, split.row_groups, partition_on)
        elif self.source.format is Format.JSON_LINES:
            yield from _numbered(read_json_lines(name, partial(self._open_text, split), schema))
        else:
            yield from _numbered(self._csv_batches(split, schema))

    def _csv_batches(self, split: Split, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        if not split.is_range and (parsed := self._parsed.take(split.file, schema)) is not None:
            self._require_unchanged(split.file)
            yield from parsed
            return
        opened: list[TextStream] = []

        def open_stream() -> TextStream:
            opened.append(self._open_text(split))
            return opened[-1]

        names = self._csv_names(split.file)
        has_header = self.source.csv.header and not split.start
        yield from read_csv(split.file.name, open_stream, schema, self.source.csv, names, has_header=has_header)
        # With an even number of quotes in each range, no cut is inside a quoted value.
        if split.is_range and opened[-1].quotes % 2:
            raise SourceCorrupt(f"{split.file.name!r} was cut inside of a quoted value, or a quote is never closed")


def _row_group_splits(file: SourceFile, sizes: list[int]) -> list[Split]:
    """Return splits of adjacent row groups, up to ``SPLIT_BYTES`` of the file."""
    total = sum(sizes)
    splits: list[Split] = []
    groups: list[int] = []
    for group, size in enumerate(sizes):
        share = sum(sizes[g] for g in groups)
        if groups and (share + size) * file.size > SPLIT_BYTES * total:
            splits.append(Split(file, file.size * share // total, row_groups=tuple(groups)))
            groups = []
        groups.append(group)
    share = sum(sizes[g] for g in groups)
    splits.append(Split(file, file.size * share // max(1, total), row_groups=tuple(groups)))
    return splits


def _read_lines(stream: TextStream, size: int) -> tuple[bytes, bool]:
    """Return about the first ``size`` bytes, up to a line's end, and whether they are the whole file."""
    pieces, held = [], 0
    while held < size and (piece := stream.read(size - held)):
        pieces.append(piece)
        held += len(piece)
    data = b"".join(pieces)
    is_whole = held < size or not stream.read(1)
    return (data if is_whole else data[: data.rfind(b"\n") + 1]), is_whole


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    first_row = 1
    for batch in batches:
        yield first_row, batch
        first_row += batch.num_rows


def _concurrently(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return results in order; raise the first error in that order."""
    with ThreadPoolExecutor(min(_THREADS, len(items)), thread_name_prefix="source") as pool:
        return list(pool.map(work, items))
