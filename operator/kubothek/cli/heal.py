"""``kubothek heal``: make anew what is derived from a dataset's data, and say which data is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset")
@click.option("--restore-view", is_flag=True, help="Make the table of a ledger anew from its chain.")
@click.option(
    "--keep-own", is_flag=True, help="Make refs/head of a ledger name its own last block: the way out of Diverged."
)
@click.pass_context
def heal(ctx: click.Context, choice: StoreChoice, dataset: str, restore_view: bool, keep_own: bool) -> None:
    """Make anew what is derived from a dataset's data and is missing or lags behind.

    That is: the schema and its copy for other libraries, the marks by which a commit is known to have happened,
    checkpoints of its history, and indices. Data files are derived from nothing: lost ones are named, with the versions
    that lack them and the newest one that is whole, and the exit code is 1. Works beside all readers and writers.
    With --restore-view the table of a ledger becomes what its chain says, whatever another program made of it.
    With --keep-own a ledger gives up the blocks that another program put into refs/head. They stay in the store until
    garbage collection.
    """
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.maintenance import heal as heal_dataset
    from kubothek.lake.store import open_store

    with choice.config() as config:
        store = open_store(config)
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        if keep_own or restore_view:
            from kubothek.lake.ledger.root import Ledger

            ledger = Ledger(store, log, by="cli")
            if keep_own:
                click.echo(f"{dataset}: refs/head names block {ledger.keep_own()}, the last one of this dataset")
            if restore_view:
                version = ledger.restore_view().version
                click.echo(f"{dataset}: version {version}: the table is made anew from the chain")
        healed = heal_dataset(store, log, by="cli")
    if healed.repaired or not (restore_view or keep_own):
        repaired = f"made anew: {', '.join(healed.repaired)}" if healed.repaired else "nothing had to be made anew"
        click.echo(f"{dataset}: {repaired}")
    if healed.corrupt is not None:
        click.echo(f"error: Corrupt: {dataset}: {healed.corrupt}", err=True)
        ctx.exit(1)
