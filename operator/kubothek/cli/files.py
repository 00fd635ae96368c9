"""``kubothek files``: the data files of a version, for engines that read Parquet."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from kubothek.cli.complete import complete_dataset
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show
from kubothek.cli.versions import AnyVersion

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice


@click.command()
@store_options
@click.argument("dataset", shell_complete=complete_dataset)
@click.option("--as-of", type=AnyVersion(), help="The files of that version; default: the present one.")
@output_option()
def files(choice: StoreChoice, dataset: str, as_of: int | datetime | str | None, output: str) -> None:
    """Print the data files of a dataset, one per line: paths of a file store, URLs of a bucket.

    Give this list to engines that read Parquet. A glob over the directory also matches files of older versions and of
    commits in progress, and returns wrong rows.
    """
    from kubothek.table.log import DatasetLog
    from kubothek.table.scan.plan import plan

    with choice.opened() as store:
        snapshot = DatasetLog(store, dataset).snapshot(as_of)
        found = [
            {"file": _address(store.url, each.key), "partition": each.label.rpartition("/")[0]}
            for each in plan(store, snapshot).files
        ]
    show(output, found, (each["file"] for each in found))


def _address(url: str, key: str) -> str:
    """Return what engines open: a path, or a URL with an unencoded key."""
    parts = urlsplit(url)
    base = unquote(parts.path) if parts.scheme == "file" else url
    return f"{base.rstrip('/')}/{key}"
