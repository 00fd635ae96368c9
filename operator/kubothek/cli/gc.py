"""``kubothek gc``: list objects that no version references, or delete them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.durations import Duration
from kubothek.cli.options import writing_options
from kubothek.cli.output import output_option, show
from kubothek.words import count

NO_FIRST_COMMIT = "no version, as the first commit never happened"

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubothek.cli.stores import StoreChoice
    from kubothek.gc import Collection, Count, Kind


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--dry-run/--enforce", default=True, show_default=True, help="List what would be deleted, or delete it.")
@click.option("--keep-versions", type=click.IntRange(1), metavar="N", help="Keep the N newest versions.")
@click.option("--keep-for", type=Duration(), help="Keep versions that were current within this time: 7d, 36h.")
@click.option(
    "--max-deletes", type=click.IntRange(0), metavar="N", help="Delete nothing if there are more objects than N."
)
@click.option("--grace", type=Duration(), help="Keep younger objects; at least the store's: `kubothek grace`.")
@output_option()
def gc(
    choice: StoreChoice,
    dataset: str,
    dry_run: bool,
    keep_versions: int | None,
    keep_for: timedelta | None,
    max_deletes: int | None,
    grace: timedelta | None,
    output: str,
) -> None:
    """List objects of a dataset that no version references; with --enforce, delete them.

    With --keep-versions or --keep-for, older versions expire: they can no longer be read or rolled back to, and objects
    that only they reference are deleted. With both, a version stays if either option keeps it. With neither, every
    version stays. Of a dataset whose first commit never happened, all objects that its writers left are listed. Safe to
    run beside readers and writers, and to repeat after a failure. A dry run writes nothing to the store.
    """
    from kubothek.gc import MAX_DELETES, Mode, Retention, collect
    from kubothek.table.log import DatasetLog

    with choice.opened() as store:
        done = collect(
            store,
            DatasetLog(store, dataset, conditional_writes=dry_run or store.probe().conditional_writes),
            [Retention(keep_versions, keep_for)],
            mode=Mode.DRY_RUN if dry_run else Mode.ENFORCE,
            max_deletes=MAX_DELETES if max_deletes is None else max_deletes,
            grace=grace,
            by=choice.lake(store).author,
        )
    counts = done.found if dry_run else done.deleted
    found = {
        "dataset": dataset,
        "enforced": not dry_run,
        "versions": done.versions,
        "oldest": done.oldest,
        "plan": done.plan,
        "unknownObjects": done.unknown.objects,
        "withinGraceObjects": done.young.objects,
        "withinGraceBytes": done.young.bytes,
        "kinds": {str(kind): {"objects": each.objects, "bytes": each.bytes} for kind, each in counts.items()},
    }
    show(output, found, _lines(dataset, done, counts, dry_run=dry_run))


def _lines(dataset: str, done: Collection, counts: Mapping[Kind, Count], *, dry_run: bool) -> Iterator[str]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import columns

    if counts:
        yield from columns(("KIND", "OBJECTS", "BYTES"), _rows(counts), right=("OBJECTS", "BYTES"))
    verb = "would be deleted" if dry_run else "deleted"
    total = sum(each.objects for each in counts.values())
    kept = f"{count(done.versions, 'version')} kept, from {done.oldest} on" if done.versions else NO_FIRST_COMMIT
    yield f"{dataset}: {count(total, 'object')} {verb}; {kept}{f'; plan: {done.plan}' if done.plan else ''}"
    if done.young.objects:
        size = render_bytes(done.young.bytes)
        yield f"{count(done.young.objects, 'unreferenced object')} ({size}) kept: within the grace period"
    if done.unknown.objects:
        yield f"{count(done.unknown.objects, 'unknown object')} not written by Kubothek, not deleted"


def _rows(counts: Mapping[Kind, Count]) -> list[tuple[str, str, str]]:
    return [(str(kind), f"{count.objects:,}", f"{count.bytes:,}") for kind, count in sorted(counts.items())]
