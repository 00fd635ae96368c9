"""``kubothek update`` and ``delete``: changes of the rows that a filter selects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.dataset.common import commit_message, conflict_option
from kubothek.cli.options import writing_options
from kubothek.cli.parameters import Pair, dry_run_option, id_option, pairs, yes_option
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.catalog import Dataset
    from kubothek.cli.stores import StoreChoice
    from kubothek.dataset import OnConflict


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("where", metavar="FILTER")
@click.option(
    "--set",
    "values",
    type=Pair(),
    metavar="COLUMN=VALUE",
    multiple=True,
    required=True,
    help="An expression over the row: delay=delay * 60, carrier='AA', gate=NULL; repeatable.",
)
@dry_run_option
@conflict_option
@id_option
def update(
    choice: StoreChoice,
    dataset: str,
    where: str,
    values: tuple[tuple[str, str], ...],
    dry_run: bool,
    on_conflict: OnConflict,
    commit_id: str | None,
) -> None:
    """Set values in the rows of a dataset that match FILTER, in one commit. Files with such rows are rewritten.

    FILTER is as in `kubothek query` behind WHERE: "carrier = 'US' AND month < 3"; TRUE is all rows. Rows with other
    values in partition columns move to their new partition.
    """
    from kubothek.table.operations import parse_values

    texts = pairs(values, "--set")
    with choice.opened() as store:
        opened = choice.lake(store).dataset(dataset)
        literals = parse_values(texts)
        if dry_run:
            click.echo(_planned(opened, where))
            return
        done = opened.update(literals, where=where, row_level=True, id=commit_id, on_conflict=on_conflict)
    click.echo(commit_message(dataset, done))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("where", metavar="FILTER")
@click.option("--row-level", is_flag=True, help="Rewrite files that also have other rows.")
@click.option("--purge", is_flag=True, help="Expire all older versions, so that garbage collection deletes the rows.")
@dry_run_option
@yes_option
@conflict_option
@id_option
def delete(
    choice: StoreChoice,
    dataset: str,
    where: str,
    row_level: bool,
    purge: bool,
    dry_run: bool,
    yes: bool,
    on_conflict: OnConflict,
    commit_id: str | None,
) -> None:
    """Delete the rows of a dataset that match FILTER, in one commit; `kubothek drop` deletes the dataset.

    FILTER is as in `kubothek query` behind WHERE: "month < 3"; TRUE is all rows. Without --row-level, only whole files
    are deleted. The rows stay in older versions, unless --purge is given.
    """
    with choice.opened() as store:
        opened = choice.lake(store).dataset(dataset)
        click.echo(_planned(opened, where))
        if dry_run:
            return
        if not yes:
            older = ", and expire all older versions" if purge else ""
            click.confirm(f"delete the matching rows of {dataset}{older}?", abort=True)
        done = opened.delete(where, row_level=row_level, purge=purge, id=commit_id, on_conflict=on_conflict)
    click.echo(commit_message(dataset, done))


def _planned(dataset: Dataset, where: str) -> str:
    """Return which files may hold matching rows, by what planning reads of them."""
    plan = dataset.plan(where)
    whole = sum(file.all_rows for file in plan.files)
    files = count(len(plan.files), "file")
    return f"{dataset.name}: {files} of {plan.steps[0].files_left:,} may match, {whole:,} of them with all rows"
