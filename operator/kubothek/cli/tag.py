"""``kubothek tag``: names of versions."""

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
@click.argument("name", required=False)
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--delete", is_flag=True, help="Remove the name.")
@output_option()
def tag(choice: StoreChoice, dataset: str, name: str | None, version: int | None, delete: bool, output: str) -> None:
    """Name a version of a dataset, by default the current one; without a NAME, list the names.

    A named version is never garbage-collected, and is read by its name: AS OF TAG 'audit', --as-of audit. A name moves
    if another version had it. If the Dataset's manifest has spec.tags, the operator keeps the names as listed there.
    """
    from kubothek.cli.columns import listed
    from kubothek.table.log import DatasetLog

    if delete and (name is None or version is not None):
        raise click.UsageError("--delete requires NAME, without VERSION")
    with choice.opened() as store:
        if name is None:
            tags = DatasetLog(store, dataset).tags()
            rows = [(each, str(number)) for each, number in sorted(tags.items())]
            table = listed(("NAME", "VERSION"), rows, right=("VERSION",), shorten=("NAME",), wide=output == "wide")
            lines = table if rows else (f"{dataset}: no tags",)
            show(output, [{"name": each, "version": number} for each, number in sorted(tags.items())], lines)
            return
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        before = log.tags().get(name)
        if not delete:
            click.echo(f"{dataset}: {name} is version {log.tag(name, version)}{_was(before)}")
        elif before is None:
            raise click.ClickException(f"{dataset} has no tag {name!r}")
        else:
            log.untag(name)
            click.echo(f"{dataset}: {name} deleted{_was(before)}")


def _was(version: int | None) -> str:
    return "" if version is None else f"; it was version {version}"
