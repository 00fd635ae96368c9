"""Rule about references to missing resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel

from kubothek.api.commit import Commit
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.repository import Repository
from kubothek.api.rules import Path, render_path
from kubothek.api.transforms import is_identity
from kubothek.api.values import Reference
from kubothek.controller.context import Lookup
from kubothek.controller.finding import Finding

KIND_OF: Final[dict[str, type[Resource]]] = {
    "store_ref": ObjectStore,
    "engine_ref": Engine,
    "dataset_ref": Dataset,
    "cube_ref": Cube,
    "repository_ref": Repository,
    "depends_on": Commit,
}
"""Kind that a field of type :class:`Reference` refers to, by the name of the field, in every kind."""


def references_of(resource: Resource) -> Iterator[tuple[str, type[Resource], str]]:
    """Yield every resource that this one names: field, kind, name."""
    yield from _within(resource.spec, ("spec",))
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


def _within(model: BaseModel, at: Path) -> Iterator[tuple[str, type[Resource], str]]:
    for name, info in type(model).model_fields.items():
        here, value = (*at, info.alias or name), getattr(model, name)
        for step, item in enumerate(value) if isinstance(value, tuple) else (("", value),):
            place = here if step == "" else (*here, int(step))
            if isinstance(item, Reference):
                yield render_path(place), KIND_OF[name], item.name
            elif isinstance(item, BaseModel):
                yield from _within(item, place)
