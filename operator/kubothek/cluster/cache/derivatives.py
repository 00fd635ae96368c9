"""The ledgers to reconcile because another one has advanced: see :mod:`kubothek.controller.derivation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubothek.cluster.cache.objects import Cache, Object
from kubothek.cluster.queue import Key
from kubothek.controller.dependency_graph import DependencyGraph


def progress(dataset: Object | None) -> tuple[object, ...]:
    """Return the head of a ledger's chain, and the state of its run if it is a derivative."""
    status = (dataset or {}).get("status") or {}
    run = status.get("transforming") or {}
    return (status.get("ledger") or {}).get("head"), *(run.get(name) for name in ("cause", "done", "problem"))


def follow(dependency_graph: DependencyGraph, namespace: str, name: str, dataset: Object | None) -> None:
    """Update the index for a Dataset that changed; None: it is gone."""
    if dataset is None:
        dependency_graph.remove(namespace, name)
    else:
        dependency_graph.put(namespace, name, _inputs(dataset), _identity(dataset))


def neighbours(
    dependency_graph: DependencyGraph, datasets: Cache[Any], dataset: Object, *, appeared: bool
) -> Iterator[Key]:
    """Yield the ledgers derived from a Dataset, as they may wait for it.

    ``appeared``  whether it was created, deleted or edited: then yield its inputs too, as their status lists consumers
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
    """Yield a derivative's inputs, by name or identity. Of an invalid manifest, yield what can be read."""
    events = ((dataset.get("spec") or {}).get("ledger") or {}).get("metadata")
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and str(event.get("kind", "")).lower() == "settransform":
            inputs = event.get("inputs")
            named = [each for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []
            yield from (str(each["datasetRef"]) for each in named if "datasetRef" in each)
