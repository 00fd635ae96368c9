"""``kubothek index``: compact or rebuild the secondary indices of a dataset."""

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
@click.option("--rebuild", is_flag=True, help="Rebuild all indices from the data files.")
@output_option()
def index(choice: StoreChoice, dataset: str, rebuild: bool, output: str) -> None:
    """Compact the secondary indices of a dataset, or rebuild them.

    Indexes files that another program added, merges small index files, and rebuilds an index that is missing or
    damaged. The Dataset's manifest (spec.table.indices) defines the indices, or the call that creates the dataset.
    Safe to run beside other writers.
    """
    from kubothek.cli.columns import listed
    from kubothek.jobs.index import describe
    from kubothek.table.log import DatasetLog
    from kubothek.table.log.update_indexes import reindex

    with choice.opened() as store:
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        done = reindex(store, log, rebuild=rebuild, by="cli")
        indices = log.inspect().indices
    rows = [(i.column, str(i.kind), str(i.health), f"{i.rows:,}") for i in indices]
    headers, wide = ("COLUMN", "KIND", "STATE", "ROWS"), output == "wide"
    table = listed(headers, rows, right=("ROWS",), shorten=("COLUMN",), wide=wide) if rows else ()
    found = [{"column": i.column, "kind": str(i.kind), "state": str(i.health), "rows": i.rows} for i in indices]
    show(output, found, [f"{dataset}: {describe(done)}", *table])
