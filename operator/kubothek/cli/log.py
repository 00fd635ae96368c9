"""``kubothek log``: the history of a dataset."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import limit_option, store_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubothek.cli.stores import StoreChoice
    from kubothek.table.log import Record


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@limit_option("commits")
@click.option("--odf", is_flag=True, help="Of a ledger: the blocks of its chain; -o yaml prints them as manifests.")
@output_option(json_flag=True)
def log(choice: StoreChoice, dataset: str, limit: int, odf: bool, output: str) -> None:
    """Show the history of a dataset, newest first.

    TIME is UTC. ROWS and FILES are added and removed by the commit; TOTAL ROWS is the size of the dataset after it.
    External commits come from another program and were adopted. Recovered commits were overwritten by another program
    and merged again.
    """
    from kubothek.table.log import DatasetLog

    if odf:
        from kubothek.cli.ledger.blocks import show_blocks

        with choice.opened() as store:
            show_blocks(store, dataset, limit, output)
        return
    with choice.opened() as store:
        history = DatasetLog(store, dataset).history()
        # One more record than shown: what a commit removed is computed from its parent.
        records = list(islice(history, limit + 1 if limit else None))
    shown = records[: limit or None]
    pairs = list(_with_parents(records))[: len(shown)]
    older = records[-1].version if len(records) > len(shown) else None
    lines = _lines(dataset, pairs, older, wide=output == "wide")
    show(output, [_object(record, parent) for record, parent in pairs], lines)


def _lines(dataset: str, pairs: list[tuple[Record, Record | None]], older: int | None, *, wide: bool) -> Iterator[str]:
    from kubothek.cli.columns import listed

    if not pairs:
        yield f"no commits: another program wrote {dataset}"
        return
    headers = ("VERSION", "TIME", "OPERATION", "ID", "ROWS", "FILES", "TOTAL ROWS", "BY", "")
    rows = [_row(record, parent) for record, parent in pairs]
    right = ("VERSION", "ROWS", "FILES", "TOTAL ROWS")
    yield from listed(headers, rows, right, shorten=("BY",), spare=("ID", "FILES", "BY"), wide=wide)
    if older is not None:
        yield f"… and older commits, from version {older} down: --limit shows more"


def _with_parents(records: list[Record]) -> Iterator[tuple[Record, Record | None]]:
    """Yield each commit with its parent; None if the parent is unknown."""
    for record, older in pairwise([*records, None]):
        if record is not None:
            yield record, older if older is not None and older.key == record.content_parent else None


def _removed_rows(record: Record, parent: Record | None) -> int | None:
    """Return how many rows the commit removed; None if unknown."""
    if not record.delta.removed:
        return 0
    return None if parent is None else parent.totals.rows + record.added.rows - record.totals.rows


def _row(record: Record, parent: Record | None) -> tuple[str, ...]:
    from kubothek.cli.columns import shown_time

    rows, files = _removed_rows(record, parent), len(record.delta.removed)
    return (
        str(record.version),
        shown_time(record.time),
        record.operation,
        record.id,
        f"+{record.added.rows:,}" + ("" if rows == 0 else f" −{'?' if rows is None else f'{rows:,}'}"),
        f"+{record.added.files:,}" + (f" −{files:,}" if files else ""),
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
    """Yield the other effects of a commit."""
    from kubothek.table.log.model import keys
    from kubothek.table.log.model.head import HORIZON, TAGS, tags_in

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
