"""Operations: from a snapshot, and files that were written for it, to a :class:`Change`.

Each function decides one kind of change. The caller commits it, and calls the function again for a newer snapshot
after a conflict::

    def make(snapshot: Snapshot) -> Change:
        return delete(store, snapshot, where)

    transaction.commit(make(transaction.snapshot), on_conflict=make)

What a filter selects is planned from the head and the indices; nothing is listed. Every invalid request is rejected
before anything is written.
"""

from __future__ import annotations

from kubothek.table.operations.delete import delete
from kubothek.table.operations.overwrite import fitting, overwrite, rollback
from kubothek.table.operations.replace import check_replace, replace, require_met
from kubothek.table.operations.rewrite import Rewrite, Rewriter, Rewritten, rewrite_here
from kubothek.table.operations.rows import Check, Rows, write_rows
from kubothek.table.operations.update import parse_values, update
from kubothek.table.operations.written import Written, append

__all__ = [
    "Check",
    "Rewrite",
    "Rewriter",
    "Rewritten",
    "Rows",
    "Written",
    "append",
    "check_replace",
    "delete",
    "fitting",
    "overwrite",
    "parse_values",
    "replace",
    "require_met",
    "rewrite_here",
    "rollback",
    "update",
    "write_rows",
]
