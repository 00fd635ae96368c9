"""``kubothek describe``: one dataset in full."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.storage import Store
    from kubothek.table.layout import Layout
    from kubothek.table.log import DatasetLog, DatasetState, Head, Snapshot

_SHOWN: Final = 5


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@output_option()
def describe(choice: StoreChoice, dataset: str, output: str) -> None:
    """Show schema, layout, size, owner and sources of a dataset; of a cube, all of its datasets.

    If kartothek put several tables into a dataset, DATASET/TABLE names one of them.
    """
    from kubothek.catalog import Lake
    from kubothek.cli.cube.common import open_cube
    from kubothek.cli.cube.show import as_object, lines
    from kubothek.table.log import DatasetLog

    with choice.opened() as store:
        uuid, _, table = dataset.partition("/")
        log = DatasetLog(store, uuid)
        if log.inspect().version is None and dataset in Lake(store).cubes():
            info = open_cube(store, dataset).info()
            show(output, as_object(info), lines(info))
            return
        snapshot, state = log.snapshot(table=table or None), log.inspect()
        sources = list(_sources(store, snapshot.head))
        chain = list(_chain(store, log, snapshot.head))
    show(output, _object(snapshot, state), _lines(snapshot, state, chain, sources))


def _object(snapshot: Snapshot, state: DatasetState) -> dict[str, object]:
    from kubothek.table.layout import Layout
    from kubothek.table.schema import type_name

    totals, head = snapshot.totals, snapshot.head
    size = (
        {"files": len(head.partitions)}
        if totals is None
        else {"rows": totals.rows, "files": totals.files, "bytes": totals.bytes, "partitions": totals.partitions}
    )
    columns = [
        {"name": field.name, "type": type_name(field.type), "nullable": field.nullable}
        for field in snapshot.schema or ()
    ]
    return {
        "dataset": state.uuid,
        "version": snapshot.version,
        "lastCommit": snapshot.time,
        **size,
        "partitionKeys": list(head.partition_keys),
        "layout": list(_laid_out(Layout.of(head))),
        "indices": {column: str(kind) for column, kind in head.index_state.wanted().items()},
        "tags": dict(sorted(state.tags.items())),
        "owner": state.owner,
        "problem": state.problem,
        "columns": columns,
    }


def _chain(store: Store, log: DatasetLog, head: Head) -> Iterator[str]:
    if head.chain is not None:
        from kubothek.cli.ledger.describe import chain_lines

        yield from chain_lines(store, log)


def _lines(snapshot: Snapshot, state: DatasetState, chain: list[str], sources: list[str]) -> Iterator[str]:
    from kubothek.table.schema import type_name

    for name, value in _facts(snapshot, state):
        yield f"{name + ':':<14}{value}"
    yield "Columns:"
    keys = snapshot.head.partition_keys
    longest = max((len(field.name) for field in snapshot.schema or ()), default=0)
    for field in snapshot.schema or ():
        notes = [
            note for note, holds in (("partition key", field.name in keys), ("not null", not field.nullable)) if holds
        ]
        name = field.name.ljust(max(24, longest + 2))
        yield f"  {name}{type_name(field.type) + ' ':<20}{', '.join(notes)}".rstrip()
    if chain:
        yield "Chain:"
    yield from (f"  {line}" for line in chain)
    if sources:
        yield "Sources:"
    yield from (f"  {line}" for line in sources)


def _facts(snapshot: Snapshot, state: DatasetState) -> Iterator[tuple[str, str]]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import shown_time
    from kubothek.table.layout import Layout

    yield "Dataset", state.uuid
    done = "committed" if snapshot.version else "made by another program"
    yield "Version", f"{snapshot.version}, {done} {shown_time(snapshot.time)}"
    totals = snapshot.totals
    if totals is not None:
        yield "Size", f"{count(totals.rows, 'row')}, {count(totals.files, 'file')}, {render_bytes(totals.bytes)}"
        yield "Partitions", f"{totals.partitions:,}, by {', '.join(snapshot.head.partition_keys) or 'no column'}"
    else:
        yield "Size", f"{count(len(snapshot.head.partitions), 'file')}; row count unknown"
    layout = Layout.of(snapshot.head)
    yield "Layout", ", ".join(_laid_out(layout)) or "the default"
    kinds = snapshot.head.index_state.wanted()
    yield "Indices", ", ".join(f"{column} ({kind})" for column, kind in kinds.items()) or "none"
    if state.tags:
        yield "Tags", ", ".join(f"{name} (version {version})" for name, version in sorted(state.tags.items()))
    yield "Owner", state.owner or "none"
    if state.problem is not None:
        yield "Problem", state.problem


def _laid_out(layout: Layout) -> Iterator[str]:
    """Yield the settings of the layout that are not the default."""
    from kubothek.api.values import render_bytes
    from kubothek.table.layout import Layout

    usual = Layout()
    if layout.sort_by:
        yield f"sorted by {', '.join(layout.sort_by)}"
    if layout.bucket_by:
        yield f"{layout.num_buckets:,} buckets by {', '.join(layout.bucket_by)}"
    if layout.target_file_bytes != usual.target_file_bytes:
        yield f"files of {render_bytes(layout.target_file_bytes)}"
    if layout.row_group_rows != usual.row_group_rows:
        yield f"row groups of {count(layout.row_group_rows, 'row')}"
    if layout.compression != usual.compression:
        yield layout.compression
    if layout.dictionary_columns is not None:
        yield f"dictionaries for {', '.join(layout.dictionary_columns) or 'no column'}"


def _sources(store: Store, head: Head) -> Iterator[str]:
    """Yield what each standing source has ingested, and its first few files in quarantine."""
    from kubothek.cli.columns import shown_time
    from kubothek.ingest.watch import Ledger

    for name, key in sorted(head.intakes.items()):
        ledger = Ledger(store, head.uuid, name)
        page = ledger.page(key)
        last = f", the last {page.last_file!r}, {shown_time(page.last_time)}" if page.last_file else ""
        yield f"{name + ' ':<24}{count(page.files, 'file')} taken{last}"
        refused = list(islice(ledger.quarantine(page), _SHOWN + 1))
        for file, error in refused[:_SHOWN]:
            yield f"  put into quarantine: {file!r}: {error}"
        if len(refused) > _SHOWN:
            yield f"  … and more: see the Parquet files {key.rpartition('/')[0]}/*.parquet"
