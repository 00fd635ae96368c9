"""``kubothek compact``: fewer, larger files, and the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import writing_options
from kubothek.cli.output import output_option, show
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.table.clustering import Clustering
    from kubothek.table.maintenance import Compaction, CompactionPlan

_SHOWN = 50


class _Size(click.ParamType[int]):
    """Bytes, as manifests write them: 256Mi."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        from kubothek.api.values import parse_quantity

        try:
            return parse_quantity(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@writing_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--where", metavar="FILTER", help='Which partitions, e.g. "month >= 3"; default: all.')
@click.option(
    "--target-size",
    type=_Size(),
    metavar="SIZE",
    help="Target size of the new files, e.g. 256Mi; default: the dataset's layout.",
)
@click.option("--min-files", default=2, show_default=True, help="Least number of small files in a partition.")
@click.option("--sort-by", metavar="COLUMNS", help="Sort rows across the files of a partition by a,b.")
@click.option("--z-order-by", metavar="COLUMNS", help="Cluster rows along a Z-order curve over a,b.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")
@output_option()
def compact(
    choice: StoreChoice,
    dataset: str,
    where: str | None,
    target_size: int | None,
    min_files: int,
    sort_by: str | None,
    z_order_by: str | None,
    dry_run: bool,
    output: str,
) -> None:
    """Merge small files of each partition of a dataset into larger ones.

    A file is small if it is below half of the target size. With an order, files that are not sorted by it are
    rewritten. Rows do not change; this is verified before the commit. Safe to run beside other writers: partitions that
    they change in the meantime are skipped.
    """
    from kubothek.table.expressions import parse
    from kubothek.table.log import DatasetLog
    from kubothek.table.maintenance import CompactionRequest, plan_compaction
    from kubothek.table.maintenance import compact as compact_dataset

    if sort_by and z_order_by:
        raise click.UsageError("--sort-by and --z-order-by exclude each other")
    with choice.opened() as store:
        log = DatasetLog(store, dataset, conditional_writes=dry_run or store.probe().conditional_writes)
        request = CompactionRequest(
            where=parse(where) if where else None,
            target_bytes=target_size,
            min_files=min_files,
            clustering=_clustering(sort_by or z_order_by, curve=bool(z_order_by)),
        )
        if dry_run:
            plan = plan_compaction(store, log, log.snapshot(), request)
            show(output, _plan_object(dataset, plan), _planned(dataset, plan, all_rows=output == "wide"))
        else:
            author, commit_id = choice.lake(store).author, f"cli:compact:{uuid4()}"
            done = compact_dataset(store, log, request, commit_id=commit_id, digest="", by=author)
            show(output, _object(dataset, done), _done(dataset, done))


def _plan_object(dataset: str, plan: CompactionPlan) -> dict[str, object]:
    partitions = [
        {"path": each.group.path, "files": len(each.files), "bytes": each.bytes, "rows": each.rows}
        for each in plan.bundles
    ]
    return {"dataset": dataset, "files": plan.files.files, "rewritten": plan.rewritten.files, "partitions": partitions}


def _object(dataset: str, done: Compaction) -> dict[str, object]:
    removed, added = (
        {"files": totals.files, "bytes": totals.bytes, "rows": totals.rows} for totals in (done.removed, done.added)
    )
    skipped = list(done.skipped)
    return {"dataset": dataset, "version": done.version, "removed": removed, "added": added, "skipped": skipped}


def _clustering(columns: str | None, *, curve: bool) -> Clustering | None:
    from kubothek.table.clustering import Clustering

    return Clustering(tuple(name.strip() for name in columns.split(",")), curve=curve) if columns else None


def _planned(dataset: str, plan: CompactionPlan, *, all_rows: bool) -> Iterator[str]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import listed

    if not plan.bundles:
        yield f"{dataset}: nothing to compact ({count(plan.files.files, 'file')})"
        return
    yield f"{dataset}: {plan.rewritten.files:,} of {count(plan.files.files, 'file')} would be rewritten"
    rows = [
        (bundle.group.path or "-", f"{len(bundle.files):,}", render_bytes(bundle.bytes), f"{bundle.rows:,}")
        for bundle in (plan.bundles if all_rows else plan.bundles[:_SHOWN])
    ]
    headers = ("PARTITION", "FILES", "SIZE", "ROWS")
    yield from listed(headers, rows, right=headers[1:], shorten=headers[:1], wide=all_rows)
    if not all_rows and len(plan.bundles) > _SHOWN:
        yield f"… and {len(plan.bundles) - _SHOWN:,} more: -o wide shows all"


def _done(dataset: str, done: Compaction) -> Iterator[str]:
    from kubothek.api.values import render_bytes

    if done.version is None and not done.skipped:
        yield f"{dataset}: nothing to compact"
    elif done.version is not None:
        yield (
            f"{dataset}: version {done.version}: "
            f"{count(done.removed.files, 'file')} ({render_bytes(done.removed.bytes)}) became "
            f"{done.added.files:,} ({render_bytes(done.added.bytes)}), with the same {count(done.added.rows, 'row')}"
        )
    for path in done.skipped[:_SHOWN]:
        yield f"{dataset}: {path or 'the table'} skipped: another commit changed it during the compaction"
