"""Writes of a dataset: each change is one commit, applied once per id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kubothek.dataset.handle import CommitResult, Handle, Maker, OnConflict, Where
from kubothek.errors import SourceEmpty
from kubothek.table import operations
from kubothek.table.expressions import Predicate, as_predicate
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation, Snapshot, Transaction, Version
from kubothek.table.operations import Rows


class Writing(Handle):
    """Methods that change rows or the layout."""

    def append(
        self,
        data: Rows,
        *,
        evolve: bool = False,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002
    ) -> CommitResult:
        """Add rows in one commit, streaming them to storage; return the new version and its totals.

        ``data``      a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame (without its index), any
                      object with the Arrow stream interface, or an iterable of Tables or RecordBatches of one schema
        ``evolve``    allow new columns, which are null in older rows, and decimals with more digits; columns that the
                      data lacks are null in the new rows
        ``metadata``  user metadata to set, as kartothek and plateau show it; None as a value removes a key
        ``id``        permanent id of this append: a repetition with the same id does nothing and returns the first
                      result, so a program can simply run again after a crash. The id identifies the data, which is not
                      compared. None = every call appends

        Data without rows makes a commit that changes nothing. Values are cast to the types of the table if no value
        loses information: integers, floats and strings of any width, decimals of other digits, integers to decimals,
        whole floats to integers, also in structs and lists. Times with a zone are stored in UTC and read in the zone of
        the column. Raises SchemaMismatch, which names the column and the first value without an exact form,
        DataTypeMismatch, PartitionInvalid, OwnedByAnother, and leaves the dataset unchanged.
        """

        def start(now: Transaction) -> Maker:
            try:
                written = self._written(now, data, now.snapshot.schema, evolve=evolve)
            except SourceEmpty:
                return lambda _: Change(operation=Operation.APPEND, metadata=metadata or {}, by=self._author)
            return lambda _: replace(operations.append(written, by=self._author), metadata=metadata or {})

        return self._commit("append", id, (), start)

    def replace(
        self,
        data: Rows,
        *,
        where: Where | None = None,
        evolve: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Replace whole partitions by new rows, in one commit.

        ``where``        condition on partition columns for the partitions to replace, which every row must satisfy;
                         None = those of the rows. ``"TRUE"`` is all; another filter that selects all is rejected
        ``evolve``       as for :meth:`append`
        ``id``           as for :meth:`append`; it identifies the data, but not ``where``
        ``on_conflict``  if another commit changed these partitions meanwhile: ``Fail`` raises Conflict, ``Retry``
                         replaces their new content

        Raises what :meth:`append` raises; FilterInvalid, FilterMatchesAll, FilterNotMet, Conflict.
        """
        bound = None if where is None else as_predicate(where)

        def start(now: Transaction) -> Maker:
            def check(schema: pa.Schema) -> Predicate | None:
                partition_on = now.snapshot.head.partition_keys
                return operations.check_replace(self._store, now.snapshot, schema, partition_on, bound)

            written = self._written(now, data, now.snapshot.schema, check, evolve=evolve)
            return lambda snapshot: operations.replace(self._store, snapshot, written, bound, by=self._author)

        return self._commit("replace", id, (bound,), start, on_conflict)

    def overwrite(
        self,
        data: Rows,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Replace all rows, in one commit; the old rows stay in the history.

        ``allow_schema_change``  allow columns that do not fit the table's; they replace them. Readers of other
                                 libraries may see the new files with the old schema for a moment

        Raises what :meth:`append` raises, and Conflict if there was any other commit meanwhile.
        """

        def start(now: Transaction) -> Maker:
            with operations.fitting(now.snapshot, allow_schema_change=allow_schema_change) as table:
                written = self._written(now, data, table)
            return lambda snapshot: operations.overwrite(
                snapshot, written, allow_schema_change=allow_schema_change, by=self._author
            )

        return self._commit("overwrite", id, (allow_schema_change,), start, on_conflict)

    def delete(
        self,
        where: Where,
        *,
        row_level: bool = False,
        purge: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Delete the rows for which ``where`` is TRUE, in one commit, which changes nothing without such rows.

        ``row_level``  rewrite files that also have other rows; without it only whole files are deleted, and a filter
                       that selects some rows of a file is rejected with RowLevelNeeded
        ``purge``      expire all earlier versions: they cannot be read or rolled back to, and the first :meth:`collect`
                       after the grace period deletes files with such rows. Rejected with VersionTagged while versions
                       have tags
        ``id``         as for :meth:`append`; a repetition does not delete rows that match later

        Raises FilterInvalid, RowLevelNeeded, FilterMatchesAll (``"TRUE"`` is all), Conflict, OwnedByAnother.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.delete(
                self._store, snapshot, bound, rewriter=rewriter, purge=purge, by=self._author
            )

        says = (bound, row_level, "purge") if purge else (bound, row_level)
        return self._commit("delete", id, says, start, on_conflict)

    def update(
        self,
        values: Mapping[str, Any],
        *,
        where: Where,
        row_level: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Set values in the rows for which ``where`` is TRUE, in one commit: ``{"carrier": "AA", "delay": None}``.

        ``values``     by column a value, or an expression over the row: ``kubothek.Expression("price * 1.1")``. All
                       expressions see the row before the change; a value that the column cannot hold is an error
        ``row_level``  must be True: files with such rows are rewritten

        Rows with changed partition columns move to their new partition. Raises what :meth:`delete` raises; InputError,
        FilterInvalid or PartitionInvalid for invalid values.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.update(
                self._store, snapshot, bound, values, rewriter=rewriter, by=self._author
            )

        return self._commit("update", id, (bound, sorted(values.items()), row_level), start, on_conflict)

    def rollback(
        self,
        to: Version,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Commit the files of an earlier version, given by number, time or tag, as a new version.

        ``allow_schema_change``  allow a version whose columns do not fit the table's

        Raises VersionNotFound, VersionIncomplete, SchemaMismatch, and Conflict if there was any other commit meanwhile.
        """
        log = self._log()

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.rollback(
                self._store, log, snapshot, to, allow_schema_change=allow_schema_change, by=self._author
            )

        return self._commit("rollback", id, (to, allow_schema_change), start, on_conflict)

    def set_layout(self, layout: Layout, *, id: str | None = None) -> CommitResult:  # noqa: A002
        """Set the layout of files from the next write on: ``replace(dataset.layout, sort_by=("carrier",))``.

        Existing files stay as they are. Raises LayoutInvalid, and PartitionInvalid for other partition columns.
        """

        def start(_: Transaction) -> Maker:
            def make(snapshot: Snapshot) -> Change:
                wanted = Layout.of(snapshot.head, layout)
                if snapshot.schema is not None:
                    wanted.check(snapshot.schema)
                return Change(operation=Operation.LAYOUT, layout=wanted.to_json(), by=self._author)

            return make

        return self._commit("layout", id, (layout,), start)
