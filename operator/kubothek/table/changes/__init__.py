"""The change feed of a table: the rows that each commit between two versions inserted, deleted and updated.

:func:`plan_changes` finds the files that differ, from commit records; :func:`changed_rows` computes the rows of some or
all of them, in any process. :mod:`~kubothek.table.changes.relation` computes the same inside a statement's database.
"""

from __future__ import annotations

from kubothek.table.changes.plan import Changes, FileChanges, plan_changes
from kubothek.table.changes.rows import changed_rows

__all__ = ["Changes", "FileChanges", "changed_rows", "plan_changes"]
