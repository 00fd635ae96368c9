"""``kubothek skipping``: metadata with which queries open only files that can match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options, writing_options
from kubothek.cli.output import output_option, show
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kubothek.cli.skipping_work import Description, Explained
    from kubothek.cli.stores import StoreChoice
    from kubothek.table.skipping.model import IndexDefinition


# ``--index``: a skipping index on the command line, ``BloomFilter:tailnum,ndv=5000``.

_PARAMS = ("ndv", "fpp", "length")


class SkippingIndexOption(click.ParamType["IndexDefinition"]):
    """``TYPE:COLUMN``, for a GeometryBox of two columns ``TYPE:X+Y``, then ``,name=value`` for its parameters."""

    name = "index"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> IndexDefinition:
        """Return the definition."""
        from kubothek.errors import SkippingInvalid
        from kubothek.table.skipping.indexes import index_type
        from kubothek.table.skipping.model import IndexDefinition

        kind, found, rest = str(value).partition(":")
        columns, *pairs = rest.split(",")
        given = dict(pair.partition("=")[::2] for pair in pairs)
        unknown = [name for name, text in given.items() if name not in (*_PARAMS, "key") or not text]
        if not found or not columns:
            self.fail(f"{value!r}: write TYPE:COLUMN, such as MinMax:delay", param, ctx)
        if unknown:
            self.fail(
                f"{value!r}: unknown parameter {unknown[0]!r}; known: {', '.join((*_PARAMS, 'key'))}",
                param,
                ctx,
            )
        try:
            name = index_type(kind).name
        except SkippingInvalid as error:
            self.fail(str(error), param, ctx)
        params = {name: text for name, text in given.items() if name != "key"}
        return IndexDefinition(name, tuple(columns.split("+")), params, given.get("key"))


@click.group()
def skipping() -> None:
    """Manage skipping metadata of a dataset, or of files that Kubothek does not own.

    NAME is a dataset, or a name for the metadata of other files: of a SkippingIndex, or the one given to `build`.
    """


@skipping.command()
@writing_options
@click.argument("name", shell_complete=complete_dataset)
@click.option(
    "--index",
    "indices",
    type=SkippingIndexOption(),
    multiple=True,
    metavar="TYPE:COLUMN",
    help="MinMax, ValueList, BloomFilter, Prefix, Suffix, TokenList or GeometryBox; with parameters: "
    "BloomFilter:tailnum,ndv=5000,fpp=0.01. Repeatable; without it and --auto, those that there are.",
)
@click.option("--auto", is_flag=True, help="Choose (further) indices by values and your recent queries.")
@click.option("--footer-key", metavar="NAME", help="Encrypts footers and names of files; each index names its own key.")
@click.option("--plaintext-footer", is_flag=True, help="Keep footers readable without the key.")
@click.option("--rebuild", is_flag=True, help="Rebuild the metadata of all files.")
@click.option("--location", metavar="PREFIX", help="Directory of files that Kubothek does not own.")
@click.option("--glob", metavar="PATTERN", help="Which files below --location.")
@click.option(
    "--format", "form", type=click.Choice(["Parquet", "ORC", "CSV", "JSONLines"]), default="Parquet", show_default=True
)
def build(
    choice: StoreChoice,
    name: str,
    indices: tuple[IndexDefinition, ...],
    auto: bool,
    footer_key: str | None,
    plaintext_footer: bool,
    rebuild: bool,
    location: str | None,
    glob: str | None,
    form: Any,
) -> None:
    """Build metadata with exactly these indices.

    For a dataset this is one metadata-only commit; later commits write the metadata of their files. spec.table.skipping
    of a Dataset manifest takes precedence. Safe to run beside other writers.
    """
    from kubothek.cli.skipping_work import Building

    if glob is not None and location is None:
        raise click.UsageError("--glob requires --location")
    with choice.opened() as store:
        author = choice.lake(store).author
        work = Building(store, name, indices, auto, footer_key, plaintext_footer, rebuild, author)
        click.echo(work.of_dataset() if location is None else work.of_files(location.strip("/"), glob, form))


@skipping.command()
@writing_options
@click.argument("name", shell_complete=complete_dataset)
def refresh(choice: StoreChoice, name: str) -> None:
    """Add metadata of new files, and update the rest.

    For a dataset: files that another program added. After a copy of the store it also updates the modification times
    that Xskipper compares. For other files: all that were added, removed or changed.
    """
    from kubothek.cli.skipping_work import refreshed

    with choice.opened() as store:
        click.echo(refreshed(store, name, choice.lake(store).author))


@skipping.command()
@store_options
@click.argument("name", shell_complete=complete_dataset)
@output_option()
def describe(choice: StoreChoice, name: str, output: str) -> None:
    """Show the indices, how many files have metadata, and what your recent queries saved by it."""
    from kubothek.cli.remembered import recent
    from kubothek.cli.skipping_work import description

    with choice.opened() as store:
        found = description(store, name)
        uses = [use for use in recent(store.url, found.name, name) if use.considered]
    considered, skipped = sum(use.considered for use in uses), sum(use.skipped for use in uses)
    queries = {"queries": len(uses), "considered": considered, "skipped": skipped}
    show(output, found.to_json() | {"recent": queries}, _described(name, found, len(uses), considered, skipped))


def _described(name: str, found: Description, uses: int, considered: int, skipped: int) -> Iterator[str]:
    from kubothek.api.values import percent, render_bytes

    if not found.indices:
        yield f"{name} has no skipping metadata"
        return
    size = f"metadata {render_bytes(found.bytes)}"
    yield f"{found.name}: {found.described:,} of {count(found.files, 'file')} described, {size}"
    yield f"for Xskipper: EXPLICIT_LOCATION {found.location}"
    yield from _index_lines(found.indices)
    if uses:
        saved = f"skipped {skipped:,} of {count(considered, 'file')} ({percent(skipped, considered)})"
        yield f"your last {count(uses, 'query')} with a filter {saved}"


@skipping.command()
@writing_options
@click.argument("name", shell_complete=complete_dataset)
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(choice: StoreChoice, name: str, yes: bool) -> None:
    """Delete the metadata. The files stay; queries then open all of them."""
    from kubothek.cli.skipping_work import dropped

    if not yes:
        click.confirm(f"Drop the skipping metadata of {name}?", abort=True)
    with choice.opened() as store:
        click.echo(dropped(store, name, choice.lake(store).author))


@skipping.command()
@store_options
@click.argument("name", shell_complete=complete_dataset)
@click.argument("where", metavar="FILTER")
@click.option("--metadata", metavar="PREFIX", help="Use the metadata that Xskipper wrote in this directory.")
@output_option()
def explain(choice: StoreChoice, name: str, where: str, metadata: str | None, output: str) -> None:
    """Show which files a filter leaves, step by step: `kubothek skipping explain flights "tailnum = 'N14228'"`.

    JSON and YAML add the sums of Xskipper's getLatestQueryStats. With --metadata, NAME is the directory of the files.
    """
    from kubothek.cli.skipping_work import explained

    with choice.opened() as store:
        found = explained(store, name, where, metadata)
    show(output, found.to_json(), _explained(found, shown=None if output == "wide" else 20))


def _explained(found: Explained, shown: int | None) -> Iterator[str]:
    from kubothek.cli.columns import columns

    yield from columns(("STEP", "FILES LEFT"), [(s, f"{n:,}") for s, n in found.steps], right=("FILES LEFT",))
    yield from (f"  {key}" for key in found.keys[:shown])
    if shown is not None and len(found.keys) > shown:
        yield f"  … and {len(found.keys) - shown:,} more: -o wide shows all"


@skipping.command()
@store_options
@click.argument("sql", metavar="SELECT")
@click.option("--as-of", type=AnyVersion(), help="Read every dataset as it was then.")
@output_option()
def stats(choice: StoreChoice, sql: str, as_of: int | datetime | str | None, output: str) -> None:
    """Show what skipping saves a query: `kubothek skipping stats "SELECT * FROM flights WHERE tailnum = 'N14228'"`.

    JSON and YAML have the form of Xskipper's getLatestQueryStats, and of getLatestQueryAggregatedStats for all datasets
    together. Reads metadata only.
    """
    from kubothek.catalog import Lake
    from kubothek.table.skipping.prune.aggregate import aggregated

    with choice.opened() as store:
        lake = Lake(store)
        found = lake.skipped(sql, as_of)
    total = aggregated(found.values())
    aggregate = None if total is None else total.to_xskipper()
    document = {"datasets": {name: each.to_xskipper() for name, each in found.items()}, "aggregated": aggregate}
    saved = [*found.items(), *([("all", total)] if total is not None and len(found) > 1 else [])]
    show(output, document, _saved(saved, wide=output == "wide"))


def _saved(found: Sequence[tuple[str, Any]], *, wide: bool) -> Iterator[str]:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import listed

    if not found:
        yield "no dataset is read"
        return
    rows = [
        (
            name,
            f"{each.skipped_objects:,} of {each.total_objects:,}",
            f"{render_bytes(each.skipped_bytes)} of {render_bytes(each.total_bytes)}",
        )
        for name, each in found
    ]
    yield from listed(("DATASET", "FILES SKIPPED", "BYTES SKIPPED"), rows, shorten=("DATASET",), wide=wide)


def _index_lines(indices: Sequence[IndexDefinition]) -> Iterator[str]:
    from kubothek.cli.columns import columns

    rows = [
        (each.type, " + ".join(each.columns), ", ".join(f"{k}={v}" for k, v in each.params.items()), each.key or "")
        for each in indices
    ]
    return columns(("TYPE", "COLUMN", "PARAMETERS", "KEY"), rows)
