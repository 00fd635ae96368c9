"""Writing a dataset: each change is one commit, and happens once under one id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kubothek.dataset.handle import BY, Done, Handle, Maker, OnConflict, Where
from kubothek.errors import SourceEmpty
from kubothek.table import operations
from kubothek.table.expressions import Predicate, as_predicate
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Operation, Snapshot, Transaction, Version
from kubothek.table.operations import Rows


class Writing(Handle):
    """Changes of rows, and of how they are laid out."""

    def append(
        self,
        data: Rows,
        *,
        evolve: bool = False,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,  # noqa: A002
    ) -> Done:
        """Add rows in one commit, streaming them to storage; returns the new version and its totals.

        ``data``    a pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame (without its index), anything
                    with the Arrow stream interface, or an iterable of Tables or RecordBatches of one schema
        ``evolve``  the table takes new columns, which are null in older rows, and decimals with more digits; columns
                    that the data lacks are null in the new rows
        ``metadata``  user metadata to set, as kartothek and plateau show it; None as a value removes a key
        ``id``      names this append for ever: appending under it again does nothing and returns what the first one
                    did, so a program that may have crashed in between can just run again. It stands for the data,
                    which is not compared. None = every call appends

        Data without rows makes a commit that changes nothing. Values are cast to the types of the table where none of
        them loses anything: integers, floats and strings of any width, decimals of other digits, integers to decimals,
        whole floats to integers, also in structs and lists. Times with a zone are stored in UTC and read in the zone of
        the column. Raises SchemaMismatch, which names the column and the first
        value that has no exact form, DataTypeMismatch, PartitionInvalid, OwnedByAnother with the dataset as before.
        """

        def start(now: Transaction) -> Maker:
            try:
                written = self._written(now, data, now.snapshot.schema, evolve=evolve)
            except SourceEmpty:
                return lambda _: Change(operation=Operation.APPEND, metadata=metadata or {}, by=BY)
            return lambda _: replace(operations.append(written, by=BY), metadata=metadata or {})

        return self._commit("append", id, (), start)

    def replace(
        self,
        data: Rows,
        *,
        where: Where | None = None,
        evolve: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Put rows in the place of whole partitions, in one commit.

        ``where``        on partition columns: which are replaced, and what every row must satisfy; None = those that
                         the rows touch. ``"TRUE"`` is all; any other that selects everything is refused
        ``evolve``       as for :meth:`append`
        ``id``           as for :meth:`append`; stands for the data, but not for ``where``
        ``on_conflict``  what to do if another commit changed these partitions meanwhile: fail with Conflict, or
                         replace what is there by then

        Raises what :meth:`append` raises; FilterInvalid, FilterMatchesAll, FilterNotMet, Conflict.
        """
        bound = None if where is None else as_predicate(where)

        def start(now: Transaction) -> Maker:
            def check(schema: pa.Schema) -> Predicate | None:
                partition_on = now.snapshot.head.partition_keys
                return operations.check_replace(self._store, now.snapshot, schema, partition_on, bound)

            written = self._written(now, data, now.snapshot.schema, check, evolve=evolve)
            return lambda snapshot: operations.replace(self._store, snapshot, written, bound, by=BY)

        return self._commit("replace", id, (bound,), start, on_conflict)

    def overwrite(
        self,
        data: Rows,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Put rows in the place of all rows, in one commit; the old ones stay in the history.

        ``allow_schema_change``  columns that do not go with those of the table take their place. Foreign readers may
                                 see the new files and the old schema for a moment

        Raises what :meth:`append` raises, and Conflict if there was any other commit meanwhile.
        """

        def start(now: Transaction) -> Maker:
            with operations.fitting(now.snapshot, allow_schema_change=allow_schema_change) as table:
                written = self._written(now, data, table)
            return lambda snapshot: operations.overwrite(
                snapshot, written, allow_schema_change=allow_schema_change, by=BY
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
    ) -> Done:
        """Take away the rows for which ``where`` is TRUE, in one commit; one that changes nothing if there are none.

        ``row_level``  rewrite the files that hold other rows as well; without it only whole files go, and a filter
                       that selects rows inside of files is refused with RowLevelNeeded
        ``purge``      all versions before it expire with it: they cannot be read or rolled back to, and the first
                       :meth:`collect` after the grace period deletes what holds such rows. Refused with VersionTagged
                       as long as versions have tags
        ``id``         as for :meth:`append`; what matches later is not deleted by running it again

        Raises FilterInvalid, RowLevelNeeded, FilterMatchesAll (``"TRUE"`` is all), Conflict, OwnedByAnother.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.delete(
                self._store, snapshot, bound, rewriter=rewriter, purge=purge, by=BY
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
    ) -> Done:
        """Give the rows for which ``where`` is TRUE other values, in one commit: ``{"carrier": "AA", "delay": None}``.

        ``row_level``  must say that files are rewritten: those that hold such rows

        Rows whose partition columns change move. Raises what :meth:`delete` raises; InputError, FilterInvalid or
        PartitionInvalid for values that do not fit.
        """
        bound = as_predicate(where)
        rewriter = operations.rewrite_here(self._store) if row_level else None

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.update(self._store, snapshot, bound, values, rewriter=rewriter, by=BY)

        return self._commit("update", id, (bound, sorted(values.items()), row_level), start, on_conflict)

    def rollback(
        self,
        to: Version,
        *,
        allow_schema_change: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> Done:
        """Bring back the files of a version, a time or a tag, as a new version.

        ``allow_schema_change``  also where that version's columns do not go with those of the table

        Raises VersionNotFound, VersionIncomplete, SchemaMismatch, and Conflict if there was any other commit meanwhile.
        """
        log = self._log(writing=True)

        def start(_: Transaction) -> Maker:
            return lambda snapshot: operations.rollback(
                self._store, log, snapshot, to, allow_schema_change=allow_schema_change, by=BY
            )

        return self._commit("rollback", id, (to, allow_schema_change), start, on_conflict)

    def set_layout(self, layout: Layout, *, id: str | None = None) -> Done:  # noqa: A002
        """Lay out files in another way from the next write on: ``replace(dataset.layout, sort_by=("carrier",))``.

        Files that are there stay as they are. Raises LayoutInvalid, and PartitionInvalid for other partition columns.
        """

        def start(_: Transaction) -> Maker:
            def make(snapshot: Snapshot) -> Change:
                wanted = Layout.of(snapshot.head, layout)
                if snapshot.schema is not None:
                    wanted.check(snapshot.schema)
                return Change(operation=Operation.LAYOUT, layout=wanted.to_json(), by=BY)

            return make

        return self._commit("layout", id, (layout,), start)
