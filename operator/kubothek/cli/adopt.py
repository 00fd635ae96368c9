"""``kubothek adopt``: who may write a dataset, and in which form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--take", is_flag=True, help="Make the claim stand, whoever owned the dataset.")
@click.option(
    "--owner",
    metavar="CLUSTER/NAMESPACE/NAME",
    help="For which Dataset resource; default: the one of this name that `kubothek run` runs here.",
)
@click.option(
    "--convert",
    is_flag=True,
    help="Make a dataset of kartothek or plateau one that Kubothek writes: list its partitions, split its tables.",
)
@click.option("--table", help="With --convert: the table that stays, if there are several.")
def adopt(choice: StoreChoice, dataset: str, take: bool, owner: str | None, convert: bool, table: str | None) -> None:
    """Show who owns a dataset, take it over, or convert it.

    A dataset is written by one Dataset resource of one cluster, or of this machine. Take over one whose cluster is
    gone; while its owner is alive, both would stop each other.

    A dataset without a list of its partitions, or with several tables, can be read as it is, but not written.
    --convert lists the partitions, after which files that are dropped there are no longer seen. One table stays, the
    others become datasets called DATASET-TABLE. No data file is moved or deleted.
    """
    from kubothek.lake.commits import Claim, DatasetLog, owner_of, take_claim
    from kubothek.lake.errors import DatasetNotFound
    from kubothek.lake.store import open_store
    from kubothek.runtime.local.runner import CLUSTER_ID

    claimed = owner or f"{CLUSTER_ID}/default/{dataset}"
    if claimed.count("/") != 2 or not all(claimed.split("/")):
        raise click.UsageError(f"{claimed!r} is no owner: write CLUSTER/NAMESPACE/NAME")
    if table and not convert:
        raise click.UsageError("--table says what --convert keeps: give both, or neither")
    with choice.config() as config:
        store = open_store(config)
        if convert:
            log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
            for uuid in log.convert(table):
                click.echo(f"{uuid} is a dataset of its own now")
            click.echo(f"{dataset} can be written now, as table {log.snapshot().head.table!r}")
        present = owner_of(store, dataset)
        if take and present != claimed:
            take_claim(store, dataset, Claim(claimed, ""))
            click.echo(f"{dataset} belongs to {claimed} now; before: {present or 'nobody'}")
            return
        if present is None and DatasetLog(store, dataset).inspect().version is None:
            raise DatasetNotFound(f"there is no dataset {dataset!r} in {config.url}")
    click.echo(f"{dataset} belongs to {present or 'nobody'}")
