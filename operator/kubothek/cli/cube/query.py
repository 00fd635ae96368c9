"""``kubothek cube query``: cells of a cube, as a table, CSV or JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kubothek.cli.cube.common import Names, choice_options, chosen, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from datetime import datetime

    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE")
@click.option("--conditions", metavar="FILTER", help='Which rows: "month = 3 AND wind_speed > 30".')
@click.option("--dimension-columns", type=Names(), help="The dimensions of the rows; default: all.")
@click.option("--payload-columns", type=Names(), help="The other columns; default: all.")
@click.option("--partition-by", type=Names(), default=(), help="Rows with the same values here come together.")
@click.option("--newest-only", is_flag=True, help="Ask conditions of the newest row of a cell only.")
@choice_options
@click.option("-o", "--output", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--as-of", type=AnyVersion(), help="Read the cube as it was then: a version of it, or a time.")
@click.option("--explain", is_flag=True, help="Only say which files it would read, and why so few.")
def query(
    choice: StoreChoice,
    prefix: str,
    conditions: str | None,
    dimension_columns: tuple[str, ...] | None,
    payload_columns: tuple[str, ...] | None,
    partition_by: tuple[str, ...],
    newest_only: bool,
    include: str | None,
    exclude: str | None,
    output: str,
    as_of: int | datetime | str | None,
    explain: bool,
) -> None:
    """Show the cells of a cube, with columns from all of its datasets.

    The seed says which cells there are; what the others lack is NULL. A condition on a column of another dataset leaves
    out cells without a row there, unless it is IS NULL. CSV and JSON are streamed and complete; a table has its first
    rows, for people.
    """
    import orjson

    from kubothek.cli.query import print_table, write_csv, write_json
    from kubothek.cli.remembered import remember
    from kubothek.jobs.cube_query import prepare
    from kubothek.lake.store import open_store
    from kubothek.resources.jobs import CubeQuestion

    started = time.monotonic()
    with choice.config() as config:
        store = open_store(config)
        datasets = None
        if include or exclude:
            if isinstance(as_of, str):
                raise click.UsageError("versions of a cube have no tags: give --as-of a version or a time")
            datasets = chosen(open_cube(store, prefix).snapshot(as_of).members, include, exclude)
        asked = CubeQuestion(
            prefix=prefix,
            conditions=conditions,
            dimension_columns=dimension_columns,
            partition_by=partition_by,
            payload_columns=payload_columns,
            datasets=datasets,
            newest_only=newest_only,
        )
        answer = prepare(asked, store, as_of)
        if explain:
            plan = answer.found.plan
            click.echo(orjson.dumps(plan.to_json(), option=orjson.OPT_INDENT_2) if output == "json" else plan.explain())
            return
        remember(config.url, answer.reads)
        if output == "csv":
            write_csv(answer.rows())
            return
        if output == "json":
            write_json(answer.rows())
            return
        told = print_table(answer.rows())
    source = ", ".join(f"{read.name} version {read.version} ({count(read.files, 'file')})" for read in answer.reads)
    click.echo(f"{told} in {time.monotonic() - started:.1f} s, from {source}")
