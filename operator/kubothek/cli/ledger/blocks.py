"""``kubothek log --odf``: the blocks of a chain."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.lake.ledger.blocks import Block
    from kubothek.lake.ledger.events import MetadataEvent
    from kubothek.lake.store import Store


def show(store: Store, dataset: str, limit: int, output: str) -> None:
    """Print the blocks, newest first, as a table or as a stream of YAML manifests."""
    from kubothek.cli.columns import columns
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.ledger.manifests import write_block
    from kubothek.lake.ledger.root import Root

    root = Root(store, DatasetLog(store, dataset))
    blocks = islice(root.blocks(), limit or None)
    if output == "yaml":
        for block in blocks:
            click.echo(f"--- # {block.hash}")
            click.echo(write_block(block.content), nl=False)
        return
    rows = [_row(block) for block in blocks]
    headers = ("NUMBER", "TIME", "EVENT", "RECORDS", "WATERMARK", "BLOCK", "")
    for line in columns(headers, rows, right=("NUMBER", "RECORDS")):
        click.echo(line)
    if len(rows) < root.state.length:
        click.echo(f"… and {root.state.length - len(rows):,} older ones: --limit shows more")


def _row(block: Block) -> tuple[str, ...]:
    from kubothek.lake.ledger.events import AddData, ExecuteTransform

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
        ", ".join(_remarks(event)),
    )


def _remarks(event: MetadataEvent) -> Iterator[str]:
    from kubothek.lake.ledger.events import (
        AddData,
        AddPushSource,
        DisablePushSource,
        Seed,
        SetInfo,
        SetLicense,
        SetPollingSource,
    )

    match event:
        case Seed():
            yield str(event.dataset_id)
        case AddData():
            if event.new_data is not None:
                yield f"offsets {event.new_data.offset_interval.start} to {event.new_data.offset_interval.end}"
            if event.new_source_state is not None:
                yield f"{event.new_source_state.source_name}: {event.new_source_state.value}"
        case AddPushSource():
            yield f"{event.source_name}: {event.read.kind}, merged by {event.merge.kind}"
        case SetPollingSource():
            yield f"{event.fetch.kind}, {event.read.kind}, merged by {event.merge.kind}"
        case DisablePushSource():
            yield event.source_name
        case SetInfo():
            yield event.description or ""
        case SetLicense():
            yield event.short_name
