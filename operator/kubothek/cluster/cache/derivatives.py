"""Which ledgers may decide differently because another one has moved: see :mod:`kubothek.controller.derivation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubothek.cluster.cache.objects import Cache, Object
from kubothek.cluster.queue import Key
from kubothek.controller.dependency_graph import DependencyGraph


def progress(dataset: Object | None) -> tuple[object, ...]:
    """How far a ledger is, and what it does: its chain, and its run if it is a derivative."""
    status = (dataset or {}).get("status") or {}
    run = status.get("transforming") or {}
    return (status.get("ledger") or {}).get("head"), *(run.get(name) for name in ("cause", "done", "problem"))


def follow(dependency_graph: DependencyGraph, namespace: str, name: str, dataset: Object | None) -> None:
    """Keep the index true to a Dataset that changed; None: it is gone."""
    if dataset is None:
        dependency_graph.remove(namespace, name)
    else:
        dependency_graph.put(namespace, name, _inputs(dataset), _identity(dataset))


def neighbours(
    dependency_graph: DependencyGraph, datasets: Cache[Any], dataset: Object, *, appeared: bool
) -> Iterator[Key]:
    """The ledgers around a Dataset: all that is derived from it may wait for it.

    ``appeared``  whether it came, went or has another manifest: its inputs tell who reads them
    """
    namespace, name = dataset["metadata"]["namespace"], dataset["metadata"]["name"]
    found = dependency_graph.descendants(namespace, name, _identity(dataset))
    if appeared:
        named = (dependency_graph.holder(namespace, each) or each for each in _inputs(dataset))
        found.update(each for each in named if datasets.get(namespace, each) is not None)
    yield from (Key("Dataset", namespace, each) for each in sorted(found - {name}))


def _identity(dataset: Object) -> str | None:
    return ((dataset.get("status") or {}).get("ledger") or {}).get("id")


def _inputs(dataset: Object) -> Iterator[str]:
    """What a derivative is derived from, by name or identity; of a manifest that is wrong, what can be read of it."""
    events = ((dataset.get("spec") or {}).get("ledger") or {}).get("metadata")
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and str(event.get("kind", "")).lower() == "settransform":
            inputs = event.get("inputs")
            named = [each for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
            yield from (str(each["datasetRef"]) for each in named if "datasetRef" in each)
