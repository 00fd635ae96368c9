"""Merges of rows into a dataset by key."""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.dataset.handle import CommitResult, Handle, Maker, OnConflict, require_on_conflict
from kubothek.errors import SourceEmpty
from kubothek.table.log import Change, Operation, Transaction
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.operations import Rows
from kubothek.table.operations.merging import Clauses, Merge, Merger
from kubothek.table.scratch import Scratch


class Merging(Handle):
    """Methods that merge rows by key."""

    def upsert(
        self,
        source: Rows,
        *,
        key: str | Sequence[str],
        evolve: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Update the rows that have a key of the source, and insert the others: a :meth:`merge` of all columns."""
        return self.merge(
            source,
            key=key,
            when_matched="Update",
            when_not_matched="Insert",
            evolve=evolve,
            id=id,
            on_conflict=on_conflict,
        )

    def merge(
        self,
        source: Rows,
        *,
        key: str | Sequence[str],
        when_matched: Clauses = None,
        when_not_matched: Clauses = None,
        when_not_matched_by_source: Clauses = None,
        evolve: bool = False,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "Fail",
    ) -> CommitResult:
        """Merge rows by key, in one commit; only files that hold rows to change are rewritten.

        ``source``  rows as for :meth:`append`; each key may occur once. Rows beyond memory go to a temporary directory
        ``key``     columns of both sides that identify a row. NULL matches nothing: a source row with NULL in its key
                    is not matched
        ``when_matched``                rows of the table with a source row: ``"Update"``, ``"Delete"``, or a
                                        :class:`MergeClause` or a mapping of its fields, ``{"action": "Update", "set":
                                        {"price": "source.price * 1.1"}, "where": "source.price > target.price"}``; of
                                        several in a list the first whose condition is TRUE applies. None = they stay
        ``when_not_matched``            source rows without a row of this key: ``"Insert"`` and the like
        ``when_not_matched_by_source``  rows of the table without a source row: ``"Delete"``, or updates that name
                                        columns
        ``evolve``  as for :meth:`append`; columns that the source lacks stay as they are in updated rows
        ``id``      as for :meth:`append`; it identifies the data, but not the clauses
        ``on_conflict``  if another commit meanwhile changed, added or removed rows with these keys: ``Fail`` raises
                         Conflict, ``Retry`` merges into its result. Other commits do not matter, unless rows without a
                         source row are changed

        An expression reads ``source.column`` and ``target.column`` of its row. Values are cast as by :meth:`append`, if
        no value loses information. Rows whose partition columns change move to their new partition. A source without
        rows changes nothing but for ``when_not_matched_by_source``.

        Raises DuplicateKeys, InputError, FilterInvalid, SchemaMismatch, DataTypeMismatch, PartitionInvalid, Conflict,
        MergeTooLarge, OwnedByAnother, and leaves the dataset unchanged.
        """
        clauses = Merge.of(key, when_matched, when_not_matched, when_not_matched_by_source)
        require_on_conflict(on_conflict)
        with Scratch() as scratch:

            def start(now: Transaction) -> Maker:
                require_rows_open(now.snapshot.head)
                merger = Merger(
                    self._store,
                    clauses,
                    evolve=evolve,
                    since=now.records_between,
                    on_conflict=on_conflict,
                    by=self._author,
                )
                try:
                    merger.read(now.snapshot, source, scratch)
                except SourceEmpty:
                    if clauses.depends_on_other_rows:
                        raise
                    return lambda _: Change(operation=Operation.MERGE, by=self._author)
                return merger.change

            return self._commit("merge", id, (clauses, evolve), start, "Retry")
