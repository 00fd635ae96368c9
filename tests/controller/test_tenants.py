"""A name means something of one's own namespace, in each field of each kind: what another tenant has is not there.

The fields are found in the models, the manifests in the documentation. Each reference in turn is to something that
only the other namespace has, all others are to what is there and ready. Secrets, claims and service accounts are named
in pods, and a pod can name none but those of its namespace: tests/chart/test_tenants.py has who may read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

import pytest
from pydantic import BaseModel

from kubothek.api.bounds import Bound
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.kinds import KINDS, parse
from kubothek.api.meta import Resource
from kubothek.api.sizes import Sizes
from kubothek.api.values import Reference
from kubothek.cluster.config import OperatorConfig
from kubothek.cluster.pods import job_pod
from kubothek.controller.context import JobView, LaunchJob, Load, Outcome, PutDataset, Settings, WarmPool
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.controller.run_index import RunIndex, change_of
from kubothek.controller.validation.references import references_of
from tests.controller.fake import START
from tests.documented import API, OTHER, Json, blocks, examples

OURS, THEIRS = "ours", "theirs"
R = TypeVar("R", bound=Resource)
CONFIG = OperatorConfig(namespaces=(OURS, THEIRS), job_image="kubothek:test")
SPECS: dict[str, Json] = {
    "ObjectStore": {"url": "s3://lake/warehouse"},
    "Dataset": {"storeRef": {"name": "lake"}},
    "Cube": {"storeRef": {"name": "lake"}, "adopt": True, "seedDataset": "a", "datasets": [{"name": "a"}]},
    "Commit": {"datasetRef": {"name": "a"}, "operation": "Rollback", "toVersion": 1},
    "Repository": {"url": "https://example.org/data"},
    "Engine": {},
}
"""Specs of what is referred to."""
OTHER_STORE = {"storeRef": {"name": "other"}}
ROWS = {"paths": ["a.csv"], "format": "CSV"} | OTHER_STORE
FURTHER: list[tuple[str, Json]] = [
    ("Commit", {"datasetRef": {"name": "a"}, "operation": "Append", "source": ROWS}),
    (
        "Commit",
        {"cube": {"cubeRef": {"name": "a"}, "operation": "Append", "datasets": [{"name": "a", "source": ROWS}]}},
    ),
    ("Commit", {"cube": {"cubeRef": {"name": "a"}, "operation": "Copy", "to": OTHER_STORE}}),
    ("GCPolicy", {"selector": {"names": ["a"]}, "schedule": {"cron": "@daily"}}),
    ("Query", {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"location": {"path": "a"} | OTHER_STORE}}),
]
"""What refers to something in ways that the documentation does not show."""
PASSED_ON = {"Cube.datasets.sources.storeRef"}
"""What becomes a reference of a Dataset that the resource makes, in its own namespace."""
BY_NAME = {"Dataset.ledger.metadata", "GCPolicy.selector.names"}
"""References that are plain names in the models."""
QUIET = {"Dataset.sources.storeRef", "GCPolicy.selector.names"}
"""What is missing there keeps nothing else from going on: `kubothek lint` and the webhook tell of it."""


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models(argument)


def fields(model: type[BaseModel], at: str) -> Iterator[str]:
    """The places of all references to resources in a model."""
    for name, info in model.model_fields.items():
        for inner in models(info.annotation):
            here = f"{at}.{info.alias or name}"
            yield from [here] if inner is Reference else fields(inner, here)


def place(resource: Resource, path: str) -> str:
    """A path in a resource as the place of a field."""
    return resource.kind + re.sub(r"\[\d+\]", "", path.removeprefix("spec"))


def resources() -> Iterator[Resource]:
    """Every resource of ours in docs/ and examples/ that a cluster takes, and further ones; each with an Engine."""
    for manifest in manifests():
        spec = manifest["spec"]
        if "engine_ref" in KINDS[manifest["kind"]].model_fields["spec"].annotation.model_fields:  # type: ignore[union-attr]
            spec = {"engineRef": {"name": "big"}} | spec
        here = {"namespace": OURS, "uid": "u", "creationTimestamp": START.isoformat()}
        yield parse(manifest | {"metadata": manifest["metadata"] | here, "spec": spec})


def manifests() -> Iterator[Json]:
    for given in (*blocks(), *examples()):
        if given.mark in OTHER:
            continue
        for manifest in given.manifests():
            if manifest.get("apiVersion") == API and not str(manifest["spec"].get("url", "")).startswith("file:"):
                yield manifest
    for kind, spec in FURTHER:
        yield {"apiVersion": API, "kind": kind, "metadata": {"name": "further"}, "spec": spec}


def cases() -> Iterator[Any]:
    """A resource for each place of a reference: where it is, of which kind, and its name."""
    found = set()
    for resource in resources():
        for path, kind, name in references_of(resource):
            if (where := place(resource, path)) not in found:
                found.add(where)
                yield pytest.param(where, resource, kind, name, id=where)


CASES = list(cases())


class TwoTenants:
    """A context in which all that is named exists and is ready; one thing only in the other namespace."""

    now = START
    settings = Settings(cluster_id="c", default_image="kubothek:test", allowed_source_hosts=("example.org",))
    load = Load()

    def __init__(self, asker: Resource, hidden: tuple[type[Resource], str] | None) -> None:
        self.asker, self.hidden = asker, hidden
        named = [(kind, name) for _, kind, name in references_of(asker)]
        self._there = [ready(asker, kind.__name__, name, OURS) for kind, name in named if (kind, name) != hidden]
        self._there += [ready(asker, kind.__name__, name, THEIRS) for kind, name in named]
        if ("ObjectStore", "lake") not in {(kind.__name__, name) for kind, name in named}:
            self._there.append(ready(asker, "ObjectStore", "lake", OURS))
        self.dependency_graph = DependencyGraph()
        self.run_index = RunIndex()
        for each in (asker, *self._there):
            self.run_index.put(each.kind, each.namespace, each.name, change_of(each))

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        return next((each for each in self.list(kind, namespace) if each.name == name), None)

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        assert namespace == OURS, "nobody asks what another namespace has"
        return [each for each in self._there if isinstance(each, kind) and each.namespace == namespace]

    @property
    def engine_limits(self) -> Sizes:
        return self.settings.engine_limits

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        return self.settings.engine_defaults

    def bounds(self, namespace: str) -> Sequence[Bound]:
        assert namespace == OURS, "nobody asks what another namespace has"
        return ()

    def warm_pool(self, engine: Engine) -> WarmPool | None:
        return None

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        return ()

    def job(self, namespace: str, name: str) -> JobView | None:
        return None

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        return None


def ready(asker: Resource, kind: str, name: str, namespace: str) -> Resource:
    """A resource that is as the one that refers to it needs it."""
    condition = {"type": "Ready", "status": "True", "reason": "r", "message": "", "observedGeneration": 1}
    done = {**condition, "type": "Complete"}
    status: Json = {"observedGeneration": 1, "conditions": [condition, *([done] if kind == "Commit" else [])]}
    if kind == "Dataset":
        status |= {"version": 1, "uuid": name}
    if kind == "ObjectStore":
        status["capabilities"] = {"conditionalWrites": True}
    spec = SPECS[kind] | ({"ledger": {"kind": "Copy"}} if (asker.kind, kind) == ("Sync", "Dataset") else {})
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "generation": 1}
    return parse({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec, "status": status})


def decided(resource: Resource, hidden: tuple[type[Resource], str] | None) -> Outcome:
    """What is decided after some rounds, statuses published."""
    context, model = TwoTenants(resource, hidden), type(resource).model_fields["status"].annotation
    assert model is not None
    if isinstance(resource, Dataset):  # an inspection has seen it
        seen = resource.status.model_copy(update={"version": 1, "inspected_time": START})
        resource = resource.model_copy(update={"status": seen})
    for _ in range(4):
        outcome = RECONCILERS[resource.kind](resource, context)
        resource = resource.model_copy(update={"status": model.model_validate(outcome.status)})
    return outcome


def test_tenant_cases_cover_every_reference_of_every_kind() -> None:
    specs = {kind: next(models(model.model_fields["spec"].annotation)) for kind, model in KINDS.items()}
    known = {where for kind, spec in specs.items() for where in fields(spec, kind)}
    assert {case.id for case in CASES} == (known - PASSED_ON) | BY_NAME


@pytest.mark.parametrize(("where", "resource", "kind", "name"), CASES)
def test_resource_in_other_namespace_is_treated_as_missing(
    where: str, resource: Resource, kind: type[Resource], name: str
) -> None:
    refused, given = decided(resource, (kind, name)), decided(resource, None)
    assert not any(isinstance(action, LaunchJob | PutDataset) for action in refused.actions)
    assert refused.status != given.status, "with it the resource goes on"
    if where not in QUIET:
        told = refused.status["conditions"][0]  # type: ignore[index]
        assert told["status"] != "True"
        assert name in told["message"]
    for action in given.actions:
        if isinstance(action, LaunchJob):
            pod = job_pod.driver_pod(action, CONFIG)
            assert pod["metadata"]["namespace"] == OURS
            assert "namespace" not in re.sub(r"metadata\.namespace", "", str(pod["spec"]))
        if isinstance(action, PutDataset):
            assert action.dataset.namespace == OURS
