"""``kubothek tail``: the last records of a ledger, with retractions and corrections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from kubothek.cli.stores import StoreChoice
    from kubothek.odf.dataset import Ledger

_OPERATIONS = ("+A", "-R", "-C", "+C")


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True, help="How many records.")
@output_option()
def tail(choice: StoreChoice, dataset: str, limit: int, output: str) -> None:
    """Show the last records of a ledger in the order in which they were appended.

    The table of a ledger is its current state; these records are its history. OP is +A for an appended record, -R for a
    retracted one, -C and +C for the old and the new values of a correction.
    """
    from kubothek.cli.query import write_rows
    from kubothek.odf.dataset import Ledger
    from kubothek.table.log import DatasetLog

    with choice.opened() as store:
        records = last_records(Ledger(store, DatasetLog(store, dataset)), limit)
        if records is None:
            click.echo(f"{dataset}: no record yet", err=output not in ("table", "wide"))
        elif (text := write_rows(records, output)) is not None:
            click.echo(text)


def last_records(root: Ledger, limit: int) -> pa.RecordBatchReader | None:
    """Return the last records as slices hold them, with the names of operations; None if there are none."""
    import pyarrow as pa

    vocabulary = root.state.vocabulary
    if root.state.readable_schema() is None or root.state.last_offset is None:
        return None
    recent = root.latest(limit).last(limit)
    schema = recent.schema
    place = schema.get_field_index(vocabulary.op)
    shown = schema.set(place, pa.field(vocabulary.op, pa.string()))
    words = pa.array(_OPERATIONS)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in recent:
            columns = batch.columns
            columns[place] = words.take(batch.column(place))
            yield pa.RecordBatch.from_arrays(columns, schema=shown)

    return pa.RecordBatchReader.from_batches(shown, batches())
