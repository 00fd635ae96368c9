"""``kubothek log --odf``: the blocks of a chain."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from kubothek.cli.output import show
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubothek.odf.spec.blocks import Block
    from kubothek.odf.spec.events import AddData, ExecuteTransform, MetadataEvent
    from kubothek.storage import Store

_SHORT = 8
"""Characters of a hash's short form (HS-07)."""


def show_blocks(store: Store, dataset: str, limit: int, output: str) -> None:
    """Print the blocks, newest first, as a table, as data, or as a stream of YAML manifests."""
    from kubothek.cli.columns import listed
    from kubothek.odf.dataset import Ledger
    from kubothek.odf.spec.manifests import write_block
    from kubothek.odf.spec.versions import SpecVersion
    from kubothek.table.log import DatasetLog

    root = Ledger(store, DatasetLog(store, dataset))
    blocks = islice(root.blocks(), limit or None)
    if output == "yaml":
        for block in blocks:
            click.echo(f"--- # {block.hash}")
            for part in block.unknown:
                click.echo(f"# of a later version of Open Data Fabric, not shown: {part}")
            click.echo(write_block(block.content, block.dialect, root.state.version or SpecVersion.V0_34), nl=False)
        return
    transform = root.state.transform
    names = {each.dataset_ref: each.alias or each.dataset_ref for each in (transform.inputs if transform else ())}
    rows = [_row(block, names) for block in blocks]
    fields = ("number", "time", "event", "records", "watermark", "block", "remarks")
    headers = (*(field.upper() for field in fields[:-1]), "")
    right, wide = ("NUMBER", "RECORDS"), output == "wide"
    lines = list(listed(headers, rows, right, shorten=("BLOCK",), spare=("WATERMARK",), wide=wide))
    if len(rows) < root.state.length:
        lines.append(f"… and {count(root.state.length - len(rows), 'older block')}: --limit shows more")
    show(output, [dict(zip(fields, row, strict=True)) for row in rows], lines)


def _row(block: Block, names: Mapping[str, str]) -> tuple[str, ...]:
    from kubothek.odf.spec.events import AddData, ExecuteTransform

    content, event = block.content, block.content.event
    data = event.new_data if isinstance(event, AddData | ExecuteTransform) else None
    mark = event.new_watermark if isinstance(event, AddData | ExecuteTransform) else None
    records = "" if data is None else f"{data.offset_interval.end - data.offset_interval.start + 1:,}"
    return (
        str(content.sequence_number),
        str(content.system_time),
        event.kind,
        records,
        str(mark or ""),
        str(block.hash),
        ", ".join((*_remarks(event, names), *_unknown(block))),
    )


def _unknown(block: Block) -> Iterator[str]:
    if block.unknown:
        yield f"of a later version: {', '.join(block.unknown)}"


def _remarks(event: MetadataEvent, names: Mapping[str, str]) -> Iterator[str]:
    from kubothek.odf.spec.events import AddData, ExecuteTransform

    if isinstance(event, AddData | ExecuteTransform):
        yield from _data_remarks(event, names)
    else:
        yield from _definition_remarks(event)


def _data_remarks(event: AddData | ExecuteTransform, names: Mapping[str, str]) -> Iterator[str]:
    from kubothek.odf.spec.events import AddData

    if event.new_data is not None:
        yield f"offsets {event.new_data.offset_interval.start} to {event.new_data.offset_interval.end}"
    if isinstance(event, AddData):
        if event.new_source_state is not None:
            yield f"{event.new_source_state.source_name}: {event.new_source_state.value}"
        return
    for each in event.query_inputs:
        if each.new_block_hash is not None:
            name = names.get(str(each.dataset_id), str(each.dataset_id))
            yield f"{name} up to …{str(each.new_block_hash)[-_SHORT:]}"


def _definition_remarks(event: MetadataEvent) -> Iterator[str]:
    from kubothek.odf.spec.events import (
        AddPushSource,
        DisablePushSource,
        Seed,
        SetInfo,
        SetLicense,
        SetPollingSource,
        SetTransform,
    )

    match event:
        case Seed():
            yield str(event.dataset_id)
        case AddPushSource():
            yield f"{event.source_name}: {event.read.kind}, merged by {event.merge.kind}"
        case SetPollingSource():
            yield f"{event.fetch.kind}, {event.read.kind}, merged by {event.merge.kind}"
        case SetTransform():
            yield f"derived from {', '.join(each.alias or each.dataset_ref for each in event.inputs)}"
        case DisablePushSource():
            yield event.source_name
        case SetInfo():
            yield event.description or ""
        case SetLicense():
            yield event.short_name
