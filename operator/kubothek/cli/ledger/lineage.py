"""``kubothek lineage``: what a ledger is made of, and what is made of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.ledger.derivative.lineage import Graph, Source
    from kubothek.lake.store import Store

_SHOWN = 20
"""Offsets of a group's records; JSON has all."""


@click.command()
@store_options
@click.argument("dataset")
@click.option("-o", "--output", type=click.Choice(["tree", "dot", "json", "svg"]), default="tree", show_default=True)
@click.option("--up", is_flag=True, help="Only what it is made of, up to the roots.")
@click.option("--down", is_flag=True, help="Only what is made of it.")
@click.option("--row", type=click.IntRange(min=0), metavar="OFFSET", help="Instead: of one record.")
def lineage(choice: StoreChoice, dataset: str, output: str, up: bool, down: bool, row: int | None) -> None:
    """Show where the data of a ledger comes from, and where it goes: with the blocks that each took of the others.

    Of a single record: the run that made it, with the part of each input that the run took, and where the
    transformation looks at each record on its own, the records themselves; of a group, the records with its keys.
    """
    from kubothek.lake.ledger.derivative.lineage import graph
    from kubothek.lake.store import open_store

    if row is not None and (up or down or output not in ("tree", "json")):
        raise click.UsageError("--row tells of one record, as a tree or as JSON: leave out --up, --down, dot and svg")
    with choice.config() as config:
        store = open_store(config)
        if row is not None:
            click.echo(_of_row(store, dataset, row, as_json=output == "json"))
            return
        found = graph(store, dataset, up=up or not down, down=down or not up)
    click.echo(_shown(found, output), nl=output == "tree")


def _shown(found: Graph, output: str) -> str:
    from kubothek.cli.ledger.lineage_svg import svg
    from kubothek.lake.ledger.derivative.lineage import dot, to_json, tree

    if output == "json":
        return json.dumps(to_json(found), indent=2) + "\n"
    return {"tree": tree, "dot": dot, "svg": svg}[output](found)


def _of_row(store: Store, dataset: str, offset: int, *, as_json: bool) -> str:
    from dataclasses import asdict

    from kubothek.lake.ledger.derivative import inputs_of
    from kubothek.lake.ledger.derivative.lineage import of_record

    found = of_record(store, dataset, offset, inputs_of(store))
    if as_json:
        return json.dumps(asdict(found), indent=2, default=str)
    lines = [f"{dataset}, record {offset}: {_record(found.record)}", f"made by block {found.number}, {found.block}"]
    if not found.exact and all(source.members is None for source in found.sources):
        lines[-1] += ", by a transformation with a state: what came before counts as well"
    told = [text for source in found.sources if (text := _source(source, exact=found.exact)) is not None]
    lines += [f"├─ {text}" for text in told[:-1]] + [f"└─ {text}" for text in told[-1:]]
    return "\n".join(lines)


def _source(source: Source, *, exact: bool) -> str | None:
    """What a record is of, or may be of; None if it is of nothing of this input."""
    if source.members is not None:
        shown = ", ".join(map(str, source.members[:_SHOWN])) + (", …" if len(source.members) > _SHOWN else "")
        return f"{source.alias}, {len(source.members):,} records with its keys: {shown}"
    if source.record is not None:
        return f"{source.alias}, record {source.offset}: {_record(source.record)}"
    if source.first is None or exact:
        return None
    return f"{source.alias}, records {source.first} to {source.last} of this run, up to block {source.block}"


def _record(record: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in record.items())
