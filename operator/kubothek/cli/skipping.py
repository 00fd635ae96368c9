"""``kubothek skipping``: what files are described by, so that queries open only those that can hold a match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.indices_given import SkippingIndexOption
from kubothek.cli.options import store_options
from kubothek.cli.versions import AnyVersion
from kubothek.words import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.skipping.model import IndexDefinition

_OUTPUT = click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)


@click.group()
def skipping() -> None:
    """Keep skipping metadata: of each file of a dataset, or of files that Kubothek does not own.

    NAME is a dataset, or the name of the metadata of other files: of a SkippingIndex, or the one given to `build`.
    """


@skipping.command()
@store_options
@click.argument("name")
@click.option(
    "--index",
    "indices",
    type=SkippingIndexOption(),
    multiple=True,
    metavar="TYPE:COLUMN",
    help="MinMax, ValueList, BloomFilter, Prefix, Suffix, TokenList or GeometryBox; with parameters: "
    "BloomFilter:tailnum,ndv=5000,fpp=0.01. Repeatable; without it and --auto, those that there are.",
)
@click.option("--auto", is_flag=True, help="Choose (further) indices from the values and from your recent queries.")
@click.option("--footer-key", metavar="NAME", help="Encrypts footers and names of files; each index names its own key.")
@click.option("--plaintext-footer", is_flag=True, help="Leave footers readable without the key.")
@click.option("--rebuild", is_flag=True, help="Describe all files anew.")
@click.option("--location", metavar="PREFIX", help="Files of the store that Kubothek does not own: their directory.")
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
    """Describe the files by these indices, and no others.

    Of a dataset it is one commit that changes no row; its later commits describe their files as they write them. A
    Dataset manifest with spec.table.skipping says so as well, and wins. Works beside all other writers.
    """
    from kubothek.cli.skipping_work import Building
    from kubothek.lake.store import open_store

    if glob is not None and location is None:
        raise click.UsageError("--glob goes with --location")
    with choice.config() as config:
        work = Building(open_store(config), name, indices, auto, footer_key, plaintext_footer, rebuild)
        click.echo(work.of_dataset() if location is None else work.of_files(location.strip("/"), glob, form))


@skipping.command()
@store_options
@click.argument("name")
def refresh(choice: StoreChoice, name: str) -> None:
    """Describe the files that are not yet, and bring the rest up to date.

    Of a dataset these are files that another program added; after a copy of the store, the times that real Xskipper
    goes by are written anew. Of other files it is all that came, went or changed.
    """
    from kubothek.cli.skipping_work import refreshed
    from kubothek.lake.store import open_store

    with choice.config() as config:
        click.echo(refreshed(open_store(config), name))


@skipping.command()
@store_options
@click.argument("name")
@_OUTPUT
def describe(choice: StoreChoice, name: str, output: str) -> None:
    """Show the indices, how many files are described, and what your recent queries had of it."""
    import orjson

    from kubothek.cli.remembered import recent
    from kubothek.cli.skipping_work import description
    from kubothek.lake.store import open_store
    from kubothek.resources.values import percent, render_bytes

    with choice.config() as config:
        found = description(open_store(config), name)
        uses = [use for use in recent(config.url, found.name, name) if use.considered]
    considered, skipped = sum(use.considered for use in uses), sum(use.skipped for use in uses)
    if output == "json":
        queries = {"queries": len(uses), "considered": considered, "skipped": skipped}
        click.echo(orjson.dumps(found.to_json() | {"recent": queries}, option=orjson.OPT_INDENT_2))
        return
    if not found.indices:
        click.echo(f"{name} has no skipping metadata")
        return
    click.echo(
        f"{found.name}: {found.described:,} of {count(found.files, 'file')} described, "
        f"metadata {render_bytes(found.bytes)}"
    )
    click.echo(f"for Xskipper: EXPLICIT_LOCATION {found.location}")
    for line in _index_lines(found.indices):
        click.echo(line)
    if uses:
        share = percent(skipped, considered)
        saved = f"skipped {skipped:,} of {count(considered, 'file')} ({share})"
        click.echo(f"your last {count(len(uses), 'query')} with a filter {saved}")


@skipping.command()
@store_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(choice: StoreChoice, name: str, yes: bool) -> None:
    """Take the metadata away. The files stay, and queries open all of them."""
    from kubothek.cli.skipping_work import dropped
    from kubothek.lake.store import open_store

    if not yes:
        click.confirm(f"Drop the skipping metadata of {name}?", abort=True)
    with choice.config() as config:
        click.echo(dropped(open_store(config), name))


@skipping.command()
@store_options
@click.argument("name")
@click.argument("where", metavar="FILTER")
@click.option("--metadata", metavar="PREFIX", help="Use the metadata that real Xskipper wrote in this directory.")
@_OUTPUT
def explain(choice: StoreChoice, name: str, where: str, metadata: str | None, output: str) -> None:
    """Say which files a filter leaves, and why so few: `kubothek skipping explain flights "tailnum = 'N14228'"`.

    With --output json also the sums that Xskipper's getLatestQueryStats gives. With --metadata NAME is the directory of
    the files themselves.
    """
    import orjson

    from kubothek.cli.columns import columns
    from kubothek.cli.skipping_work import explained
    from kubothek.lake.store import open_store

    with choice.config() as config:
        found = explained(open_store(config), name, where, metadata)
    if output == "json":
        click.echo(orjson.dumps(found.to_json(), option=orjson.OPT_INDENT_2))
        return
    for line in columns(("STEP", "FILES LEFT"), [(s, f"{n:,}") for s, n in found.steps], right=("FILES LEFT",)):
        click.echo(line)
    for key in found.keys[:20]:
        click.echo(f"  {key}")
    if len(found.keys) > 20:
        click.echo(f"  … and {len(found.keys) - 20:,} more")


@skipping.command()
@store_options
@click.argument("sql", metavar="SELECT")
@click.option("--as-of", type=AnyVersion(), help="Read every dataset as it was then.")
@_OUTPUT
def stats(choice: StoreChoice, sql: str, as_of: int | datetime | str | None, output: str) -> None:
    """Say what planning saves a query: `kubothek skipping stats "SELECT * FROM flights WHERE tailnum = 'N14228'"`.

    With --output json in the form of Xskipper's getLatestQueryStats, and of getLatestQueryAggregatedStats for all
    datasets together. Nothing is read but metadata.
    """
    import orjson

    from kubothek.cli.columns import columns
    from kubothek.lake.door import Lake
    from kubothek.lake.skipping.planning.aggregate import aggregated
    from kubothek.lake.store import open_store
    from kubothek.resources.values import render_bytes

    with choice.config() as config:
        lake = Lake(open_store(config))
        found = lake.skipped(sql, as_of)
    total = aggregated(found.values())
    if output == "json":
        told = {name: each.to_xskipper() for name, each in found.items()}
        whole = None if total is None else total.to_xskipper()
        click.echo(orjson.dumps({"datasets": told, "aggregated": whole}, option=orjson.OPT_INDENT_2))
        return
    if total is None:
        click.echo("no dataset is read")
        return
    rows = [
        (
            name,
            f"{each.skipped_objects:,} of {each.total_objects:,}",
            f"{render_bytes(each.skipped_bytes)} of {render_bytes(each.total_bytes)}",
        )
        for name, each in [*found.items(), *([("all", total)] if len(found) > 1 else [])]
    ]
    for line in columns(("DATASET", "FILES LEFT OUT", "BYTES LEFT OUT"), rows):
        click.echo(line)


def _index_lines(indices: Sequence[IndexDefinition]) -> Iterator[str]:
    from kubothek.cli.columns import columns

    rows = [
        (each.type, " + ".join(each.columns), ", ".join(f"{k}={v}" for k, v in each.params.items()), each.key or "")
        for each in indices
    ]
    return columns(("TYPE", "COLUMN", "PARAMETERS", "KEY"), rows)
