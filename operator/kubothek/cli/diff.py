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

    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.table.log.compare import Comparison, Difference, PartitionChange


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.argument("before", type=AnyVersion(), metavar="V1")
@click.argument("after", type=AnyVersion(), metavar="[V2]", required=False)
@click.option("--rows", is_flag=True, help="Show the changed rows, commit by commit.")
@click.option("--key", multiple=True, metavar="COLUMN", help="With --rows: a column that identifies a row; repeatable.")
@limit_option("partitions, or rows of a table,")
@output_option(json_flag=True)
def diff(
    choice: StoreChoice,
    dataset: str,
    before: int | datetime | str,
    after: int | datetime | str | None,
    rows: bool,
    key: tuple[str, ...],
    limit: int,
    output: str,
) -> None:
    """Compare version V1 of a dataset with V2, by default the current one.

    Versions are numbers (see `kubothek log`), times or tags. Rows and files are shown by partition. In JSON and YAML an
    unknown number is null.

    --rows shows the rows that the commits after V1 inserted and deleted, up to V2. With --key, a row whose other
    columns changed is shown before and after the update. CSV, JSON and YAML are streamed and complete.
    """
    from kubothek.catalog import Lake

    if key and not rows:
        raise click.UsageError("--key belongs to --rows")
    with choice.opened() as store:
        found_dataset = Lake(store).dataset(dataset)
        if rows:
            _show_rows(found_dataset.changes(before, after, key=key), output, limit)
            return
        found = found_dataset.diff(before, after)
    shown = found.partitions[: limit or None]
    hidden = len(found.partitions) - len(shown)
    show(output, _object(found, shown, hidden), _lines(found, shown, hidden, wide=output == "wide"))


def _show_rows(changes: pa.RecordBatchReader, output: str, limit: int) -> None:
    from kubothek.cli.query import print_table, write_rows

    if output == "table":
        click.echo(print_table(_for_users(changes), most=limit or None))
    elif (text := write_rows(changes, output)) is not None:
        click.echo(text)


def _for_users(changes: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Return the rows for a narrow table: version and change first, in short words, without the time of the commit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from kubothek.table.changes.plan import FEED_COLUMNS, POSTIMAGE, PREIMAGE

    width = len(changes.schema) - len(FEED_COLUMNS)
    kind, version = width, width + 1
    words: dict[str, pa.DataType] = {"version": pa.int64(), "change": pa.string()}
    schema = pa.schema([*pa.schema(words), *list(changes.schema)[:width]])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in changes:
            change = pc.replace_substring(batch.column(kind), PREIMAGE, "before")
            change = pc.replace_substring(change, POSTIMAGE, "after")
            columns = [batch.column(version), change, *batch.columns[:width]]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


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
