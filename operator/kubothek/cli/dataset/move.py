"""``kubothek create``, ``copy``, ``rename``, ``drop``, ``restore``: datasets as a whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.dataset.common import commit_message
from kubothek.cli.options import writing_options
from kubothek.cli.parameters import Names, dry_run_option, id_option, yes_option
from kubothek.cli.versions import AnyVersion
from kubothek.words import count, duration

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@writing_options
@click.argument("name", metavar="DATASET")
@click.option("--partition-on", type=Names(), default=(), help="The columns that name directories.")
def create(choice: StoreChoice, name: str, partition_on: tuple[str, ...]) -> None:
    """Create an empty dataset, which gets its columns with its first rows.

    A Dataset manifest and Python (`lake.create_dataset`) define columns, layout and indices as well.
    """
    with choice.opened(create=True) as store:
        choice.lake(store).create_dataset(name, partition_on)
    partitioned = f", partitioned on {', '.join(partition_on)}" if partition_on else ""
    click.echo(f"{name}: created{partitioned}")


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("new_name", metavar="NEW-NAME")
@click.option("--tgt-store", metavar="URL", help="The store to copy to, reached as this one; default: this one.")
@click.option("--as-of", type=AnyVersion(), help="The version to copy; default: the current one.")
@dry_run_option
@id_option
def copy(
    choice: StoreChoice,
    dataset: str,
    new_name: str,
    tgt_store: str | None,
    as_of: int | datetime | str | None,
    dry_run: bool,
    commit_id: str | None,
) -> None:
    """Copy one version of a dataset to a new dataset, in one commit.

    Columns, partitions, layout, indices, skipping metadata and user metadata are copied; history, tags and the chain of
    a ledger are not.
    """
    from kubothek.storage import open_store
    from kubothek.urls import absolute_url

    with choice.config() as config:
        there = config if tgt_store is None else replace(config, url=absolute_url(tgt_store, Path.cwd()))
        lake = choice.lake(open_store(config))
        if dry_run:
            snapshot = lake.dataset(dataset).snapshot(as_of)
            files = count(len(snapshot.head.partitions), "file")
            click.echo(f"{dataset}: version {snapshot.version} ({files}) would be copied to {new_name} in {there.url}")
            return
        done = lake.copy(dataset, new_name, to=choice.lake(open_store(there)), as_of=as_of, id=commit_id)
    click.echo(commit_message(new_name, done))


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("new_name", metavar="NEW-NAME")
@yes_option
def rename(choice: StoreChoice, dataset: str, new_name: str, yes: bool) -> None:
    """Give a dataset another name: copy its current version, then drop it.

    The files are copied, because all keys of a dataset contain its name. Older versions stay with the old name, which
    can be restored within the grace period. Run the command again after a crash.
    """
    with choice.opened() as store:
        lake = choice.lake(store)
        if not yes:
            click.confirm(f"copy {dataset} to {new_name}, and drop {dataset} with its history?", abort=True)
        done = lake.rename(dataset, new_name)
    click.echo(f"{commit_message(new_name, done)}; {dataset} is dropped")


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@dry_run_option
@yes_option
def drop(choice: StoreChoice, dataset: str, dry_run: bool, yes: bool) -> None:
    """Delete a dataset, in one commit. `kubothek restore` undoes it within the grace period of the store.

    The data is deleted by the first `kubothek gc DATASET --enforce` after the grace period.
    """
    from kubothek.table.log.settings import read_settings

    with choice.opened() as store:
        lake = choice.lake(store)
        snapshot = lake.dataset(dataset).snapshot()
        rows = f" ({count(snapshot.totals.rows, 'row')})" if snapshot.totals else ""
        if dry_run:
            click.echo(f"{dataset}: version {snapshot.version}{rows} would be dropped")
            return
        if not yes:
            click.confirm(f"drop {dataset}, version {snapshot.version}{rows}?", abort=True)
        grace = duration(read_settings(store).grace)
        version = lake.drop(dataset)
    click.echo(f"{dataset}: dropped at version {version}; `kubothek restore {dataset}` undoes it for {grace}")


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
def restore(choice: StoreChoice, dataset: str) -> None:
    """Restore a dataset that was dropped, or deleted by its manifest, less than the grace period ago."""
    with choice.opened() as store:
        lake = choice.lake(store)
        version = lake.restore(dataset)
        rows = lake.dataset(dataset).rows
    click.echo(f"{dataset}: version {version}: {count(rows, 'row')}")
