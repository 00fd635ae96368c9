"""``kubothek iceberg``: metadata by which other engines read a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek import IcebergExport, Lake
    from kubothek.cli.stores import StoreChoice
    from kubothek.table.log.model.head import IcebergExports


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--omit-unsupported", is_flag=True, help="Leave out columns whose type Iceberg lacks.")
@click.option(
    "--after-commits",
    type=click.Choice(["Off", "Omit", "Refuse"], case_sensitive=False),
    help="Also set whether every commit exports: Omit leaves out columns whose type Iceberg lacks, Refuse exports no "
    "table with one.",
)
@click.option(
    "--no-version-hint",
    is_flag=True,
    help="With --after-commits: exports write no version-hint.text, which saves a request for each commit. Engines "
    "then find the table by a catalogue, or by the location of its metadata.",
)
@click.option("--rebuild", is_flag=True, help="Write all of the metadata again, not only what changed.")
@click.option(
    "--rest", metavar="URL", help="Also show how engines read it through this catalogue, of `kubothek serve`."
)
@output_option()
def iceberg(
    choice: StoreChoice,
    dataset: str,
    omit_unsupported: bool,
    after_commits: IcebergExports | None,
    no_version_hint: bool,
    rebuild: bool,
    rest: str | None,
    output: str,
) -> None:
    """Write Iceberg metadata of a dataset beside its data files, and show how other engines read it.

    Every version is a snapshot with its number, every tag a ref. Only what changed since the last export is written; no
    data file is copied or changed. Other engines may read the table, not write it. For a cube, all of its datasets are
    exported, and shown at the versions that belong to its current version.
    """
    from kubothek.catalog import Lake

    if no_version_hint and after_commits is None:
        raise click.UsageError("--no-version-hint goes with --after-commits: add it, or export with the hint")
    with choice.opened() as store:
        lake = Lake(store)
        members = _members(lake, dataset)
        found = {}
        for name in members or (dataset,):
            handle = lake.dataset(name)
            if after_commits is not None:
                handle.set_iceberg(after_commits, version_hint=not no_version_hint)
            omits = omit_unsupported or after_commits == "Omit"
            found[name] = handle.export_iceberg(omit_unsupported=omits, rebuild=rebuild)
        endpoint, is_bucket = store.config.endpoint, store.url.startswith("s3://")
    objects = [{"dataset": name, **_object(each, members.get(name))} for name, each in found.items()]
    lines = [line for name, each in found.items() for line in _lines(name, each, endpoint, members.get(name))]
    if rest is not None:
        lines += (line for name in found for line in _rest_lines(name, rest, is_bucket=is_bucket))
    show(output, {"cube": dataset, "datasets": objects} if members else objects[0], lines)


def _members(lake: Lake, name: str) -> dict[str, int]:
    """Return the datasets of a cube, with their versions in its current version; none if the name is a dataset's."""
    from kubothek.errors import DatasetNotFound

    try:
        lake.dataset(name)
    except DatasetNotFound:
        if name not in lake.cubes():
            raise
        return {member.uuid: member.snapshot.version for member in lake.cube(name).snapshot().members.values()}
    return {}


def _object(exported: IcebergExport, version: int | None) -> dict[str, object]:
    return {
        "version": version or exported.version,
        "metadataLocation": exported.metadata_location,
        "tableLocation": exported.table_location,
        "snapshots": exported.snapshots,
        "manifestsWritten": exported.manifests_written,
    }


def _lines(dataset: str, exported: IcebergExport, endpoint: str | None, version: int | None) -> Iterator[str]:
    """Yield how engines read a dataset: its current version, or that of a cube's dataset."""
    metadata = exported.metadata_location
    table = exported.table_location if exported.version_hint else metadata
    properties = f", {{'s3.endpoint': {endpoint!r}}}" if endpoint else ""
    storage = f", storage_options={{'s3.endpoint': {endpoint!r}}}" if endpoint else ""
    scan, polars, duckdb, spark = (
        (
            f"snapshot_id={version}",
            f", snapshot_id={version}",
            f", snapshot_from_id => {version}",
            f".option('versionAsOf', {version})",
        )
        if version
        else ("", "", "", "")
    )
    yield (
        f"{dataset}: version {version or exported.version}; {count(exported.snapshots, 'snapshot')}, "
        f"{count(exported.manifests_written, 'manifest')} written"
    )
    yield f"metadata: {metadata}"
    yield ""
    yield f"pyiceberg  StaticTable.from_metadata({table!r}{properties}).scan({scan})"
    yield f"polars     pl.scan_iceberg({metadata!r}{polars}{storage})"
    quoted = table.replace("'", "''")
    yield f"DuckDB     SELECT * FROM iceberg_scan('{quoted}'{duckdb})"  # noqa: S608 - shown, not run
    yield f"Spark      spark.read.format('iceberg'){spark}.load({table!r})"


def _rest_lines(dataset: str, url: str, *, is_bucket: bool) -> Iterator[str]:
    table, spark = f'kubothek.default."{dataset}"', "spark.sql.catalog.kubothek"
    load = f"load_catalog('kubothek', uri={url!r}, token=TOKEN).load_table(('default', {dataset!r}))"
    # DuckDB otherwise asks for credentials, which the catalogue does not give. It reads the bucket with a secret.
    delegation = ", ACCESS_DELEGATION_MODE 'none'" if is_bucket else ""
    yield ""
    yield f"pyiceberg  {load}.scan()"
    yield f"polars     pl.scan_iceberg({load})"
    yield f"DuckDB     ATTACH '' AS kubothek (TYPE iceberg, ENDPOINT '{url}', TOKEN '…'{delegation}); FROM {table}"
    yield f"Trino      connector.name=iceberg iceberg.catalog.type=rest iceberg.rest-catalog.uri={url}"
    yield "           iceberg.rest-catalog.security=OAUTH2 iceberg.rest-catalog.oauth2.token=…"
    yield f"Spark      --conf {spark}=org.apache.iceberg.spark.SparkCatalog --conf {spark}.type=rest"
    yield f"           --conf {spark}.uri={url} --conf {spark}.token=…"
