"""``kubothek diff``: the difference of two versions of a dataset."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import limit_option, store_options
from kubothek.cli.output import output_option, show
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.table.log.compare import Comparison, Difference, PartitionChange


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("before", type=AnyVersion(), metavar="V1")
@click.argument("after", type=AnyVersion(), metavar="[V2]", required=False)
@limit_option("partitions")
@output_option(json_flag=True)
def diff(
    choice: StoreChoice,
    dataset: str,
    before: int | datetime | str,
    after: int | datetime | str | None,
    limit: int,
    output: str,
) -> None:
    """Compare version V1 of a dataset with V2, by default the current one.

    Versions are numbers (see `kubothek log`), times or tags. Rows and files are shown by partition. In JSON and YAML an
    unknown number is null.
    """
    from kubothek.catalog import Lake

    with choice.opened() as store:
        found = Lake(store).dataset(dataset).diff(before, after)
    shown = found.partitions[: limit or None]
    hidden = len(found.partitions) - len(shown)
    show(output, _object(found, shown, hidden), _lines(found, shown, hidden, wide=output == "wide"))


def _object(found: Comparison, shown: tuple[PartitionChange, ...], hidden: int) -> dict[str, object]:
    return {
        "dataset": found.uuid,
        "before": {"version": found.before, "rows": found.rows[0], "partitionKeys": found.partition_keys[0]},
        "after": {"version": found.after, "rows": found.rows[1], "partitionKeys": found.partition_keys[1]},
        "columns": found.columns,
        "indices": found.indices,
        "partitions": [
            {
                "path": change.path,
                "rowsAdded": change.rows_added,
                "rowsRemoved": change.rows_removed,
                "filesAdded": change.files_added,
                "filesRemoved": change.files_removed,
            }
            for change in shown
        ],
        "morePartitions": hidden,
    }


def _lines(found: Comparison, shown: tuple[PartitionChange, ...], hidden: int, *, wide: bool) -> Iterator[str]:
    from kubothek.cli.columns import listed

    rows = " → ".join("?" if number is None else f"{number:,}" for number in found.rows)
    yield f"{found.uuid}: version {found.before} → {found.after}, rows {rows}"
    if found.empty:
        yield "the same files, columns and indices"
    for change in found.columns:
        yield f"column {change.name}: {_description(change)}"
    for change in found.indices:
        yield f"index {change.name}: {_description(change)}"
    if shown:
        lines = [_row(change) for change in shown]
        headers = ("PARTITION", "ROWS", "FILES")
        yield from listed(headers, lines, right=headers[1:], shorten=headers[:1], wide=wide)
    if hidden:
        yield f"… and {count(hidden, 'more partition')}: --limit shows more"


def _description(change: Difference) -> str:
    if change.before is None:
        return f"added, {change.after}"
    return "removed" if change.after is None else f"{change.before} → {change.after}"


def _row(change: PartitionChange) -> tuple[str, str, str]:
    return (
        change.path or "(whole table)",
        _signed(change.rows_added, change.rows_removed),
        _signed(change.files_added, change.files_removed),
    )


def _signed(added: int | None, removed: int | None) -> str:
    """Return ``+3 −2``; a zero side is left out, an unknown side is a question mark."""
    parts = [
        f"{sign}{'?' if number is None else f'{number:,}'}"
        for sign, number in (("+", added), ("−", removed))
        if number != 0
    ]
    return " ".join(parts) or "0"
