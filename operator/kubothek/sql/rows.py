"""The rows of a query in Python: a stream with the conversions that programs and notebooks want."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kubothek.errors import InputError
from kubothek.table import frames

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class QueryResult:
    """The rows of a query, as a stream that can be read once: as a whole, or batch by batch in bounded memory.

    ``head`` and the display in a notebook keep what they read: they take no row from the stream. Every library that
    reads Arrow streams accepts the result: ``polars.DataFrame(result)``, ``dataset.append(result)``.
    """

    def __init__(self, rows: pa.RecordBatchReader) -> None:
        self._rows = rows
        self._ahead = deque[pa.RecordBatch]()
        self._is_read = False

    def __repr__(self) -> str:
        return f"QueryResult({', '.join(self.schema.names)})"

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._rows.schema

    def head(self, rows: int = frames.SHOWN_ROWS) -> pa.Table:
        """Return the first rows that were not read yet; they stay in the stream.

        Raises InputError if all rows were read, QueryInvalid if the query fails.
        """
        frames.require_row_count(rows)
        self._require_unread()
        while sum(batch.num_rows for batch in self._ahead) < rows and (batch := self._read()) is not None:
            self._ahead.append(batch)
        return frames.first_rows(self._ahead, self.schema, rows)

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table. Raises InputError if they were read already, QueryInvalid."""
        self._require_unread()
        return pa.Table.from_batches(list(self), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a DataFrame: times in nanoseconds where they fit, integers with nulls as Int64.

        Raises SchemaMismatch if two columns have one name, and what :meth:`to_arrow` raises.
        """
        return frames.to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars DataFrame. Raises InputError without polars, and as :meth:`to_pandas`."""
        return frames.to_polars(self.to_arrow())

    def read_all(self) -> pa.Table:
        """Return what :meth:`to_arrow` returns, under the name of a pyarrow RecordBatchReader."""
        return self.to_arrow()

    def read_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all rows as pyarrow converts them with these options, under the name of a RecordBatchReader."""
        return self.to_arrow().to_pandas(**options)

    def read_next_batch(self) -> pa.RecordBatch:
        """Return the next rows. Raises StopIteration after the last ones."""
        if (batch := self._ahead.popleft() if self._ahead else self._read()) is None:
            self._is_read = True
            raise StopIteration
        return batch

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        return self.read_next_batch()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow C stream (Arrow PyCapsule interface)."""
        self._require_unread()
        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, for notebooks."""
        if self._is_read:
            return f"<p>{escape(repr(self))}: all rows were read</p>"
        first = self.head(frames.SHOWN_ROWS + 1)
        more = first.num_rows > frames.SHOWN_ROWS
        note = f"<p>the first {frames.SHOWN_ROWS} rows</p>" if more else ""
        return frames.html_table(first.slice(0, frames.SHOWN_ROWS)) + note

    def _read(self) -> pa.RecordBatch | None:
        try:
            return self._rows.read_next_batch()
        except StopIteration:
            return None

    def _require_unread(self) -> None:
        if self._is_read:
            raise InputError("the rows of this result were read already: run the query again, or keep to_arrow()")
