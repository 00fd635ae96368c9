"""The size of a transfer of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from kubothek.odf.chain import Stored
from kubothek.odf.named import named_by
from kubothek.odf.spec.events import AddData, ExecuteTransform
from kubothek.odf.sync.smart.messages import Plan


def plan_of(blocks: Sequence[Stored]) -> Plan:
    """Return the size of these blocks and all that they name. Raises ChainCorrupt."""
    named = named_by(blocks)
    intervals = (
        event.new_data.offset_interval
        for event in (stored.decode().content.event for stored in blocks)
        if isinstance(event, AddData | ExecuteTransform) and event.new_data
    )
    return Plan(
        blocks=len(blocks),
        objects=len(named),
        records=sum(interval.end - interval.start + 1 for interval in intervals),
        block_bytes=sum(len(block.data) for block in blocks),
        object_bytes=sum(each.size for each in named),
    )
