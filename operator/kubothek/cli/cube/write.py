"""``kubothek cube build``, ``extend``, ``append``, ``update``: writes of rows from files to datasets of a cube."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubothek.cli.complete import complete_cube
from kubothek.cli.cube.common import Names, Pair, commit_message, id_option, open_cube, pairs
from kubothek.cli.options import store_options

if TYPE_CHECKING:
    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.cube.state import Member
    from kubothek.ingest import Format, SourcePlan, SourceReader


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


# ``--data NAME=FILE``: local files as streams of rows.


_ENDINGS = (".gz", ".gzip", ".zip")


def streams(
    data: Collection[tuple[str, str]], members: Mapping[str, Member], held: ExitStack
) -> dict[str, pa.RecordBatchReader]:
    """Return the rows of each file, read lazily; ``members`` are the existing datasets that get rows.

    Raises UsageError for file names without a known format, InputError for unreadable files.
    """
    return {name: _stream(Path(path), members.get(name), held) for name, path in pairs(data, "--data").items()}


def _stream(path: Path, member: Member | None, held: ExitStack) -> pa.RecordBatchReader:
    import pyarrow as pa

    from kubothek.ingest import Source, SourceReader, UrlPolicy, decide_schemas
    from kubothek.table.time_zones import zones_of

    source = Source(format=_format(path), urls=(path.resolve().as_uri(),), policy=UrlPolicy((), allow_local=True))
    reader = held.enter_context(SourceReader(source))
    plan = reader.plan()
    reading, _ = decide_schemas(
        declared=None,
        table=member.schema if member is not None else None,
        contract=None,
        partition_on=member.partition_on if member is not None else (),
        infer=lambda: reader.infer_schema(plan),
        zones=zones_of(member.snapshot.head.metadata) if member is not None else {},
    )
    return pa.RecordBatchReader.from_batches(reading, _batches(reader, plan, reading))


def _batches(reader: SourceReader, plan: SourcePlan, reading: pa.Schema) -> Iterator[pa.RecordBatch]:
    for split in plan.with_unsplit_files([file.name for file in plan.files]).splits:
        yield from reader.read(split, reading)


def _format(path: Path) -> Format:
    from kubothek.ingest import Format

    if not path.is_file():
        raise click.UsageError(f"--data: there is no file {path}")
    bare = path.with_suffix("") if path.suffix.lower() in _ENDINGS else path
    formats = {
        ".csv": Format.CSV,
        ".parquet": Format.PARQUET,
        ".jsonl": Format.JSON_LINES,
        ".ndjson": Format.JSON_LINES,
        ".json": Format.JSON_LINES,
    }
    found = formats.get(bare.suffix.lower())
    if found is None:
        raise click.UsageError(f"--data: {path.name!r} does not say its format: name it .parquet, .csv or .jsonl")
    return found
