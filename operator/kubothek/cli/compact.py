"""``kubothek compact``: fewer, larger files, and the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.maintenance import Compaction, CompactionPlan

_SHOWN = 50


class _Size(click.ParamType[int]):
    """Bytes, as manifests write them: 256Mi."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes."""
        from kubothek.resources.values import parse_quantity

        try:
            return parse_quantity(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@store_options
@click.argument("dataset")
@click.option("--where", metavar="FILTER", help='Which partitions, e.g. "month >= 3"; default: all.')
@click.option(
    "--target-size",
    type=_Size(),
    metavar="SIZE",
    help="Of the new files, e.g. 256Mi; default: as the layout says.",
)
@click.option("--min-files", default=2, show_default=True, help="Small files that a partition must have.")
@click.option("--sort-by", metavar="COLUMNS", help="Put rows in order across the files of a partition: a,b.")
@click.option("--z-order-by", metavar="COLUMNS", help="The same along a curve through all of these columns.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
def compact(
    choice: StoreChoice,
    dataset: str,
    where: str | None,
    target_size: int | None,
    min_files: int,
    sort_by: str | None,
    z_order_by: str | None,
    dry_run: bool,
) -> None:
    """Make fewer, larger files of the small ones of each partition of a dataset.

    Files below half of the target size are small; no other file is touched. With an order, it is files that are not in
    it yet. No row changes, which is proved before the new files are committed. Works beside all other writers:
    partitions that they change meanwhile are left alone.
    """
    from kubothek.lake.door import Lake
    from kubothek.lake.store import open_store

    with choice.config() as config:
        table = Lake(open_store(config)).dataset(dataset)
        wish: dict[str, Any] = {
            "where": where,
            "target_file_size": target_size,
            "min_files": min_files,
            "sort_by": _columns(sort_by),
            "z_order_by": _columns(z_order_by),
        }
        lines = _planned(dataset, table.plan_compaction(**wish)) if dry_run else _done(dataset, table.compact(**wish))
        for line in lines:
            click.echo(line)


def _columns(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _planned(dataset: str, plan: CompactionPlan) -> Iterator[str]:
    from kubothek.cli.columns import columns
    from kubothek.resources.values import render_bytes

    if not plan.bundles:
        yield f"{dataset}: nothing to do: the {plan.files.files:,} files are laid out well"
        return
    yield f"{dataset}: {plan.rewritten.files:,} of {plan.files.files:,} files would be rewritten"
    rows = [
        (bundle.group.path or "-", f"{len(bundle.files):,}", render_bytes(bundle.bytes), f"{bundle.rows:,}")
        for bundle in plan.bundles[:_SHOWN]
    ]
    yield from columns(("PARTITION", "FILES", "SIZE", "ROWS"), rows, right=("FILES", "SIZE", "ROWS"))
    if len(plan.bundles) > _SHOWN:
        yield f"… and {len(plan.bundles) - _SHOWN:,} more"


def _done(dataset: str, done: Compaction) -> Iterator[str]:
    from kubothek.resources.values import render_bytes

    if done.version is None and not done.given_way:
        yield f"{dataset}: nothing to do: its files are laid out well"
    elif done.version is not None:
        yield (
            f"{dataset}: version {done.version}: {done.removed.files:,} files ({render_bytes(done.removed.bytes)}) "
            f"became {done.added.files:,} ({render_bytes(done.added.bytes)}), with the same {done.added.rows:,} rows"
        )
    for path in done.given_way[:_SHOWN]:
        yield f"{dataset}: {path or 'the table'} was changed by another commit meanwhile and is left as it is"
