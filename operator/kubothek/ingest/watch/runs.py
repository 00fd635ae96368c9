"""Sorted runs: immutable Parquet objects of ledger entries, searched and merged one row group at a time.

A run is sorted by key, so the statistics of its row groups are an index. To compare a piece of a sorted listing with a
run, only the row groups of that range of keys are read. Any Parquet reader can show what a source has ingested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import VersionIncomplete
from kubothek.storage import Store
from kubothek.table.untrusted_parquet import DAMAGED, open_parquet_file

ENTRIES: Final = pa.schema({name: pa.string() for name in ("key", "etag", "error", "reading")})
"""One file version per row. ``error``: why it is in quarantine, null if its rows were ingested; ``reading``: digest of
the read options with which it failed."""

_GROUP_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its key, its number of entries, and the least and the greatest file key in it."""

    key: str
    entries: int
    first: str
    last: str


class RunReader:
    """Search of one run for ascending ranges of keys; caches the last row group. A context manager.

    Raises VersionIncomplete, naming the run, if it is damaged.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._key = run.key
        self._raw = store.open(run.key)
        with self._reading():
            self._file = open_parquet_file(self._raw)
            if self._file.schema_arrow.remove_metadata() != ENTRIES:
                raise ValueError("it has other columns")
            groups: list[Any] = [self._file.metadata.row_group(i) for i in range(self._file.num_row_groups)]
            self._bounds = [_bounds(group.column(0).statistics) for group in groups]
        self._last: tuple[int, pa.Table] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def between(self, first: str, last: str) -> Iterator[pa.Table]:
        """Yield the row groups that may have entries with keys from ``first`` to ``last``."""
        for group, (low, high) in enumerate(self._bounds):
            if low <= last and first <= high:
                if self._last is None or self._last[0] != group:
                    self._last = group, self._read(group)
                yield self._last[1]

    def with_errors(self) -> Iterator[pa.Table]:
        """Yield the row groups with quarantined entries."""
        column = ENTRIES.get_field_index("error")
        for group in range(len(self._bounds)):
            found: Any = self._file.metadata.row_group(group)
            statistics = found.column(column).statistics
            if statistics is None or statistics.null_count is None or statistics.null_count < found.num_rows:
                yield self._read(group)

    def pieces(self) -> Iterator[pa.Table]:
        """Yield the whole run, a row group at a time."""
        for group in range(len(self._bounds)):
            yield self._read(group)

    def _read(self, group: int) -> pa.Table:
        with self._reading():
            found = self._file.read_row_group(group)
            found.validate(full=True)
            return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            raise VersionIncomplete(
                f"{self._key}: not a list of what a source has taken: {error}; restore it from a backup"
            ) from error


def _bounds(statistics: Any) -> tuple[str, str]:
    """Return the least and the greatest key of a row group. Raises ValueError if its statistics lack them."""
    if statistics is None or not isinstance(statistics.min, str) or not isinstance(statistics.max, str):
        raise ValueError("it does not tell the range of its keys")
    return statistics.min, statistics.max


def merged(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge several streams into one sorted by key; holds one piece of each.

    Rows up to the least of the pieces' last keys can be yielded: no later row has a lesser key.
    """
    pieces = [(piece, stream) for stream in streams if (piece := next(stream, None)) is not None]
    while pieces:
        bound = min(piece["key"][-1].as_py() for piece, _ in pieces)
        out: list[pa.Table] = []
        kept: list[tuple[pa.Table, Iterator[pa.Table]]] = []
        for piece, stream in pieces:
            count = pc.less_equal(piece["key"], pa.scalar(bound)).to_numpy().sum()
            out.append(piece.slice(0, count))
            left = piece.slice(count) if count < piece.num_rows else next(stream, None)
            if left is not None:
                kept.append((left, stream))
        pieces = kept
        yield pa.concat_tables(out).sort_by("key")


def write_run(store: Store, key: str, pieces: Iterable[pa.Table]) -> Run:
    """Write a sorted, non-empty stream as one run, through a temporary file."""
    first, last, entries = None, "", 0
    with TemporaryFile() as file:
        with pq.ParquetWriter(cast("IO[bytes]", file), ENTRIES, compression="zstd", use_dictionary=False) as writer:
            for group in _regrouped(pieces):
                writer.write_table(group, row_group_size=_GROUP_ROWS)
                first = group["key"][0].as_py() if first is None else first
                last = group["key"][-1].as_py()
                entries += group.num_rows
        file.seek(0)
        store.upload(key, cast("IO[bytes]", file))  # type: ignore[arg-type]
    assert first is not None, "a run has entries"
    return Run(key, entries, first, last)


def _regrouped(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows in pieces of a row group each."""
    held: list[pa.Table] = []
    rows = 0
    for piece in pieces:
        held.append(piece)
        rows += piece.num_rows
        while rows >= _GROUP_ROWS:
            table = pa.concat_tables(held)
            yield table.slice(0, _GROUP_ROWS)
            rest = table.slice(_GROUP_ROWS)
            held, rows = [rest], rest.num_rows
    if rows:
        yield pa.concat_tables(held)
