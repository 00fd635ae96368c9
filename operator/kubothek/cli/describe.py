"""``kubothek describe``: one dataset in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.commits import DatasetState, Snapshot


@click.command()
@store_options
@click.argument("dataset")
def describe(choice: StoreChoice, dataset: str) -> None:
    """Show one dataset: schema, layout, size, owner."""
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.store import open_store

    with choice.config() as config:
        log = DatasetLog(open_store(config), dataset)
        snapshot, state = log.snapshot(), log.inspect()
    for name, value in _facts(snapshot, state):
        click.echo(f"{name + ':':<14}{value}")
    click.echo("Columns:")
    keys = snapshot.head.partition_keys
    for field in snapshot.schema or ():
        notes = [
            note for note, holds in (("partition key", field.name in keys), ("not null", not field.nullable)) if holds
        ]
        click.echo(f"  {field.name:<24}{field.type!s:<20}{', '.join(notes)}".rstrip())


def _facts(snapshot: Snapshot, state: DatasetState) -> Iterator[tuple[str, str]]:
    from kubothek.cli.columns import shown_time
    from kubothek.resources.values import render_bytes

    yield "Dataset", state.uuid
    yield "Version", f"{snapshot.version}, committed {shown_time(snapshot.time)}"
    totals = snapshot.totals
    if totals is not None:
        yield "Size", f"{totals.rows:,} rows, {totals.files:,} files, {render_bytes(totals.bytes)}"
        yield "Partitions", f"{totals.partitions:,}, by {', '.join(snapshot.head.partition_keys) or 'nothing'}"
    yield "Indices", ", ".join(snapshot.head.indices) or "none"
    yield "Owner", state.owner or "nobody"
    if state.problem is not None:
        yield "Problem", state.problem
