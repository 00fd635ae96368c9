"""``kubothek health``: the state of a dataset's files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.gc import NO_FIRST_COMMIT
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.gc import Collection
    from kubothek.table.iceberg.state import IcebergState
    from kubothek.table.maintenance import Health


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@output_option(json_flag=True)
def health(choice: StoreChoice, dataset: str, output: str) -> None:
    """Show the files of a dataset by size, how many are small, and what only its history holds.

    A file is small if it is below half of the target size of the table's layout; `kubothek compact` merges small files.
    Unreferenced objects are counted by a listing, as by a dry run of `kubothek gc`; nothing is written. Only they are
    shown of a dataset whose first commit never happened. JSON, YAML and CSV have sizes in bytes.
    """
    from kubothek.catalog import Lake
    from kubothek.errors import DatasetNotFound
    from kubothek.gc import Retention, collect
    from kubothek.table.iceberg.state import iceberg_state
    from kubothek.table.log import DatasetLog

    with choice.opened() as store:
        try:
            found = Lake(store).dataset(dataset).health()
        except DatasetNotFound:
            loose = collect(store, DatasetLog(store, dataset), [Retention()])
            if loose.versions:
                raise
            lines = (f"{dataset}: {NO_FIRST_COMMIT}", _unreferenced(loose))
            show(output, {"dataset": dataset, "version": 0, **_counts(loose)}, lines)
            return
        loose = collect(store, DatasetLog(store, dataset), [Retention()])
        log = DatasetLog(store, dataset)
        exported = iceberg_state(store, log, log.snapshot())
    show(output, _object(dataset, found, loose, exported), _lines(dataset, found, loose, exported))


def iceberg_line(version: int, lag: int, problem: str | None) -> str:
    """Return the line about the export of Iceberg metadata."""
    return f"Iceberg metadata: version {version}, {count(lag, 'version')} behind{f': {problem}' if problem else ''}"


def _counts(loose: Collection) -> dict[str, object]:
    from kubothek.gc import NO_OBJECTS

    old = sum(loose.found.values(), NO_OBJECTS)
    return {
        "unreferencedObjects": old.objects,
        "unreferencedBytes": old.bytes,
        "withinGraceObjects": loose.young.objects,
        "withinGraceBytes": loose.young.bytes,
    }


def _unreferenced(loose: Collection) -> str:
    from kubothek.api.values import render_bytes
    from kubothek.gc import NO_OBJECTS

    old = sum(loose.found.values(), NO_OBJECTS)
    return (
        f"unreferenced: {count(old.objects, 'object')} ({render_bytes(old.bytes)}); within the grace period: "
        f"{loose.young.objects:,} more ({render_bytes(loose.young.bytes)})"
    )


def _object(dataset: str, found: Health, loose: Collection, exported: IcebergState | None) -> dict[str, object]:
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
        **_counts(loose),
        **({} if exported is None else {"icebergVersion": exported.version, "icebergLag": exported.lag}),
        "lastCommit": found.time,
    }


def _lines(dataset: str, found: Health, loose: Collection, exported: IcebergState | None) -> Iterator[str]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import columns, shown_time

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
    yield _unreferenced(loose)
    if exported is not None:
        yield iceberg_line(exported.version, exported.lag, exported.problem)
    rows = [
        (f"< {render_bytes(step.below)}" if step.below else "larger", f"{step.files:,}", render_bytes(step.bytes))
        for step in found.histogram
    ]
    yield from columns(("FILE SIZE", "FILES", "BYTES"), rows, right=("FILES", "BYTES"))
