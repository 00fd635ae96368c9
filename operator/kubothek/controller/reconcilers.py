"""The reconcile function of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kubothek.controller.context import Context, Outcome
from kubothek.controller.kinds import (
    commit,
    compaction,
    cube,
    dataset,
    engine,
    gcpolicy,
    objectstore,
    query,
    repository,
    skippingindex,
    sync,
    verification,
)

Reconciler: TypeAlias = Callable[[Any, Context], Outcome]

RECONCILERS: Final[Mapping[str, Reconciler]] = {
    "ObjectStore": objectstore.reconcile,
    "Engine": engine.reconcile,
    "Cube": cube.reconcile,
    "Dataset": dataset.reconcile,
    "Commit": commit.reconcile,
    "Query": query.reconcile,
    "Compaction": compaction.reconcile,
    "Verification": verification.reconcile,
    "GCPolicy": gcpolicy.reconcile,
    "SkippingIndex": skippingindex.reconcile,
    "Repository": repository.reconcile,
    "Sync": sync.reconcile,
}
