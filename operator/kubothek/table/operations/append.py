"""Append: adds rows, removes nothing. It reads nothing, so it conflicts with no concurrent commit."""

from __future__ import annotations

from kubothek.table.log import Change, Operation
from kubothek.table.operations.written import Written


def append(written: Written, *, by: str = "") -> Change:
    """Return the change that adds these files, on any head."""
    return Change(
        operation=Operation.APPEND,
        added=written.files,
        schema=written.schema,
        partition_keys=written.partition_on,
        layout=written.layout,
        zones=written.zones,
        evolves=written.evolves,
        index=written.index,
        skipping=written.skipping,
        by=by,
    )
