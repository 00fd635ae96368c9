"""SQL over datasets: one SELECT, answered by an embedded DuckDB that can reach nothing else.

The statement is hostile until proven otherwise. It must parse as exactly one SELECT of allowed parts
(:mod:`~kubothek.sql.statement`), and it runs in a database of its own, in memory, without access to files,
network, extensions, the caller's variables or its own settings (:mod:`~kubothek.sql.query`); it sees only the
datasets it names, and of those the files that its WHERE clauses leave (:mod:`~kubothek.sql.filters`).
"""

from __future__ import annotations

from kubothek.sql.query import Limits, Look, Query, Restrict, TableScan, prepare

__all__ = ["Limits", "Look", "Query", "Restrict", "TableScan", "prepare"]
