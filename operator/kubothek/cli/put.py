"""``kubothek put``: upload of source files into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.storage import Store

_BLOCK = 1 << 20


@click.command()
@store_options
@click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, readable=True),
)
@click.option("--to", "destination", required=True, metavar="DIR/", help="A directory of the store, e.g. sources/.")
def put(choice: StoreChoice, files: tuple[Path, ...], destination: str) -> None:
    """Upload files into a store, for Commits to read as `source.paths`.

    Files that the store already has with the same content are skipped.
    """
    from kubothek.api.values import render_bytes

    targets = _targets(files, destination)
    with choice.opened(create=True) as store:
        for key, file in targets.items():
            with file.open("rb") as source:
                if _same(store, key, source):
                    click.echo(f"unchanged  {key}")
                    continue
                source.seek(0)
                store.upload(key, source)
            click.echo(f"uploaded   {key}  ({render_bytes(file.stat().st_size)})")


def _targets(files: tuple[Path, ...], destination: str) -> dict[str, Path]:
    """Return the file of each key. Sources cannot have Kubothek's own keys, and no two files can share a key."""
    prefix = destination.strip("/")
    if not destination.endswith("/") or not prefix:
        raise click.UsageError(f"{destination!r} is not a directory of the store: end it with '/'")
    targets: dict[str, Path] = {}
    for file in files:
        key = f"{prefix}/{file.name}"
        if key.startswith(".") or key.endswith(".by-dataset-metadata.json"):
            raise click.UsageError(f"{key!r} is a key that Kubothek manages: choose another directory or name")
        if key in targets:
            raise click.UsageError(f"{targets[key]} and {file} would both become {key!r}: upload them apart")
        targets[key] = file
    return targets


def _same(store: Store, key: str, source: BinaryIO) -> bool:
    """Return whether the object has exactly the content of the file."""
    from kubothek.errors import ObjectNotFound

    try:
        size = store.stat(key).size
        if size != source.seek(0, 2):
            return False
        source.seek(0)
        with store.open(key) as there:
            while block := source.read(_BLOCK):
                if there.read(len(block)) != block:
                    return False
    except ObjectNotFound:
        return False
    return True
