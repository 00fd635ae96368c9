"""``kubothek index``: add, drop, compact or rebuild the secondary indices of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import writing_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.table.indexes import IndexKind


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option(
    "--add",
    "added",
    metavar="COLUMN[=KIND]",
    multiple=True,
    help="KIND: Native (the default) or Kartothek; repeatable.",
)
@click.option("--drop", "dropped", metavar="COLUMN", multiple=True, help="Drop the index of a column; repeatable.")
@click.option("--rebuild", is_flag=True, help="Rebuild all indices from the data files.")
@output_option()
def index(
    choice: StoreChoice, dataset: str, added: tuple[str, ...], dropped: tuple[str, ...], rebuild: bool, output: str
) -> None:
    """Compact the secondary indices of a dataset, add or drop some, or rebuild all.

    Indexes files that another program added, merges small index files, and rebuilds an index that is missing or
    damaged. If a Dataset's manifest owns the dataset, its spec.table.indices defines the indices: --add and --drop are
    for other datasets, and for writers that spec.writers permits Index. Safe to run beside other writers.
    """
    from kubothek.cli.columns import listed
    from kubothek.jobs.index import describe
    from kubothek.table.log import DatasetLog
    from kubothek.table.log.granted import Author
    from kubothek.table.log.update_indexes import reindex

    with choice.opened() as store:
        lake, changes = choice.lake(store), bool(added or dropped)
        log = DatasetLog(store, dataset, unowned_only=changes, conditional_writes=store.probe().conditional_writes)
        if changes:
            log = log.writing_as(Author(lake.writer, "Index"))
        wanted = _wanted(dataset, log.snapshot().head.index_state.wanted(), added, dropped) if changes else None
        done = reindex(store, log, wanted, rebuild=rebuild, by=lake.author)
        indices = log.inspect().indices
    rows = [(i.column, str(i.kind), str(i.health), f"{i.rows:,}") for i in indices]
    headers, wide = ("COLUMN", "KIND", "STATE", "ROWS"), output == "wide"
    table = listed(headers, rows, right=("ROWS",), shorten=("COLUMN",), wide=wide) if rows else ()
    found = [{"column": i.column, "kind": str(i.kind), "state": str(i.health), "rows": i.rows} for i in indices]
    show(output, found, [f"{dataset}: {describe(done)}", *table])


def _wanted(
    dataset: str, present: Mapping[str, IndexKind], added: Sequence[str], dropped: Sequence[str]
) -> dict[str, IndexKind]:
    """Return the indices after these are added and dropped. Raises InputError for an unknown kind, UsageError."""
    from kubothek.dataset.upkeep import index_kinds

    if unknown := [column for column in dropped if column not in present]:
        raise click.UsageError(
            f"--drop: {dataset} has no index on {unknown[0]!r}; it has {', '.join(present) or 'none'}"
        )
    pairs = (text.rpartition("=") if "=" in text else (text, "", "Native") for text in added)
    kept = {column: kind for column, kind in present.items() if column not in dropped}
    return {**kept, **index_kinds({column: kind for column, _, kind in pairs})}
