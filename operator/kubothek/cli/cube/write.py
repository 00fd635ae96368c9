"""``kubothek cube build``, ``extend``, ``append``, ``update``: writes of rows from files to datasets of a cube."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubothek.cli.complete import complete_cube
from kubothek.cli.cube.common import commit_message, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.parameters import Names, Pair, id_option, pairs

if TYPE_CHECKING:
    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.cube.state import Member


F = TypeVar("F", bound=Callable[..., Any])

_data = click.option(
    "--data",
    type=Pair(),
    metavar="DATASET=FILE",
    multiple=True,
    required=True,
    help="The rows of a dataset: .parquet, .csv or .jsonl; repeatable.",
)
_NONE: tuple[str, ...] = ()


def _new_datasets(command: F) -> F:
    for option in (
        click.option("--overwrite/--no-overwrite", default=False, help="Replace existing datasets."),
        click.option(
            "--partition-on",
            type=Pair(),
            metavar="DATASET=a,b",
            multiple=True,
            help="Partition columns of a dataset, if not those of the cube; nothing behind = for none.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@_data
@click.option("--dimension-columns", type=Names(), required=True, help="The columns that identify a cell.")
@click.option("--partition-columns", type=Names(), required=True, help="What names directories.")
@click.option("--seed-dataset", default="seed", show_default=True, help="Which dataset says which cells there are.")
@click.option("--index-columns", type=Names(), default=_NONE, help="Other columns with an index.")
@click.option("--suppress-index-on", type=Names(), default=_NONE, help="Dimension columns without one.")
@_new_datasets
@id_option
def build(
    choice: StoreChoice,
    prefix: str,
    data: tuple[tuple[str, str], ...],
    dimension_columns: tuple[str, ...],
    partition_columns: tuple[str, ...],
    seed_dataset: str,
    index_columns: tuple[str, ...],
    suppress_index_on: tuple[str, ...],
    partition_on: tuple[tuple[str, str], ...],
    overwrite: bool,
    commit_id: str | None,
) -> None:
    """Build a cube in one commit: the seed, and one dataset per other file.

    Files are read as streams, whatever their size, and checked before anything is written.
    """
    from kubothek.storage import open_store
    from kubothek.storage.urls import create_directory
    from kubothek.table.log.multi.spec import CubeSpec

    spec = CubeSpec(
        prefix,
        dimension_columns,
        partition_columns,
        seed_dataset=seed_dataset,
        index_columns=frozenset(index_columns),
        suppress_index_on=frozenset(suppress_index_on),
    )
    with choice.config() as config, ExitStack() as held:
        create_directory(config)
        cube = open_cube(open_store(config), prefix, spec)
        rows = streams(data, {}, held)
        done = cube.build(rows, partition_on=_by_dataset(partition_on), overwrite=overwrite, id=commit_id)
    click.echo(commit_message(prefix, done))


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@_data
@_new_datasets
@id_option
def extend(
    choice: StoreChoice,
    prefix: str,
    data: tuple[tuple[str, str], ...],
    partition_on: tuple[tuple[str, str], ...],
    overwrite: bool,
    commit_id: str | None,
) -> None:
    """Add datasets to a cube in one commit. Their columns, except dimensions and partitions, must be new to it."""
    from kubothek.storage import open_store

    with choice.config() as config, ExitStack() as held:
        cube = open_cube(open_store(config), prefix)
        rows = streams(data, {}, held)
        done = cube.extend(rows, partition_on=_by_dataset(partition_on), overwrite=overwrite, id=commit_id)
    click.echo(commit_message(prefix, done))


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@_data
@id_option
def append(choice: StoreChoice, prefix: str, data: tuple[tuple[str, str], ...], commit_id: str | None) -> None:
    """Add rows to datasets of a cube in one commit. If a cell is written again, queries show its newest row."""
    from kubothek.storage import open_store

    with choice.config() as config, ExitStack() as held:
        cube = open_cube(open_store(config), prefix)
        done = cube.append(streams(data, cube.snapshot().members, held), id=commit_id)
    click.echo(commit_message(prefix, done))


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@_data
@click.option("--remove", required=True, metavar="FILTER", help='Which partitions go: "month = 3"; TRUE for all.')
@id_option
def update(
    choice: StoreChoice, prefix: str, data: tuple[tuple[str, str], ...], remove: str, commit_id: str | None
) -> None:
    """Remove partitions of datasets and add rows to them, in one commit."""
    from kubothek.storage import open_store

    with choice.config() as config, ExitStack() as held:
        cube = open_cube(open_store(config), prefix)
        done = cube.update(streams(data, cube.snapshot().members, held), remove=remove, id=commit_id)
    click.echo(commit_message(prefix, done))


def _by_dataset(given: tuple[tuple[str, str], ...]) -> dict[str, tuple[str, ...]]:
    return {name: Names().convert(text, None, None) for name, text in pairs(given, "--partition-on").items()}


def streams(
    data: Collection[tuple[str, str]], members: Mapping[str, Member], held: ExitStack
) -> dict[str, pa.RecordBatchReader]:
    """Return the rows of each file, read lazily; ``members`` are the existing datasets that get rows.

    Raises UsageError for file names without a known format, InputError for unreadable files.
    """
    from kubothek.cli.source_rows import Target, rows_of

    return {
        name: rows_of([path], Target() if name not in members else Target.of(members[name].snapshot), held, "--data: ")
        for name, path in pairs(data, "--data").items()
    }
