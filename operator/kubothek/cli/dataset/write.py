"""``kubothek append``, ``replace``, ``overwrite``, ``merge``: rows from files, URLs or standard input to a dataset."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.dataset.common import (
    commit_message,
    conflict_option,
    evolve_option,
    schema_hint,
    source_options,
)
from kubothek.cli.options import writing_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.dataset import OnConflict


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@source_options
@evolve_option
def append(
    choice: StoreChoice, dataset: str, files: tuple[str, ...], form: str | None, commit_id: str | None, evolve: bool
) -> None:
    """Add the rows of files to a dataset, in one commit.

    FILE is a path, a URL, or - for standard input: CSV, JSON lines or Parquet, also packed (.gz, .zip). Files are read
    as streams, in the types of the dataset.
    """
    from kubothek.cli.source_rows import Target, rows_of

    with choice.opened() as store, ExitStack() as held, schema_hint("--evolve allows new and missing columns"):
        opened = choice.lake(store).dataset(dataset)
        rows = rows_of(files, Target.of(opened.snapshot(), evolve=evolve), held, form=form)
        done = opened.append(rows, evolve=evolve, id=commit_id)
    click.echo(commit_message(dataset, done, adds=True))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@source_options
@click.option(
    "--where", metavar="FILTER", help='Which partitions: "month = 3"; TRUE for all. Default: those of the rows.'
)
@evolve_option
@conflict_option
def replace(
    choice: StoreChoice,
    dataset: str,
    files: tuple[str, ...],
    form: str | None,
    commit_id: str | None,
    where: str | None,
    evolve: bool,
    on_conflict: OnConflict,
) -> None:
    """Replace whole partitions of a dataset by the rows of files, in one commit.

    FILE is as for `kubothek append`. Every row must satisfy --where. The old rows stay in older versions.
    """
    from kubothek.cli.source_rows import Target, rows_of

    with choice.opened() as store, ExitStack() as held, schema_hint("--evolve allows new and missing columns"):
        opened = choice.lake(store).dataset(dataset)
        rows = rows_of(files, Target.of(opened.snapshot(), evolve=evolve), held, form=form)
        done = opened.replace(rows, where=where, evolve=evolve, id=commit_id, on_conflict=on_conflict)
    click.echo(commit_message(dataset, done))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@source_options
@click.option("--allow-schema-change", is_flag=True, help="Allow columns that do not fit; they replace the dataset's.")
@conflict_option
def overwrite(
    choice: StoreChoice,
    dataset: str,
    files: tuple[str, ...],
    form: str | None,
    commit_id: str | None,
    allow_schema_change: bool,
    on_conflict: OnConflict,
) -> None:
    """Replace all rows of a dataset by the rows of files, in one commit.

    FILE is as for `kubothek append`. The old rows stay in older versions.
    """
    from kubothek.cli.source_rows import Target, rows_of

    with choice.opened() as store, ExitStack() as held, schema_hint("--allow-schema-change allows other columns"):
        opened = choice.lake(store).dataset(dataset)
        snapshot = opened.snapshot()
        target = Target(partition_on=snapshot.head.partition_keys) if allow_schema_change else Target.of(snapshot)
        rows = rows_of(files, target, held, form=form)
        done = opened.overwrite(rows, allow_schema_change=allow_schema_change, id=commit_id, on_conflict=on_conflict)
    click.echo(commit_message(dataset, done))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@source_options
@click.option("--key", "-k", metavar="COLUMN", multiple=True, required=True, help="Identifies a row; repeatable.")
@click.option(
    "--matched",
    type=click.Choice(["Update", "Delete", "Nothing"]),
    default="Update",
    show_default=True,
    help="What happens to rows of the dataset with a row of the files.",
)
@click.option(
    "--not-matched",
    type=click.Choice(["Insert", "Nothing"]),
    default="Insert",
    show_default=True,
    help="What happens to other rows of the files.",
)
@click.option(
    "--not-matched-by-source",
    type=click.Choice(["Delete", "Nothing"]),
    default="Nothing",
    show_default=True,
    help="What happens to other rows of the dataset.",
)
@evolve_option
@conflict_option
def merge(
    choice: StoreChoice,
    dataset: str,
    files: tuple[str, ...],
    form: str | None,
    commit_id: str | None,
    key: tuple[str, ...],
    matched: str,
    not_matched: str,
    not_matched_by_source: str,
    evolve: bool,
    on_conflict: OnConflict,
) -> None:
    """Merge the rows of files into a dataset by key, in one commit: update those there, insert the others.

    FILE is as for `kubothek append`. Two rows of the files with one key are refused. Commits and the Python API have
    conditions and expressions as well.
    """
    from kubothek.cli.source_rows import Target, rows_of

    with choice.opened() as store, ExitStack() as held, schema_hint("--evolve allows new and missing columns"):
        opened = choice.lake(store).dataset(dataset)
        rows = rows_of(files, Target.of(opened.snapshot(), evolve=True), held, form=form)
        done = opened.merge(
            rows,
            key=key,
            when_matched=matched,
            when_not_matched=not_matched,
            when_not_matched_by_source=not_matched_by_source,
            evolve=evolve,
            id=commit_id,
            on_conflict=on_conflict,
        )
    click.echo(commit_message(dataset, done))
