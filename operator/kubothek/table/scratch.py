"""Working space of a merge or a comparison: a database with a memory limit, and a directory for what exceeds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self

import duckdb
import numpy as np
import pyarrow as pa

from kubothek.errors import MergeTooLarge
from kubothek.in_memory_database import StreamErrors, in_memory_database

MIB: Final = 1 << 20
ROW: Final = "n"
"""The column with the number of a row, in the order in which it came."""
MEMORY: Final = "1GB"
"""The default memory limit of the database."""
_BATCH_ROWS: Final = 1 << 16
_IN_MEMORY: Final = 256 * MIB


class Scratch:
    """The working space. Use it as a context manager; its rows cannot be read afterwards.

    ``memory``     of the database, as DuckDB writes it
    ``in_memory``  bytes of rows that are held outside of it; more go to disk
    ``directory``  for files; None = the system's directory for temporary files
    ``needs``      what needs the room, for messages

    Raises MergeTooLarge if the directory cannot be made.
    """

    def __init__(
        self,
        memory: str = MEMORY,
        in_memory: int = _IN_MEMORY,
        directory: str | None = None,
        needs: str = "the merge needs",
    ) -> None:
        self._memory = memory
        self._in_memory = in_memory
        self._needs = needs
        try:
            self._room = TemporaryDirectory(prefix="kubothek-", dir=directory, ignore_cleanup_errors=True)
        except OSError as error:
            raise MergeTooLarge(
                f"no directory for temporary files can be made: {error.strerror}; free space, or set TMPDIR"
            ) from error
        self._numbers = count()
        self._database: duckdb.DuckDBPyConnection | None = None
        self._errors = StreamErrors()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()
        self._room.cleanup()

    def new_name(self, what: str) -> str:
        """Return a name for a table or a file that is unique here."""
        return f"{what}_{next(self._numbers)}"

    # --- rows --------------------------------------------------------------------------------------------------

    def hold(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        """Buffer all rows, with a column ``n`` that numbers them; in memory, or on disk and mapped."""
        numbered = schema.append(pa.field(ROW, pa.int64()))
        held: list[pa.RecordBatch] = []
        size = 0
        pieces = _numbered(gathered(batches, schema), numbered)
        for piece in pieces:
            held.append(piece)
            size += piece.nbytes
            if size > self._in_memory:
                return self._on_disk(held, pieces, numbered)
        return pa.Table.from_batches(held, numbered)

    def _on_disk(self, first: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
        path = str(Path(self._room.name) / self.new_name("rows"))
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for piece in first:
                writer.write_batch(piece)
            first.clear()
            for piece in rest:
                writer.write_batch(piece)
        return pa.ipc.open_file(pa.memory_map(path)).read_all()

    # --- the database --------------------------------------------------------------------------------------------

    def register(self, what: str, rows: pa.Table | pa.RecordBatchReader) -> str:
        """Register rows as a table, without a copy, and return its name.

        A reader can be read once; a statement that reads it raises its error.
        """
        name = self.new_name(what)
        self._opened().register(name, self._errors.watch(rows))
        return name

    def forget(self, name: str) -> None:
        """Unregister rows."""
        self._opened().unregister(name)

    def columns(self, name: str) -> list[str]:
        """Return the columns of a table as the database names them."""
        return list(self._opened().table(name).columns)

    def run(self, statement: str) -> None:
        """Execute a statement that returns no rows. Raises MergeTooLarge."""
        try:
            self._opened().execute(statement)
        except duckdb.Error as error:
            raise self._failure(error) from error

    def first(self, query: str) -> tuple[Any, ...] | None:
        """Return the first row of a query, which has few. Raises MergeTooLarge."""
        rows = self.table(query).slice(0, 1).to_pylist()
        return tuple(rows[0].values()) if rows else None

    def rows(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query; execute nothing else meanwhile. Raises MergeTooLarge, also between rows."""
        try:
            yield from self._opened().sql(query).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query; they must fit into memory. Raises MergeTooLarge."""
        try:
            found: pa.Table = self._opened().sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise self._failure(error) from error
        return found

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._database is None:
            self._database = in_memory_database(
                memory_limit=self._memory,
                temp_directory=str(Path(self._room.name) / "database"),
                preserve_insertion_order=False,  # it would need memory; ``n`` has the order
            )
        return self._database

    def _failure(self, error: Exception) -> Exception:
        if (original := self._errors.take()) is not None:
            return original
        if isinstance(error, duckdb.OutOfMemoryException | OSError) or "Out of Memory" in str(error):
            reason = str(error).partition("\n")[0]
            return MergeTooLarge(
                f"{self._needs} more room than {self._memory} of memory and the disk have; free space for temporary "
                f"files (TMPDIR): {reason}"
            )
        return error


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Combine batches into larger ones, to amortise the work for each."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield from _one(waiting, schema)
            waiting, rows = [], 0
    if rows:
        yield from _one(waiting, schema)


def _one(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    return pa.Table.from_batches(batches, schema).combine_chunks().to_batches()


def _numbered(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        numbers = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
        yield pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=schema)
        start += batch.num_rows
