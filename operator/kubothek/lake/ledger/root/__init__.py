"""Root datasets: the write path of the ledger. See docs/odf.md and docs/commit-protocol.md, "Ledgers".

    root = create(store, DatasetLog(store, "flights"), snapshot, owner_key_file(path))
    root.push(again(table))

Slices, blocks, the table and the head are one commit: what any of these calls does is there altogether or not at all.
"""

from __future__ import annotations

from kubothek.lake.ledger.root.base import Ingested, Ledger
from kubothek.lake.ledger.root.creating import create, owner_key_file
from kubothek.lake.ledger.root.exchange import Bring, Exported, export, import_chain, take_over
from kubothek.lake.ledger.root.extension import DEFAULT_SOURCE
from kubothek.lake.ledger.root.following import Came, Find
from kubothek.lake.ledger.root.handle import Root
from kubothek.lake.ledger.root.rows import Rows, again
from kubothek.lake.ledger.root.slicing import SLICE_BYTES, Types
from kubothek.lake.ledger.root.table import Table

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
