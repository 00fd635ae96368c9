"""``kubothek columns``: add, rename and drop columns of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.lazy import Entry, LazyGroup
from kubothek.cli.options import writing_options
from kubothek.cli.parameters import Pair, id_option, pairs, yes_option

if TYPE_CHECKING:
    from kubothek.catalog import Dataset
    from kubothek.cli.stores import StoreChoice
    from kubothek.dataset import CommitResult

COMMANDS = {
    "add": Entry(f"{__name__}:add", "Add columns, null in all rows; no file is rewritten."),
    "rename": Entry(f"{__name__}:rename", "Rename columns; rewrites all files."),
    "drop": Entry(f"{__name__}:drop", "Drop columns; rewrites all files."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def columns() -> None:
    """Add, rename or drop columns of a dataset, each in one commit.

    Older versions keep their columns. A column that partitions, sorts, buckets, or has an index or skipping metadata is
    neither renamed nor dropped.
    """


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("added", nargs=-1, required=True, type=Pair(), metavar="NAME=TYPE...")
@id_option
def add(choice: StoreChoice, dataset: str, added: tuple[tuple[str, str], ...], commit_id: str | None) -> None:
    """Add columns to a dataset: delay=int64 "seen=timestamp[us, tz=UTC]". They are null in all rows.

    No file is rewritten. plateau cannot select by such a column until all files have it.
    """
    types = pairs(added, "NAME=TYPE")
    with choice.opened() as store:
        opened = choice.lake(store).dataset(dataset)
        done = opened.add_columns(types, id=commit_id)
        click.echo(_message(opened, done, f"{', '.join(types)} added"))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("names", nargs=-1, required=True, type=Pair(), metavar="OLD=NEW...")
@id_option
def rename(choice: StoreChoice, dataset: str, names: tuple[tuple[str, str], ...], commit_id: str | None) -> None:
    """Rename columns of a dataset. All files are rewritten, because they contain the names."""
    renamed = pairs(names, "OLD=NEW")
    with choice.opened() as store:
        opened = choice.lake(store).dataset(dataset)
        done = opened.rename_columns(renamed, id=commit_id)
        said = ", ".join(f"{old} is {new}" for old, new in renamed.items())
        click.echo(_message(opened, done, f"{said} now"))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@yes_option
@id_option
def drop(choice: StoreChoice, dataset: str, names: tuple[str, ...], yes: bool, commit_id: str | None) -> None:
    """Drop columns of a dataset. All files are rewritten; older versions keep the columns."""
    with choice.opened() as store:
        opened = choice.lake(store).dataset(dataset)
        if not yes:
            click.confirm(f"drop {', '.join(names)} of {dataset}?", abort=True)
        done = opened.drop_columns(names, id=commit_id)
        click.echo(_message(opened, done, f"{', '.join(names)} dropped"))


def _message(dataset: Dataset, done: CommitResult, what: str) -> str:
    from kubothek.table.log import AlreadyApplied

    if isinstance(done, AlreadyApplied):
        return f"{dataset.name}: version {done.version} made this change before"
    names = dataset.snapshot(done.version).schema
    return f"{dataset.name}: version {done.version}: {what}; columns: {', '.join(names.names if names else ())}"
