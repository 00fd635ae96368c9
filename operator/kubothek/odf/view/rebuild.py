"""Rebuild of the table from the chain: for a chain that was written elsewhere, or a damaged table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from kubothek.errors import NotALedger
from kubothek.odf.validation.row_checks import APPEND
from kubothek.odf.view.change import ViewChange
from kubothek.odf.view.history import History
from kubothek.odf.view.state import standing
from kubothek.odf.view.writer import ViewWriter
from kubothek.storage import Store
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.scratch import Scratch


def rebuild(
    store: Store,
    snapshot: Snapshot,
    history: History,
    scratch: Scratch,
    *,
    layout: Layout | None = None,
    wanted: Mapping[str, IndexKind] | None = None,
    dialect: Dialect | None = None,
) -> ViewChange:
    """Return the change that replaces all rows of the table by the current records.

    Streams, in the order of offsets. Raises what :class:`~.writer.ViewWriter` raises; NotALedger without a schema.
    """
    if history.schema is None:
        raise NotALedger(f"the chain of {snapshot.head.uuid!r} has no schema yet, so that there is no table to make")
    layout = layout or Layout.of(snapshot.head)
    blank = replace(snapshot, head=replace(snapshot.head, partitions={}), schema=None)
    names = history.vocabulary
    shown = [name for name in history.schema.names if name != names.op]
    # The writer needs an op column; each current record was added.
    with ViewWriter(
        store,
        blank,
        schema=history.as_read(history.schema.names),
        vocabulary=names,
        layout=layout,
        wanted=wanted,
        dialect=dialect,
    ) as view:
        for batch in standing(history, shown, scratch):
            view.write(batch.append_column(names.op, pa.repeat(pa.scalar(APPEND, pa.int32()), batch.num_rows)))
        made = view.finish()
    return replace(made, removed=tuple(snapshot.head.partitions), schema=view.schema, replaces_schema=True)
