"""``kubothek cube info``, ``stats``, ``index``: structure, size and indices of a cube."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_cube, complete_dataset
from kubothek.cli.cube.common import choice_options, chosen, commit_message, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.cli.parameters import Names, id_option
from kubothek.cli.versions import AnyVersion

if TYPE_CHECKING:
    from datetime import datetime

    from kubothek.cli.stores import StoreChoice
    from kubothek.cube.inspection import CubeInfo, MemberInfo


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", required=False, shell_complete=complete_cube)
@click.option("--as-of", type=AnyVersion(), help="As it was then: a version of the cube, or a time.")
@output_option()
def info(choice: StoreChoice, prefix: str | None, as_of: int | datetime | str | None, output: str) -> None:
    """Show a cube: its columns, and those of each dataset. Without a CUBE, list all."""
    from kubothek.catalog import Lake

    if isinstance(as_of, str):
        raise click.UsageError("--as-of: versions of a cube have no tags: give a version or a time")
    with choice.opened() as store:
        if prefix is None:
            names = Lake(store).cubes()
            show(output, [{"name": name} for name in names], names)
            return
        found = open_cube(store, prefix).info(as_of)
    show(output, as_object(found), lines(found))


def as_object(found: CubeInfo) -> dict[str, object]:
    """Return the structure of a cube, for programs."""
    spec = found.spec
    return {
        "uuidPrefix": spec.uuid_prefix,
        "version": found.version,
        "seedDataset": spec.seed_dataset,
        "dimensionColumns": spec.dimension_columns,
        "partitionColumns": spec.partition_columns,
        "indexColumns": sorted(spec.index_columns),
        "suppressIndexOn": sorted(spec.suppress_index_on),
        "datasets": [
            {
                "name": member.name,
                "uuid": member.uuid,
                "version": member.version,
                "partitionOn": member.partition_on,
                "dimensionColumns": member.dimensions,
                "payloadColumns": {name: member.columns[name] for name in member.payload},
                "indices": member.indices,
                "metadata": dict(member.metadata),
            }
            for member in found.members
        ],
    }


def lines(found: CubeInfo) -> Iterator[str]:
    """Yield the structure of a cube, for users."""
    spec = found.spec
    yield f"{'Cube:':<14}{spec.uuid_prefix}"
    yield f"{'Version:':<14}{found.version or 'none: not written by Kubothek'}"
    yield f"{'Dimensions:':<14}{', '.join(spec.dimension_columns)}"
    yield f"{'Partitions:':<14}{', '.join(spec.partition_columns)}"
    yield f"{'Indices:':<14}{', '.join(sorted(spec.index_columns)) or 'those of dimensions'}"
    for member in found.members:
        yield from _member(member)


def _member(member: MemberInfo) -> Iterator[str]:
    seed = ", the seed" if member.is_seed else ""
    yield ""
    yield f"Dataset {member.name}{seed}, version {member.version}"
    yield f"  {'partitioned on':<16}{', '.join(member.partition_on) or 'nothing'}"
    yield f"  {'joined by':<16}{', '.join(member.dimensions)}"
    yield f"  {'indices':<16}{', '.join(member.indices) or 'none'}"
    for name, value in member.metadata.items():
        yield f"  {name + ' ':<16}{value}"
    longest = max(map(len, member.payload), default=0)
    for name in member.payload:
        yield f"  {name.ljust(max(24, longest + 2))}{member.columns[name]}"


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@choice_options
@output_option()
def stats(choice: StoreChoice, prefix: str, include: str | None, exclude: str | None, output: str) -> None:
    """Show the size of the datasets of a cube."""
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import listed

    with choice.opened() as store:
        cube = open_cube(store, prefix)
        found = cube.stats(chosen(cube.snapshot().members, include, exclude))
    sizes: dict[str, dict[str, object]] = {
        name: {"rows": each.rows, "files": each.files, "bytes": each.bytes, "partitions": each.partitions}
        for name, each in found.items()
    }
    rows = [
        (name, f"{each.rows:,}", f"{each.partitions:,}", f"{each.files:,}", render_bytes(each.bytes))
        for name, each in found.items()
    ]
    headers = ("DATASET", "ROWS", "PARTITIONS", "FILES", "SIZE")
    lines = listed(headers, rows, right=headers[1:], shorten=headers[:1], wide=output == "wide")
    show(output, [{"dataset": name, **size} for name, size in sizes.items()] if output == "csv" else sizes, lines)


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("names", type=Names(), metavar="COLUMNS")
@id_option
def index(choice: StoreChoice, prefix: str, dataset: str, names: tuple[str, ...], commit_id: str | None) -> None:
    """Add kartothek indices on COLUMNS (a,b*) of a dataset; other indices stay."""
    with choice.opened() as store:
        cube = open_cube(store, prefix)
        done = cube.index(dataset, names, id=commit_id)
        member = cube.snapshot().member(dataset)
    columns = ", ".join(member.snapshot.head.index_state.wanted())
    click.echo(f"{commit_message(prefix, done)}; {dataset} has indices on {columns}")
