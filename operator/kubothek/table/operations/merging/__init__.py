"""Merge by key: rows of a source update, delete and insert rows of a table, in one change.

    with Scratch() as scratch:
        merger = Merger(store, Merge.of("id", "Update", "Insert"), since=transaction.records_between)
        merger.read(transaction.snapshot, rows, scratch)
        transaction.commit(merger.change(transaction.snapshot), on_conflict=merger.change)

:mod:`~.model` has the clauses, :mod:`~.source` the rows of the source, :mod:`~.search` finds the rows that match,
:mod:`~.rows` says what becomes of them, :mod:`~.files` writes them, :mod:`~.merge` describes the change.
"""

from __future__ import annotations

from kubothek.table.operations.merging.merge import Merger
from kubothek.table.operations.merging.model import Clauses, Merge, MergeAction, MergeClause

__all__ = ["Clauses", "Merge", "MergeAction", "MergeClause", "Merger"]
