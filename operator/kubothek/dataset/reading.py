"""Reads of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.dataset.handle import Handle, Where
from kubothek.errors import DatasetNotFound
from kubothek.storage import Store
from kubothek.table import frames
from kubothek.table.expressions import Predicate, as_predicate
from kubothek.table.layout import Layout
from kubothek.table.log import Record, Snapshot, Version
from kubothek.table.log.compare import Comparison, compare
from kubothek.table.log.model.head import OWN_PREFIX
from kubothek.table.name_lists import names_in
from kubothek.table.scan.plan import Plan, plan
from kubothek.table.scan.read import arrow_dataset, scan
from kubothek.table.time_zones import in_zones, zoned, zones_of
from kubothek.words import count

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Reading(Handle):
    """Methods that read metadata and rows."""

    @property
    def version(self) -> int:
        """The number of the current version."""
        return self.snapshot().version

    @property
    def schema(self) -> pa.Schema:
        """The columns of the current version; none if they are not known yet."""
        snapshot = self.snapshot()
        return zoned(_schema_of(snapshot), zones_of(snapshot.head.metadata))

    @property
    def layout(self) -> Layout:
        """The layout of files for the next write. Raises LayoutInvalid if another program damaged it in the head."""
        return Layout.of(self.snapshot().head)

    @property
    def rows(self) -> int:
        """The number of rows of the current version; it reads files only if another program wrote last."""
        totals = self.snapshot().totals
        return totals.rows if totals else self.arrow_dataset().count_rows()

    def history(self) -> Iterator[Record]:
        """Return the commits, newest first, read lazily."""
        return self._log().history()

    def diff(self, before: Version, after: Version | None = None) -> Comparison:
        """Return the difference of two versions: rows and files by partition, columns, indices.

        ``after`` None = the current version.

        Raises VersionNotFound, VersionIncomplete.
        """
        return compare(self._store, self._log(), self.snapshot(before), self.snapshot(after))

    def arrow_dataset(self, as_of: Version | None = None) -> ds.FileSystemDataset:
        """Return one version as a pyarrow dataset; its times are naive UTC, as in files."""
        snapshot = self.snapshot(as_of)
        return arrow_dataset(self._store, snapshot.head, _schema_of(snapshot))

    def scan(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pa.RecordBatchReader:
        """Return the rows as a stream, in bounded memory; ``.read_all()`` or ``.read_pandas()`` collect it.

        Files that cannot hold rows for which ``where`` is TRUE are not opened: see :meth:`plan`. Times are in the time
        zone of their column; ``where`` compares them as UTC. Raises FilterInvalid for a filter that does not fit the
        schema, InputError for unknown columns.
        """
        columns = None if columns is None else names_in("columns", columns)
        predicate = None if where is None else as_predicate(where)
        return rows_of(self._store, self.snapshot(as_of), columns, predicate)

    def head(
        self,
        rows: int = frames.SHOWN_ROWS,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pa.Table:
        """Return the first rows, in the order of the files; it opens no more files than these rows need, and a few.

        Raises what :meth:`scan` raises.
        """
        frames.require_row_count(rows)
        reader = self.scan(columns, where, as_of)
        return frames.first_rows(reader, reader.schema, rows)

    def to_arrow(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pa.Table:
        """Return the rows of :meth:`scan` as an Arrow table."""
        return self.scan(columns, where, as_of).read_all()

    def to_pandas(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pd.DataFrame:
        """Return the rows as a DataFrame in plateau's types: times in nanoseconds, integers with nulls as Int64.

        If a time is outside of the range of nanoseconds (years 1678 to 2261), times are in microseconds.
        """
        return frames.to_pandas(self.to_arrow(columns, where, as_of))

    def read_pandas(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pd.DataFrame:
        """Return what :meth:`to_pandas` returns, under the name of a pyarrow RecordBatchReader."""
        return self.to_pandas(columns, where, as_of)

    def to_polars(
        self,
        columns: Sequence[str] | str | None = None,
        where: Where | None = None,
        as_of: Version | None = None,
    ) -> pl.DataFrame:
        """Return the rows as a polars DataFrame. Raises InputError without polars."""
        return frames.to_polars(self.to_arrow(columns, where, as_of))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows of the current version as an Arrow C stream (Arrow PyCapsule interface)."""
        return self.scan().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def _repr_html_(self) -> str:
        """Return name, version and first rows as HTML, for notebooks."""
        try:
            snapshot = self.snapshot()
        except DatasetNotFound as error:
            return f"<p>{escape(str(error))}</p>"
        total = f", {count(snapshot.totals.rows, 'row')}" if snapshot.totals else ""
        title = f"<p>{escape(repr(self))}, version {snapshot.version}{total}</p>"
        return title + (frames.html_table(self.head(as_of=snapshot.version)) if len(_schema_of(snapshot)) else "")

    @property
    def metadata(self) -> dict[str, Any]:
        """The user metadata, as kartothek and plateau show it, without Kubothek's own."""
        found = self.snapshot().head.metadata
        return {key: value for key, value in found.items() if not key.startswith(OWN_PREFIX)}

    def plan(self, where: Where | None = None, as_of: Version | None = None) -> Plan:
        """Return which files :meth:`scan` would open, and how many files each planning step leaves."""
        predicate = None if where is None else as_predicate(where)
        return plan(self._store, self.snapshot(as_of), predicate)


def _schema_of(snapshot: Snapshot) -> pa.Schema:
    return pa.schema([]) if snapshot.schema is None else snapshot.schema


def rows_of(
    store: Store, snapshot: Snapshot, columns: Sequence[str] | None = None, where: Predicate | None = None
) -> pa.RecordBatchReader:
    """Return the rows of a snapshot as a stream, with times in the zone of their column."""
    rows = scan(store, snapshot, columns, where)
    shown = zoned(rows.schema, zones_of(snapshot.head.metadata))
    if shown == rows.schema:
        return rows
    return pa.RecordBatchReader.from_batches(shown, (in_zones(batch, shown) for batch in rows))
