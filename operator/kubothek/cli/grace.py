"""``kubothek grace``: how long a store keeps unreferenced objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.durations import Duration
from kubothek.cli.options import store_options
from kubothek.words import duration

if TYPE_CHECKING:
    from datetime import timedelta

    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("period", type=Duration(), required=False)
def grace(choice: StoreChoice, period: timedelta | None) -> None:
    """Show the grace period of a store, or set it to PERIOD: 36h, 30m; at least 1m.

    `kubothek gc` never deletes younger objects, and a deleted dataset can be restored within this period. A commit that
    takes longer than half of it fails. A GCPolicy may lengthen the period, but never shortens it.
    """
    from kubothek.table.log import StoreSettings, read_settings, write_settings

    with choice.opened() as store:
        if period is not None:
            write_settings(store, StoreSettings(period))
        settings = read_settings(store)
        source = f", set by {settings.by}" if settings.by else ""
        click.echo(f"{store.url}: grace period {duration(settings.grace)}{source}")
