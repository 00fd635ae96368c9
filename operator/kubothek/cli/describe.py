"""``kubothek describe``: one dataset in full."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.commits import DatasetState, Head, Snapshot
    from kubothek.lake.store import Store
    from kubothek.lake.table.layout import Layout

_SHOWN: Final = 5


@click.command()
@store_options
@click.argument("dataset")
def describe(choice: StoreChoice, dataset: str) -> None:
    """Show one dataset: schema, layout, size, owner, sources. A cube is shown with all of its datasets.

    One of several tables that kartothek put into a dataset is called DATASET/TABLE.
    """
    from kubothek.cli.cube.common import open_cube
    from kubothek.cli.cube.show import lines
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.door import Lake
    from kubothek.lake.schema import type_name
    from kubothek.lake.store import open_store

    with choice.config() as config:
        store = open_store(config)
        uuid, _, table = dataset.partition("/")
        log = DatasetLog(store, uuid)
        if log.inspect().version is None and dataset in Lake(store).cubes():
            for line in lines(open_cube(store, dataset).info()):
                click.echo(line)
            return
        snapshot, state = log.snapshot(table=table or None), log.inspect()
        sources = list(_sources(store, snapshot.head))
    for name, value in _facts(snapshot, state):
        click.echo(f"{name + ':':<14}{value}")
    click.echo("Columns:")
    keys = snapshot.head.partition_keys
    for field in snapshot.schema or ():
        notes = [
            note for note, holds in (("partition key", field.name in keys), ("not null", not field.nullable)) if holds
        ]
        click.echo(f"  {field.name:<24}{type_name(field.type):<20}{', '.join(notes)}".rstrip())
    chain = snapshot.head.chain
    if chain is not None:
        from kubothek.cli.ledger.describe import chain_lines

        click.echo("Chain:")
        for line in chain_lines(store, log):
            click.echo(f"  {line}")
    if sources:
        click.echo("Sources:")
    for line in sources:
        click.echo(f"  {line}")


def _facts(snapshot: Snapshot, state: DatasetState) -> Iterator[tuple[str, str]]:
    from kubothek.cli.columns import shown_time
    from kubothek.lake.table.layout import Layout
    from kubothek.resources.values import render_bytes

    yield "Dataset", state.uuid
    done = "committed" if snapshot.version else "made by another program"
    yield "Version", f"{snapshot.version}, {done} {shown_time(snapshot.time)}"
    totals = snapshot.totals
    if totals is not None:
        yield "Size", f"{count(totals.rows, 'row')}, {count(totals.files, 'file')}, {render_bytes(totals.bytes)}"
        yield "Partitions", f"{totals.partitions:,}, by {', '.join(snapshot.head.partition_keys) or 'nothing'}"
    else:
        yield "Size", f"{count(len(snapshot.head.partitions), 'file')}; row count unknown"
    layout = Layout.of(snapshot.head)
    yield "Layout", ", ".join(_laid_out(layout)) or "the default"
    kinds = snapshot.head.index_state.wanted()
    yield "Indices", ", ".join(f"{column} ({kind})" for column, kind in kinds.items()) or "none"
    if state.tags:
        yield "Tags", ", ".join(f"{name} (version {version})" for name, version in sorted(state.tags.items()))
    yield "Owner", state.owner or "nobody"
    if state.problem is not None:
        yield "Problem", state.problem


def _laid_out(layout: Layout) -> Iterator[str]:
    """How files are made, where that is not the default."""
    from kubothek.lake.table.layout import Layout
    from kubothek.resources.values import render_bytes

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
    """What each standing source has taken, and the first few files that it put into quarantine."""
    from kubothek.cli.columns import shown_time
    from kubothek.lake.intake import Ledger

    for name, key in sorted(head.intakes.items()):
        ledger = Ledger(store, head.uuid, name)
        page = ledger.page(key)
        last = f", the last {page.last_file!r}, {shown_time(page.last_time)}" if page.last_file else ""
        yield f"{name:<24}{count(page.files, 'file')} taken{last}"
        refused = list(islice(ledger.quarantine(page), _SHOWN + 1))
        for file, error in refused[:_SHOWN]:
            yield f"  put into quarantine: {file!r}: {error}"
        if len(refused) > _SHOWN:
            yield f"  … and more: see the Parquet files {key.rpartition('/')[0]}/*.parquet"
