"""``kubothek tag``: versions by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset")
@click.argument("name", required=False)
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--delete", is_flag=True, help="Take the name away.")
def tag(choice: StoreChoice, dataset: str, name: str | None, version: int | None, delete: bool) -> None:
    """Give a version of a dataset a name, by default the present one; without a NAME, show which names there are.

    A version that has a name is kept whole, whatever policies say, and read by it: AS OF TAG 'audit', --as-of audit.
    Another version that had this name loses it. If the Dataset's manifest has spec.tags, the operator makes the names
    what that says.
    """
    from kubothek.cli.columns import columns
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.store import open_store

    if delete and (name is None or version is not None):
        raise click.UsageError("--delete goes with a NAME, and without a VERSION")
    with choice.config() as config:
        store = open_store(config)
        if name is None:
            tags = DatasetLog(store, dataset).tags()
            rows = [(each, str(number)) for each, number in sorted(tags.items())]
            for line in columns(("NAME", "VERSION"), rows, right=("VERSION",)) if rows else (f"{dataset}: no tags",):
                click.echo(line)
            return
        log = DatasetLog(store, dataset, conditional_writes=store.probe().conditional_writes)
        before = log.tags().get(name)
        if not delete:
            click.echo(f"{dataset}: {name} is version {log.tag(name, version)}{_was(before)}")
        elif before is None:
            raise click.ClickException(f"{dataset} has no tag {name!r}")
        else:
            log.untag(name)
            click.echo(f"{dataset}: {name} is gone{_was(before)}")


def _was(version: int | None) -> str:
    return "" if version is None else f"; it was version {version}"
