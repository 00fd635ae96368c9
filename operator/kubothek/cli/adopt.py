"""``kubothek adopt``: ownership and conversion of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--take", is_flag=True, help="Take the dataset over from its owner.")
@click.option(
    "--owner",
    metavar="CLUSTER/NAMESPACE/NAME",
    help="The new owner; default: the Dataset of this name of `kubothek run` on this machine.",
)
@click.option(
    "--convert",
    is_flag=True,
    help="Make a dataset of kartothek or plateau writable: list its partitions, split its tables.",
)
@click.option("--table", help="With --convert: the table to keep, if there are several.")
@output_option()
def adopt(
    choice: StoreChoice,
    dataset: str,
    take: bool,
    owner: str | None,
    convert: bool,
    table: str | None,
    output: str,
) -> None:
    """Show who owns a dataset, take it over, or convert it.

    One Dataset resource of one cluster, or of this machine, writes a dataset. Take it over only if that cluster no
    longer exists: two owners block each other.

    A dataset without a list of its partitions, or with several tables, is read-only. --convert lists its partitions;
    files that other programs drop there later are ignored. One table stays, the others become datasets DATASET-TABLE.
    No data file is moved or deleted.
    """
    from kubothek.errors import DatasetNotFound
    from kubothek.local.loop import CLUSTER_ID
    from kubothek.table.log import Claim, DatasetLog, owner_of, take_claim

    claimed = owner or f"{CLUSTER_ID}/default/{dataset}"
    if claimed.count("/") != 2 or not all(claimed.split("/")):
        raise click.UsageError(f"{claimed!r} is not an owner: write CLUSTER/NAMESPACE/NAME")
    if table and not convert:
        raise click.UsageError("--table requires --convert")
    lines, separated = [], []
    with choice.opened() as store:
        if convert:
            log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
            separated = [*log.convert(table)]
            lines += [f"{uuid} is a separate dataset now" for uuid in separated]
            lines.append(f"{dataset} is writable now, as table {log.snapshot().head.table!r}")
        present = owner_of(store, dataset)
        before = present
        if take and present != claimed:
            take_claim(store, dataset, Claim(claimed, ""))
            present = claimed
        elif present is None and DatasetLog(store, dataset).inspect().version is None:
            raise DatasetNotFound(f"there is no dataset {dataset!r} in {store.url}")
    was = "" if before == present else f"; before: {before or 'none'}"
    lines.append(f"{dataset}: owner {present or 'none'}{was}")
    show(output, {"dataset": dataset, "owner": present, "before": before, "separated": separated}, lines)
