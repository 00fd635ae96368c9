"""``kubothek cube``: commands for cubes, on any store."""

from __future__ import annotations

import click

from kubothek.cli.lazy import Entry, LazyGroup

_HERE = "kubothek.cli.cube"
COMMANDS = {
    "info": Entry(f"{_HERE}.show:info", "Show the datasets and columns of a cube, or list cubes."),
    "stats": Entry(f"{_HERE}.show:stats", "Show the sizes of its datasets."),
    "query": Entry(f"{_HERE}.query:query", "Query cells, with columns of all datasets."),
    "build": Entry(f"{_HERE}.write:build", "Create a cube: the seed and other datasets."),
    "extend": Entry(f"{_HERE}.write:extend", "Add datasets to a cube."),
    "append": Entry(f"{_HERE}.write:append", "Append rows to datasets."),
    "update": Entry(f"{_HERE}.write:update", "Replace partitions by rows."),
    "remove-partitions": Entry(f"{_HERE}.remove:remove_partitions", "Remove partitions."),
    "delete": Entry(f"{_HERE}.remove:delete", "Delete datasets of a cube, or all."),
    "discard": Entry(f"{_HERE}.remove:discard", "Revert changes by other programs."),
    "cleanup": Entry(f"{_HERE}.remove:cleanup", "Delete unreferenced objects under its prefix."),
    "copy": Entry(f"{_HERE}.copy:copy", "Copy a cube to another store or name."),
    "index": Entry(f"{_HERE}.show:index", "Add indices to columns of a dataset."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def cube() -> None:
    """Manage cubes: several datasets with common dimensions.

    CUBE is the prefix of its datasets. A change of several datasets is one commit: readers see all of it or nothing. A
    cube that a manifest created is changed by manifests only, and can be read here.
    """
