"""Secondary indices: which files hold a value (commit-protocol, "Indices").

An index maps each value of a column to the labels of the files that hold it. There are two kinds. A *Kartothek* index
is one file that is always exact for its head; each commit rewrites it. A *native* index is value-sorted files that a
commit only adds to. Every commit updates all indices (:func:`~kubothek.table.indexes.maintain.maintain`). A reader may
ignore them; that only costs time.

This package does not know commits or heads; :class:`~kubothek.table.indexes.model.IndexState` has what it needs of a
head.
"""

from __future__ import annotations

from kubothek.table.indexes.collect import IndexCollector
from kubothek.table.indexes.lookup import lookup, lookup_interval
from kubothek.table.indexes.model import Collected, Dialect, IndexChange, IndexFile, IndexKind, IndexState
from kubothek.table.indexes.types import check_indexable

__all__ = [
    "Collected",
    "Dialect",
    "IndexChange",
    "IndexCollector",
    "IndexFile",
    "IndexKind",
    "IndexState",
    "check_indexable",
    "lookup",
    "lookup_interval",
]
