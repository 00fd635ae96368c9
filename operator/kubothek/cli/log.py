"""``kubothek log``: what happened to a dataset."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.commits import Record


@click.command()
@store_options
@click.argument("dataset")
@click.option("-n", "--limit", default=50, show_default=True, help="How many commits to show; 0 for all.")
def log(choice: StoreChoice, dataset: str, limit: int) -> None:
    """Show the history of a dataset, newest first.

    ROWS and FILES are what a commit added and removed, TOTAL ROWS what the dataset then held.
    """
    from kubothek.cli.columns import columns
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.store import open_store

    with choice.config() as config:
        history = DatasetLog(open_store(config), dataset).history()
        records = list(islice(history, limit or None))
        more = next(history, None)
    headers = ("VERSION", "TIME", "OPERATION", "ID", "ROWS", "FILES", "TOTAL ROWS", "BY")
    rows = [_row(record) for record in records]
    for line in columns(headers, rows, right=("VERSION", "ROWS", "FILES", "TOTAL ROWS")):
        click.echo(line)
    if more is not None:
        click.echo(f"… and older ones, from version {more.version} down: --limit shows more")


def _row(record: Record) -> tuple[str, ...]:
    from kubothek.cli.columns import shown_time

    removed = len(record.delta.removed)
    return (
        str(record.version),
        shown_time(record.time),
        record.operation,
        record.id,
        f"+{record.added.rows:,}",
        f"+{record.added.files:,}" + (f" −{removed:,}" if removed else ""),
        f"{record.totals.rows:,}",
        record.by or "-",
    )
