"""Which ledgers may decide differently because another one has moved: see :mod:`kubothek.reconcile.derivation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubothek.runtime.kubernetes.cache import Object
from kubothek.runtime.kubernetes.queue import Key

if TYPE_CHECKING:
    from kubothek.runtime.kubernetes.state import ClusterState


def progress(dataset: Object | None) -> tuple[object, ...]:
    """How far a ledger is, and what it does: its chain, and its run if it is a derivative."""
    status = (dataset or {}).get("status") or {}
    run = status.get("transforming") or {}
    return (status.get("ledger") or {}).get("head"), *(run.get(name) for name in ("cause", "done", "problem"))


def neighbours(state: ClusterState, dataset: Object) -> Iterator[Key]:
    """The ledgers around a Dataset: its inputs tell who reads them, and all that is derived from it may wait for it."""
    namespace = dataset["metadata"]["namespace"]
    names = {other["metadata"]["name"]: other for other in state.resources["Dataset"].objects(namespace)}
    ids = {identity: name for name, other in names.items() if (identity := _identity(other)) is not None}
    readers: dict[str, list[str]] = {}
    for name, other in names.items():
        for reference in _inputs(other):
            readers.setdefault(ids.get(reference, reference), []).append(name)
    found, waiting = {dataset["metadata"]["name"]}, [dataset["metadata"]["name"]]
    while waiting:
        new = [name for name in readers.get(waiting.pop(), ()) if name not in found]
        found.update(new)
        waiting += new
    found.update(name for reference in _inputs(dataset) if (name := ids.get(reference, reference)) in names)
    yield from (Key("Dataset", namespace, name) for name in sorted(found - {dataset["metadata"]["name"]}))


def _identity(dataset: Object) -> str | None:
    return ((dataset.get("status") or {}).get("ledger") or {}).get("id")


def _inputs(dataset: Object) -> Iterator[str]:
    """What a derivative is derived from, by name or identity."""
    for event in (dataset["spec"].get("ledger") or {}).get("metadata") or ():
        if str(event.get("kind", "")).lower() == "settransform":
            yield from (str(each["datasetRef"]) for each in event.get("inputs") or () if "datasetRef" in each)
