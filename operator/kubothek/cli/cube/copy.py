"""``kubothek cube copy``: a copy of a cube in another store, or under another name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.complete import complete_cube
from kubothek.cli.cube.common import choice_options, chosen, commit_message, open_cube
from kubothek.cli.options import store_options
from kubothek.cli.parameters import Pair, dry_run_option, id_option, pairs

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.storage import Store


@click.command()
@store_options
@click.argument("prefix", metavar="CUBE", shell_complete=complete_cube)
@click.option("--tgt-store", metavar="URL", help="The store to copy to, reached as this one; default: this one.")
@click.option("--tgt-prefix", metavar="PREFIX", help="The prefix of the copy; default: the same.")
@click.option("--rename", type=Pair(), metavar="OLD=NEW", multiple=True, help="Another name for a dataset; repeatable.")
@click.option("--overwrite/--no-overwrite", default=False, help="Replace existing datasets.")
@click.option(
    "--cleanup/--no-cleanup",
    default=True,
    help="With --overwrite: first delete existing datasets that are not copied.",
)
@choice_options
@dry_run_option
@id_option
def copy(
    choice: StoreChoice,
    prefix: str,
    tgt_store: str | None,
    tgt_prefix: str | None,
    rename: tuple[tuple[str, str], ...],
    overwrite: bool,
    cleanup: bool,
    include: str | None,
    exclude: str | None,
    dry_run: bool,
    commit_id: str | None,
) -> None:
    """Copy the current version of a cube to another store, or under another name, in one commit of the copy."""
    from kubothek.errors import InputError
    from kubothek.storage import open_store
    from kubothek.storage.urls import create_directory
    from kubothek.urls import absolute_url

    if tgt_store is None and tgt_prefix in (None, prefix):
        raise click.UsageError("a copy needs a place of its own: give --tgt-store, --tgt-prefix or both")
    with choice.config() as config:
        cube = open_cube(open_store(config), prefix)
        names, renamed = chosen(cube.snapshot().members, include, exclude), pairs(rename, "--rename")
        strange = [name for name in renamed if name not in names]
        if strange:
            raise click.UsageError(f"--rename: {strange[0]!r} is not copied; these are: {', '.join(names)}")
        there = config if tgt_store is None else replace(config, url=absolute_url(tgt_store, Path.cwd()))
        named = {name: renamed.get(name, name) for name in names}
        target = tgt_prefix or prefix
        if dry_run:
            click.echo(f"would be copied to {target!r} in {there.url}: {', '.join(named.values())}")
            return
        create_directory(there)
        store = open_store(there)
        if not store.probe().conditional_writes:
            raise InputError(f"{store.url} has no conditional writes, which a copy requires: copy to another store")
        if overwrite and cleanup:
            _make_room(store, target, named.values())
        done = cube.copy(store, prefix=target, datasets=named, overwrite=overwrite, id=commit_id)
    click.echo(commit_message(target, done))


def _make_room(store: Store, prefix: str, names: Collection[str]) -> None:
    """Delete datasets of the existing cube that the copy does not have."""
    from kubothek.errors import DatasetNotFound

    cube = open_cube(store, prefix)
    try:
        rest = [name for name in cube.snapshot().members if name not in names]
    except DatasetNotFound:
        return
    if rest:
        cube.delete(rest)
        click.echo(f"{prefix}: {', '.join(rest)} deleted, as the cube that is copied has none")
