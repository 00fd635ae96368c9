"""Append: rows come, nothing goes. It reads nothing, so no concurrent commit can be in its way."""

from __future__ import annotations

from kubothek.table.log import Change, Operation
from kubothek.table.operations.written import Written


def append(written: Written, *, by: str = "") -> Change:
    """The change that adds these files, on any head."""
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
