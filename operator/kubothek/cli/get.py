"""``kubothek get``: lists of datasets, cubes and resources."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.complete import complete_get
from kubothek.cli.options import store_options
from kubothek.cli.output import output_option, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kubothek.cli.stores import StoreChoice
    from kubothek.storage import StoreConfig
    from kubothek.table.log import DatasetState

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
"""Concurrent reads of heads."""


@click.command()
@store_options
@click.argument("what", nargs=-1, metavar="[KIND] [NAME]...", shell_complete=complete_get)
@output_option()
def get(choice: StoreChoice, what: tuple[str, ...], output: str) -> None:
    """List datasets, or resources of a kind.

    Without KIND, or with `datasets`: all datasets in the store, whichever program wrote them; with `cubes` the cubes.
    With `commits`, `queries`, `objectstores` and other kinds: the resources of `kubothek run` on this machine. kubectl
    lists those of a cluster.
    """
    kind = _KINDS.get(what[0].lower()) if what else None
    names = what[1:] if kind is not None else what
    with choice.config() as config:
        if kind in (None, "Dataset"):
            _get_datasets(config, names, output)
        elif kind == "Cube":
            _get_cubes(config, names, output)
        else:
            _get_resources(config, kind or "", names, output)


def _get_datasets(config: StoreConfig, names: tuple[str, ...], output: str) -> None:
    from kubothek.catalog import Lake
    from kubothek.errors import DatasetNotFound
    from kubothek.storage import open_store
    from kubothek.table.log import DatasetLog

    store = open_store(config)

    def inspect(name: str) -> DatasetState:
        return DatasetLog(store, name).inspect()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        states = list(pool.map(inspect, names or Lake(store).datasets()))
    absent = [state.uuid for state in states if state.version is None and state.problem is None]
    if names and absent:
        raise DatasetNotFound(f"there is no dataset {absent[0]!r} in {config.url}")
    found = [_dataset(state) for state in states if state.uuid not in absent]
    _show(output, found, _DATASET, f"no datasets in {config.url}")


def _dataset(state: DatasetState) -> dict[str, Any]:
    totals = state.totals if state.version is not None else None
    return {
        "name": state.uuid,
        "version": state.version,
        "rows": None if totals is None else totals.rows,
        "files": None if totals is None else totals.files,
        "bytes": None if totals is None else totals.bytes,
        "lastCommit": state.time,
        "owner": state.owner,
        "remark": "deleted" if state.deleted else state.problem,
    }


def _get_cubes(config: StoreConfig, names: tuple[str, ...], output: str) -> None:
    from kubothek.catalog import Lake
    from kubothek.errors import LakeError
    from kubothek.storage import open_store

    lake = Lake(open_store(config))

    def inspect(name: str) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(("name", "version", "cells", "datasets", "bytes", "lastCommit", "remark"))
        found["name"] = name
        try:
            cube = lake.cube(name)
            snapshot, sizes = cube.snapshot(), cube.stats()
        except LakeError as error:
            if names:
                raise
            return found | {"remark": f"{error.reason}: {error}"}
        return found | {
            "version": snapshot.version or None,
            "cells": sizes[snapshot.spec.seed_dataset].rows,
            "datasets": list(snapshot.members),
            "bytes": sum(each.bytes for each in sizes.values()),
            "lastCommit": snapshot.time,
        }

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(inspect, names or lake.cubes()))
    _show(output, found, _CUBE, f"no cubes in {config.url}")


def _get_resources(config: StoreConfig, kind: str, names: tuple[str, ...], output: str) -> None:
    from kubothek.api.kinds import KINDS
    from kubothek.local.state import State
    from kubothek.local.summary import Phase, summarise

    state = State.of(config.url, config.endpoint, Path.cwd())
    keys = sorted(key for key in state.known() if key.kind == kind and (not names or key.name in names))
    resources = [resource for key in keys if (resource := state.load(KINDS[kind], key)) is not None]
    is_running = state.is_running()
    found = [
        {
            "namespace": summary.key.namespace,
            "name": summary.key.name,
            "state": "Interrupted" if summary.phase is Phase.RUNNING and not is_running else str(summary.phase),
            "reason": summary.reason,
            "message": summary.message,
        }
        for summary in map(summarise, resources)
    ]
    _show(output, found, _RESOURCE, f"no {kind} of `kubothek run` on this machine for {config.url}")


_DATASET = {"VERSION": "version", "ROWS": "rows", "FILES": "files", "SIZE": "bytes", "AGE": "lastCommit"}
_CUBE = {"VERSION": "version", "CELLS": "cells", "SIZE": "bytes", "AGE": "lastCommit", "DATASETS": "datasets"}
_RESOURCE = {"STATE": "state", "REASON": "reason", "MESSAGE": "message"}
"""Columns of tables, in order, and their fields."""
_RIGHT = ("VERSION", "ROWS", "CELLS", "FILES", "SIZE", "AGE")


def _show(output: str, found: Sequence[Mapping[str, Any]], shown: Mapping[str, str], nothing: str) -> None:
    if found or output not in ("table", "wide"):
        show(output, found, _lines(found, shown, wide=output == "wide"))
    else:
        click.echo(nothing)


def _lines(found: Sequence[Mapping[str, Any]], shown: Mapping[str, str], *, wide: bool) -> Iterator[str]:
    from kubothek.cli.columns import listed

    names = {"NAME": "name", **shown}
    if "namespace" in found[0] and (wide or {each["namespace"] for each in found} != {"default"}):
        names = {"NAMESPACE": "namespace", **names}
    if wide and "lastCommit" in found[0]:
        names |= {"LAST COMMIT": "lastCommit", **({"OWNER": "owner"} if "owner" in found[0] else {})}
    if any(each.get("remark") for each in found):
        names[""] = "remark"
    rows = [[_text(header, each[field]) for header, field in names.items()] for each in found]
    shorten = ("NAMESPACE", "NAME", "REASON", "MESSAGE", "DATASETS")
    yield from listed(list(names), rows, right=_RIGHT, shorten=shorten, wide=wide)


def _text(header: str, value: Any) -> str:
    from kubothek.api.values import render_bytes
    from kubothek.cli.columns import age, shown_time

    if header == "AGE":
        return age(value)
    if header == "LAST COMMIT":
        return shown_time(value)
    if value is None or value == "":
        return "" if header == "" else "-"
    if header == "SIZE":
        return render_bytes(value)
    if isinstance(value, list):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int) else str(value).partition("\n")[0]
