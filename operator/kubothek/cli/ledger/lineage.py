"""``kubothek lineage``: the inputs and dependants of a ledger."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import yaml_text

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.lineage import Graph
    from kubothek.storage import Store


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option(
    "-o", "--output", type=click.Choice(["tree", "dot", "json", "yaml", "svg"]), default="tree", show_default=True
)
@click.option("--up", is_flag=True, help="Only inputs, up to the roots.")
@click.option("--down", is_flag=True, help="Only dependants.")
@click.option("--row", type=click.IntRange(min=0), metavar="OFFSET", help="The lineage of one record instead.")
@click.option("--recursive", is_flag=True, help="With --row: up to the records of roots.")
def lineage(
    choice: StoreChoice, dataset: str, output: str, up: bool, down: bool, row: int | None, recursive: bool
) -> None:
    """Show the inputs and dependants of a ledger, with the blocks that each read from the others.

    For a single record: the run that made it, and exactly the records of each input that it derives from. If these
    cannot be determined, the part of the query that prevents it is shown, and what the run read of each input.
    """
    from kubothek.odf.lineage import graph

    if row is not None and (up or down or output == "svg"):
        raise click.UsageError("--row shows one record, as tree, dot, json or yaml: leave out --up, --down and svg")
    if recursive and row is None:
        raise click.UsageError("--recursive requires --row OFFSET")
    with choice.opened() as store:
        if row is not None:
            click.echo(_of_row(store, dataset, row, output, recursive=recursive), nl=output == "tree")
            return
        found = graph(store, dataset, up=up or not down, down=down or not up)
    click.echo(_shown(found, output), nl=output == "tree")


def _shown(found: Graph, output: str) -> str:
    from kubothek.cli.ledger.lineage_svg import svg
    from kubothek.odf.lineage import dot, to_json, tree

    if output in ("json", "yaml"):
        return _as_text(to_json(found), output)
    return {"tree": tree, "dot": dot, "svg": svg}[output](found)


def _as_text(found: object, output: str) -> str:
    return yaml_text(found) if output == "yaml" else json.dumps(found, indent=2, default=str) + "\n"


def _of_row(store: Store, dataset: str, offset: int, output: str, *, recursive: bool) -> str:
    from dataclasses import asdict

    from kubothek.odf.derived import inputs_of
    from kubothek.odf.lineage import of_record, record_dot, record_tree

    found = of_record(store, dataset, offset, inputs_of(store), recursive=recursive)
    if output in ("json", "yaml"):
        return _as_text(asdict(found), output)
    return record_dot(found) if output == "dot" else record_tree(found)
