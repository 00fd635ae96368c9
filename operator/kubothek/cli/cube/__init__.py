"""``kubothek cube``: the verbs of cubes, on any store."""

from __future__ import annotations

import click

from kubothek.cli.lazy import Entry, LazyGroup

_HERE = "kubothek.cli.cube"
COMMANDS = {
    "info": Entry(f"{_HERE}.show:info", "Show what a cube is made of; without a CUBE, list all."),
    "stats": Entry(f"{_HERE}.show:stats", "Show how large its datasets are."),
    "query": Entry(f"{_HERE}.query:query", "Show its cells, with columns from all of its datasets."),
    "build": Entry(f"{_HERE}.write:build", "Make a cube: the seed, and other datasets."),
    "extend": Entry(f"{_HERE}.write:extend", "Add datasets to it."),
    "append": Entry(f"{_HERE}.write:append", "Add rows to its datasets."),
    "update": Entry(f"{_HERE}.write:update", "Put rows in the place of partitions."),
    "remove-partitions": Entry(f"{_HERE}.remove:remove_partitions", "Take partitions away."),
    "delete": Entry(f"{_HERE}.remove:delete", "Delete datasets of it, or all of it."),
    "discard": Entry(f"{_HERE}.remove:discard", "Take back what other programs did to it."),
    "cleanup": Entry(f"{_HERE}.remove:cleanup", "Delete objects under its prefix that no version needs."),
    "copy": Entry(f"{_HERE}.copy:copy", "Copy it to another store, or under another name."),
    "index": Entry(f"{_HERE}.show:index", "Give columns of a dataset an index."),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def cube() -> None:
    """Cubes: several datasets as one.

    A cube is named by the prefix of its datasets. Each change of several datasets is one commit: readers see all of it
    or nothing. What a manifest made is changed by manifests; it can be read here.
    """
