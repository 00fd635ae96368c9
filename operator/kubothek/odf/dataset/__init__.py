"""Root datasets: the write path of the ledger. See docs/odf.md and docs/commit-protocol.md, "Ledgers".

    root = create(store, DatasetLog(store, "flights"), snapshot, owner_key_file(path))
    root.push(again(table))

Slices, blocks, the table and the head are one commit: each of these calls takes effect as a whole or not at all.
"""

from __future__ import annotations

from kubothek.odf.dataset.base import Ingested, Ledger
from kubothek.odf.dataset.creating import create, owner_key_file
from kubothek.odf.dataset.exchange import Bring, Exported, export, import_chain, take_over
from kubothek.odf.dataset.extension import DEFAULT_SOURCE
from kubothek.odf.dataset.following import Came, Find
from kubothek.odf.dataset.handle import Root
from kubothek.odf.dataset.rows import Rows, again
from kubothek.odf.dataset.slicing import SLICE_BYTES, Types
from kubothek.odf.dataset.table import Table

__all__ = [
    "DEFAULT_SOURCE",
    "SLICE_BYTES",
    "Bring",
    "Came",
    "Exported",
    "Find",
    "Ingested",
    "Ledger",
    "Root",
    "Rows",
    "Table",
    "Types",
    "again",
    "create",
    "export",
    "import_chain",
    "owner_key_file",
    "take_over",
]
