"""``kubothek index``: tidy up the secondary indices of a dataset, or build them anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset")
@click.option("--rebuild", is_flag=True, help="Build all indices anew, from the data files.")
def index(choice: StoreChoice, dataset: str, rebuild: bool) -> None:
    """Tidy up the secondary indices of a dataset, or build them anew.

    Files that another program added are read, small index files are merged, and an index that is missing or damaged
    is built anew. Which indices there are is said in the Dataset's manifest (spec.table.indices), or when the dataset
    is created. Works beside all other writers.
    """
    from kubothek.cli.columns import columns
    from kubothek.jobs.index import describe
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.commits.verbs.reindex import reindex
    from kubothek.lake.store import open_store

    with choice.config() as config:
        store = open_store(config)
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        done = reindex(store, log, rebuild=rebuild, by="cli")
        click.echo(f"{dataset}: {describe(done)}")
        rows = [(i.column, str(i.kind), str(i.health), f"{i.rows:,}") for i in log.inspect().indices]
    for line in columns(("COLUMN", "KIND", "STATE", "ROWS"), rows, right=("ROWS",)) if rows else ():
        click.echo(line)
