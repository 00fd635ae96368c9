"""Secondary indices: which files hold a value (commit-protocol, "Indices").

An index maps each value of a column to the labels of the files that hold it. Two kinds keep that map: *Kartothek*
indices are one file that is always exact for its head and is written anew by every commit; *native* ones are
value-sorted files that a commit only adds to. A commit updates them all, whoever asks for it
(:func:`~kubothek.table.indexes.maintain.maintain`), and a reader that looks up nothing loses nothing but time.

Nothing here knows commits or heads: what it needs of a head is in :class:`~kubothek.table.indexes.model.IndexState`.
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
