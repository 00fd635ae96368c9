"""``kubothek adopt``: who may write a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset")
@click.option("--take", is_flag=True, help="Make the claim stand, whoever owned the dataset.")
@click.option(
    "--owner",
    metavar="CLUSTER/NAMESPACE/NAME",
    help="For which Dataset resource; default: the one of this name that `kubothek run` runs here.",
)
def adopt(choice: StoreChoice, dataset: str, take: bool, owner: str | None) -> None:
    """Show who owns a dataset, or take it over.

    A dataset is written by one Dataset resource of one cluster, or of this machine. Take over one whose cluster is
    gone; while its owner is alive, both would stop each other.
    """
    from kubothek.lake.commits import Claim, owner_of, take_claim
    from kubothek.lake.store import open_store
    from kubothek.runtime.local.runner import CLUSTER_ID

    claimed = owner or f"{CLUSTER_ID}/default/{dataset}"
    if claimed.count("/") != 2 or not all(claimed.split("/")):
        raise click.UsageError(f"{claimed!r} is no owner: write CLUSTER/NAMESPACE/NAME")
    with choice.config() as config:
        store = open_store(config)
        present = owner_of(store, dataset)
        if take and present != claimed:
            take_claim(store, dataset, Claim(claimed, ""))
            click.echo(f"{dataset} belongs to {claimed} now; before: {present or 'nobody'}")
            return
    click.echo(f"{dataset} belongs to {present or 'nobody'}")
