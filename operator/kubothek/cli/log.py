"""``kubothek log``: what happened to a dataset."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.options import limit_option, store_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.commits import Record


@click.command()
@store_options
@click.argument("dataset")
@limit_option("commits")
@click.option("--json", "as_json", is_flag=True, help="One JSON array, an object per commit.")
@click.option("--odf", is_flag=True, help="The blocks of its chain in place of commits.")
@click.option("-o", "--output", type=click.Choice(["table", "yaml"]), default="table", help="Of --odf.")
def log(choice: StoreChoice, dataset: str, limit: int, as_json: bool, odf: bool, output: str) -> None:
    """Show the history of a dataset, newest first.

    TIME is UTC. ROWS and FILES are what a commit added and removed, TOTAL ROWS what the dataset then held. External
    commits were made by another program and adopted; Recovered ones had been overwritten by one, and were merged again.
    With --odf, of a ledger: its blocks.
    """
    import orjson

    from kubothek.cli.columns import columns
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.store import open_store

    if odf:
        from kubothek.cli.ledger.blocks import show

        with choice.config() as config:
            show(open_store(config), dataset, limit, output)
        return
    with choice.config() as config:
        history = DatasetLog(open_store(config), dataset).history()
        # The commit below each one tells what it removed.
        records = list(islice(history, limit + 1 if limit else None))
    shown = records[: limit or None]
    if as_json:
        told = [_object(record, parent) for record, parent in _with_parents(records)][: len(shown)]
        click.echo(orjson.dumps(told, option=orjson.OPT_INDENT_2))
        return
    if not records:
        click.echo(f"no commits: {dataset} is as another program made it")
        return
    headers = ("VERSION", "TIME", "OPERATION", "ID", "ROWS", "FILES", "TOTAL ROWS", "BY", "")
    rows = [_row(record, parent) for record, parent in _with_parents(records)][: len(shown)]
    for line in columns(headers, rows, right=("VERSION", "ROWS", "FILES", "TOTAL ROWS")):
        click.echo(line)
    if len(records) > len(shown):
        click.echo(f"… and older ones, from version {records[-1].version} down: --limit shows more")


def _with_parents(records: list[Record]) -> Iterator[tuple[Record, Record | None]]:
    """Each commit with the one that it built on, as far as it is known."""
    for record, older in pairwise([*records, None]):
        if record is not None:
            yield record, older if older is not None and older.key == record.content_parent else None


def _removed_rows(record: Record, parent: Record | None) -> int | None:
    """How many rows the commit took away; None if that is not known."""
    if not record.delta.removed:
        return 0
    return None if parent is None else parent.totals.rows + record.added.rows - record.totals.rows


def _row(record: Record, parent: Record | None) -> tuple[str, ...]:
    from kubothek.cli.columns import shown_time

    gone, files_gone = _removed_rows(record, parent), len(record.delta.removed)
    return (
        str(record.version),
        shown_time(record.time),
        record.operation,
        record.id,
        f"+{record.added.rows:,}" + ("" if gone == 0 else f" −{'?' if gone is None else f'{gone:,}'}"),
        f"+{record.added.files:,}" + (f" −{files_gone:,}" if files_gone else ""),
        f"{record.totals.rows:,}",
        record.by or "-",
        ", ".join(_remarks(record)),
    )


def _object(record: Record, parent: Record | None) -> dict[str, Any]:
    return {
        "version": record.version,
        "time": record.time.isoformat(),
        "operation": str(record.operation),
        "id": record.id,
        "by": record.by,
        "rowsAdded": record.added.rows,
        "rowsRemoved": _removed_rows(record, parent),
        "filesAdded": record.added.files,
        "filesRemoved": len(record.delta.removed),
        "bytesAdded": record.added.bytes,
        "rows": record.totals.rows,
        "files": record.totals.files,
        "remarks": list(_remarks(record)),
    }


def _remarks(record: Record) -> Iterator[str]:
    """What else a commit did."""
    from kubothek.lake.commits.objects import keys
    from kubothek.lake.commits.objects.head import HORIZON, TAGS, tags_in

    for what, key in (("restores", record.restores), ("merges again", record.recovers)):
        if key is not None and (other := keys.parse_record(record.key.split("/")[1], key)) is not None:
            yield f"{what} version {other.version}"
    if HORIZON in record.delta.metadata:
        yield f"expires what is older than version {record.delta.metadata[HORIZON]}"
    if TAGS in record.delta.metadata or TAGS in record.delta.dropped:
        tags = tags_in(record.key.split("/")[1], record.delta.metadata)
        yield f"tags: {', '.join(f'{name} is {tag.version}' for name, tag in sorted(tags.items())) or 'none'}"
    if record.delta.schema is not None and record.parent is not None:
        yield "changes the schema"
    for column, file in sorted(record.delta.indices.items()):
        if file is None:
            yield f"drops the index of {column}"
