"""Rule about references to missing resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubothek.api.commit import Commit
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.repository import Repository
from kubothek.api.rules import parts, render_path
from kubothek.api.transforms import is_identity
from kubothek.api.values import Reference
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding

KIND_OF: Final[dict[str, type[Resource]]] = {
    "storeRef": ObjectStore,
    "engineRef": Engine,
    "datasetRef": Dataset,
    "cubeRef": Cube,
    "repositoryRef": Repository,
    "dependsOn": Commit,
    "follow": Dataset,
}
"""Kind that a field of type :class:`Reference` refers to, by the field, in every kind."""


def references_of(resource: Resource) -> Iterator[tuple[str, type[Resource], str]]:
    """Yield every resource that this one names: field, kind, name."""
    for path, part in parts(resource.spec, ("spec",)):
        if isinstance(part, Reference):
            yield render_path(path), KIND_OF[next(step for step in reversed(path) if isinstance(step, str))], part.name
    if isinstance(resource, Dataset) and resource.spec.ledger is not None:
        for name in resource.spec.ledger.inputs:
            if not is_identity(name):
                yield "spec.ledger.metadata", Dataset, name
    if isinstance(resource, GCPolicy):
        for index, name in enumerate(resource.spec.selector.names or ()):
            yield f"spec.selector.names[{index}]", Dataset, name


def dangling(resource: Resource, there: Lookup) -> Iterator[Finding]:
    """Yield a finding for each missing resource; not denied, because manifests are applied in any order."""
    for path, kind, name in references_of(resource):
        if there.get(kind, resource.namespace, name) is None:
            what = f"there is no {kind.__name__} {name!r} in namespace {resource.namespace!r}"
            message = f"{what}: create it, or correct the name; until then this waits"
            yield Finding(f"{kind.__name__}NotFound", path, message, denies=False)
