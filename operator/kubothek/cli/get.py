"""``kubothek get``: what there is, a line each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import store_options

if TYPE_CHECKING:
    from kubothek.cli.stores import StoreChoice
    from kubothek.lake.commits import DatasetState
    from kubothek.lake.store import StoreConfig

_KINDS = {
    alias: kind
    for kind, aliases in {
        "Cube": ("cube", "cubes", "kcube"),
        "Dataset": ("dataset", "datasets", "kds"),
        "Commit": ("commit", "commits", "kcm"),
        "Query": ("query", "queries", "kq"),
        "Compaction": ("compaction", "compactions", "kcp"),
        "Verification": ("verification", "verifications", "kver"),
        "GCPolicy": ("gcpolicy", "gcpolicies", "kgc"),
        "SkippingIndex": ("skippingindex", "skippingindices", "ksi"),
        "Repository": ("repository", "repositories", "krepo"),
        "Sync": ("sync", "syncs", "ksync"),
        "ObjectStore": ("objectstore", "objectstores", "kos"),
    }.items()
    for alias in aliases
}
_AT_ONCE = 16
"""How many heads are read at the same time."""


@click.command()
@store_options
@click.argument("what", nargs=-1, metavar="[KIND] [NAME]...")
def get(choice: StoreChoice, what: tuple[str, ...]) -> None:
    """List datasets, or resources of a kind.

    Without KIND, or with `datasets`: the datasets in the store, as their heads say, whoever wrote them; with `cubes`
    the cubes in it. With `commits`, `queries` or `objectstores`: what `kubothek run` on this machine knows; a cluster's
    are listed by kubectl.
    """
    kind = _KINDS.get(what[0].lower()) if what else None
    names = what[1:] if kind is not None else what
    with choice.config() as config:
        if kind in (None, "Dataset"):
            _get_datasets(config, names)
        elif kind == "Cube":
            _get_cubes(config, names)
        else:
            _get_resources(config, kind or "", names)


def _get_datasets(config: StoreConfig, names: tuple[str, ...]) -> None:
    from kubothek.cli.columns import columns, shown_time
    from kubothek.lake.commits import DatasetLog
    from kubothek.lake.door import Lake
    from kubothek.lake.errors import DatasetNotFound
    from kubothek.lake.store import open_store
    from kubothek.resources.values import render_bytes

    store = open_store(config)

    def look(name: str) -> DatasetState:
        return DatasetLog(store, name).inspect()

    def line(state: DatasetState) -> tuple[str, ...]:
        sizes = ("-", "-", "-")
        if state.totals is not None and state.version is not None:
            sizes = (f"{state.totals.rows:,}", f"{state.totals.files:,}", render_bytes(state.totals.bytes))
        version = "-" if state.version is None else str(state.version)
        remark = "deleted" if state.deleted else state.problem or ""
        return state.uuid, version, *sizes, shown_time(state.time), state.owner or "-", remark

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        states = list(pool.map(look, names or Lake(store).datasets()))
    absent = [state.uuid for state in states if state.version is None and state.problem is None]
    if names and absent:
        raise DatasetNotFound(f"there is no dataset {absent[0]!r} in {config.url}")
    if not states:
        click.echo(f"no datasets in {config.url}")
        return
    headers = ("NAME", "VERSION", "ROWS", "FILES", "SIZE", "LAST COMMIT", "OWNER", "")
    for text in columns(headers, [line(state) for state in states], right=("VERSION", "ROWS", "FILES", "SIZE")):
        click.echo(text)


def _get_cubes(config: StoreConfig, names: tuple[str, ...]) -> None:
    from kubothek.cli.columns import columns, shown_time
    from kubothek.lake.door import Lake
    from kubothek.lake.errors import LakeError
    from kubothek.lake.store import open_store
    from kubothek.resources.values import render_bytes

    lake = Lake(open_store(config))

    def line(name: str) -> tuple[str, ...]:
        try:
            cube = lake.cube(name)
            snapshot, sizes = cube.snapshot(), cube.stats()
        except LakeError as error:
            if names:
                raise
            return name, "-", "-", "-", "-", "-", f"{error.reason}: {error}"
        cells = sizes[snapshot.spec.seed_dataset].rows
        size = render_bytes(sum(each.bytes for each in sizes.values()))
        version = str(snapshot.version or "-")
        return name, version, f"{cells:,}", ", ".join(snapshot.members), size, shown_time(snapshot.time), ""

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(line, names or lake.cubes()))
    if not rows:
        click.echo(f"no cubes in {config.url}")
        return
    headers = ("NAME", "VERSION", "CELLS", "DATASETS", "SIZE", "LAST COMMIT", "")
    for text in columns(headers, rows, right=("VERSION", "CELLS", "SIZE")):
        click.echo(text)


def _get_resources(config: StoreConfig, kind: str, names: tuple[str, ...]) -> None:
    from kubothek.cli.columns import columns
    from kubothek.resources.kinds import KINDS
    from kubothek.runtime.local.state import State
    from kubothek.runtime.local.summary import summarise

    state = State.of(config.url, config.endpoint, Path.cwd())
    keys = sorted(key for key in state.known() if key.kind == kind and (not names or key.name in names))
    found = [resource for key in keys if (resource := state.load(KINDS[kind], key)) is not None]
    if not found:
        click.echo(f"`kubothek run` knows no such {kind} on this machine for {config.url}")
        return
    summaries = [summarise(resource) for resource in found]
    rows = [(s.key.namespace, s.key.name, str(s.phase), s.reason, s.message.partition("\n")[0]) for s in summaries]
    for text in columns(("NAMESPACE", "NAME", "STATE", "REASON", "MESSAGE"), rows):
        click.echo(text)
