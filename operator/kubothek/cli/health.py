"""``kubothek health``: how a dataset is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.maintenance import Health


@click.command()
@store_options
@click.argument("dataset")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; sizes in bytes.")
def health(choice: StoreChoice, dataset: str, as_json: bool) -> None:
    """Show how a dataset is: its files by size, how many are small, and what only its history holds.

    Small files are those below half of the size that the table's layout wants; `kubothek compact` makes larger ones of
    them. Read from commit records; the store is not listed.
    """
    import orjson

    from kubothek.lake.door import Lake
    from kubothek.lake.store import open_store

    with choice.config() as config:
        found = Lake(open_store(config)).dataset(dataset).health()
    if as_json:
        click.echo(orjson.dumps(_object(dataset, found), option=orjson.OPT_INDENT_2))
        return
    for line in _lines(dataset, found):
        click.echo(line)


def _object(dataset: str, found: Health) -> dict[str, object]:
    return {
        "dataset": dataset,
        "version": found.version,
        "rows": found.totals.rows,
        "files": found.totals.files,
        "bytes": found.totals.bytes,
        "partitions": found.totals.partitions,
        "targetFileSize": found.target_bytes,
        "smallFiles": found.small.files,
        "smallFileShare": round(found.small_share, 4),
        "worstPartitionSmallFiles": found.most_small,
        "histogram": [{"below": step.below, "files": step.files, "bytes": step.bytes} for step in found.histogram],
        "versions": found.versions,
        "historyFiles": found.history.files,
        "historyBytes": found.history.bytes,
        "garbageFiles": found.garbage.files,
        "garbageBytes": found.garbage.bytes,
        "lastCommit": found.time,
    }


def _lines(dataset: str, found: Health) -> Iterator[str]:
    from kubothek.cli.columns import columns, shown_time
    from kubothek.resources.values import render_bytes

    totals = found.totals
    yield f"{dataset}: version {found.version} of {shown_time(found.time)}; versions kept: {found.versions:,}"
    size = render_bytes(totals.bytes)
    yield f"{count(totals.rows, 'row')} in {count(totals.files, 'file')} ({size}), partitions: {totals.partitions:,}"
    yield (
        f"small files, below {render_bytes(found.target_bytes // 2)}: {found.small.files:,} "
        f"({found.small_share:.0%}, {render_bytes(found.small.bytes)}); at most {found.most_small:,} in one partition"
    )
    yield f"held by history only: {count(found.history.files, 'file')} ({render_bytes(found.history.bytes)})"
    yield f"garbage, estimated: {count(found.garbage.files, 'file')} ({render_bytes(found.garbage.bytes)})"
    rows = [
        (f"< {render_bytes(step.below)}" if step.below else "larger", f"{step.files:,}", render_bytes(step.bytes))
        for step in found.histogram
    ]
    yield from columns(("FILE SIZE", "FILES", "BYTES"), rows, right=("FILES", "BYTES"))
