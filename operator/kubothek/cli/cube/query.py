"""``kubothek cube query``: cells of a cube, as a table, CSV, JSON or YAML."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_cube
from kubothek.cli.cube.common import choice_options, chosen, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.cli.parameters import Names
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from datetime import datetime

    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@click.option("--conditions", metavar="FILTER", help='Which rows: "month = 3 AND wind_speed > 30".')
@click.option("--dimension-columns", type=Names(), help="The dimensions of the rows; default: all.")
@click.option("--payload-columns", type=Names(), help="The other columns; default: all.")
@click.option("--partition-by", type=Names(), default=(), help="Rows with the same values here come together.")
@click.option("--newest-only", is_flag=True, help="Ask conditions of the newest row of a cell only.")
@choice_options
@output_option()
@click.option("--as-of", type=AnyVersion(), help="Read the cube as it was then: a version of it, or a time.")
@click.option("--explain", is_flag=True, help="Only show which files the query would read, and what left out others.")
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

    The seed defines the cells; columns of datasets without a row for a cell are NULL. A condition on a column of
    another dataset leaves out cells without a row there, unless it is IS NULL. CSV, JSON and YAML are streamed and
    complete; a table shows the first 1,000 rows, on a terminal in its width.
    """
    from kubothek.api.jobs import CubeQuestion
    from kubothek.cli.query import write_rows
    from kubothek.cli.remembered import remember
    from kubothek.jobs.cube_query import prepare

    started = time.monotonic()
    with choice.opened() as store:
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
            show(output, plan.to_json(), plan.explain().splitlines())
            return
        remember(store.url, answer.reads)
        text = write_rows(answer.rows(), output, started)
    if text is None:
        return
    source = ", ".join(f"{read.name} version {read.version} ({count(read.files, 'file')})" for read in answer.reads)
    click.echo(f"{text}, from {source}")
