"""SQL over datasets: one SELECT, answered by an embedded DuckDB without access to anything else.

Each statement is treated as hostile. It must parse as exactly one SELECT of allowed parts
(:mod:`~kubothek.sql.statement`). It runs in a database of its own, in memory, without access to files, network,
extensions, the caller's variables or its own settings (:mod:`~kubothek.sql.query`). It sees only the datasets that it
names, and of those the files that its WHERE clauses select (:mod:`~kubothek.sql.filters`).
"""

from __future__ import annotations

from kubothek.sql.query import FindSnapshot, Limits, Query, Restrict, TableScan, prepare

__all__ = ["FindSnapshot", "Limits", "Query", "Restrict", "TableScan", "prepare"]
