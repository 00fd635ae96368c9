"""The CustomResourceDefinitions, generated from the models: ``python -m kubothek.api.crds [--out DIR ...]``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kubothek.api.kinds import KINDS
from kubothek.api.meta import GROUP, VERSION, Resource
from kubothek.api.schema import Schema, structural_schema

DEFAULT_DIRECTORIES = (Path("crds"), Path("charts/kubothek/files/crds"))
CONDITION_LIMIT = 16


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; columns of priority 1 are shown with ``-o wide``."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def render(self) -> dict[str, object]:
        """Return the entry of ``additionalPrinterColumns``."""
        return {"name": self.name, "jsonPath": self.path, "type": self.type} | (
            {"priority": self.priority} if self.priority else {}
        )


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


READY = (Column("READY", _condition("Ready", "status")), Column("REASON", _condition("Ready", "reason")))
COMMON = (
    Column("AGE", ".metadata.creationTimestamp", "date"),
    Column("STATUS", _condition("Ready", "message"), priority=1),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The names and columns of a kind in URLs and ``kubectl``."""

    plural: str
    short: str
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()
    """Fields that field selectors accept."""
    sparse: bool = False
    """Whether the spec's schema has no defaults, so that another layer can set what a spec leaves out."""


NAMES = {
    "ObjectStore": Names(
        "objectstores", "kos", (Column("URL", ".spec.url"), Column("SUSPENDED", ".spec.suspend", "boolean", 1))
    ),
    "Engine": Names(
        "engines",
        "keng",
        (Column("EXECUTORS", ".spec.executor.instances", "integer"), Column("IMAGE", ".spec.image", priority=1)),
        sparse=True,
    ),
    "Cube": Names(
        "cubes",
        "kcube",
        (
            Column("VERSION", ".status.version", "integer"),
            Column("CELLS", ".status.rows", "integer"),
            Column("DATASETS", ".status.members[*].name"),
            Column("SIZE", ".status.size"),
            Column("LAST-COMMIT", ".status.lastCommitTime", "date"),
            Column("STORE", ".spec.storeRef.name", priority=1),
        ),
        (".spec.storeRef.name",),
    ),
    "Dataset": Names(
        "datasets",
        "kds",
        (
            Column("VERSION", ".status.version", "integer"),
            Column("ROWS", ".status.rows", "integer"),
            Column("FILES", ".status.files", "integer"),
            Column("SIZE", ".status.size"),
            Column("LAST-COMMIT", ".status.lastCommitTime", "date"),
            Column("STORE", ".spec.storeRef.name", priority=1),
        ),
        (".spec.storeRef.name",),
    ),
    "Commit": Names(
        "commits",
        "kcm",
        (
            Column("DATASET", ".spec.datasetRef.name"),
            Column("CUBE", ".spec.cube.cubeRef.name"),
            Column("VERSION", ".status.version", "integer"),
            Column("ROWS", ".status.rows", "integer"),
            Column("STAGE", ".status.progress.stage"),
            Column("ATTEMPT", ".status.attempt", "integer", 1),
        ),
        (".spec.datasetRef.name", ".spec.cube.cubeRef.name"),
    ),
    "Query": Names(
        "queries",
        "kq",
        (
            Column("ROWS", ".status.rows", "integer"),
            Column("LOCATION", ".status.location"),
            Column("VERSION", ".status.version", "integer"),
            Column("STAGE", ".status.progress.stage"),
            Column("STORE", ".spec.storeRef.name", priority=1),
            Column("RUN", ".status.run.number", "integer", 1),
            Column("NEXT", ".status.nextTime", "date", 1),
            Column("ATTEMPT", ".status.attempt", "integer", 1),
        ),
        (".spec.storeRef.name",),
    ),
    "Compaction": Names(
        "compactions",
        "kcp",
        (
            Column("DATASET", ".spec.datasetRef.name"),
            Column("VERSION", ".status.version", "integer"),
            Column("BEFORE", ".status.filesBefore", "integer"),
            Column("AFTER", ".status.filesAfter", "integer"),
            Column("STAGE", ".status.progress.stage"),
            Column("ATTEMPT", ".status.attempt", "integer", 1),
        ),
        (".spec.datasetRef.name",),
    ),
    "Verification": Names(
        "verifications",
        "kver",
        (
            Column("DATASET", ".spec.datasetRef.name"),
            Column("LEVEL", ".spec.level"),
            Column("VERSION", ".status.version", "integer"),
            Column("VERDICT", ".status.verdict"),
            Column("STAGE", ".status.progress.stage"),
            Column("ATTEMPT", ".status.attempt", "integer", 1),
        ),
        (".spec.datasetRef.name",),
    ),
    "GCPolicy": Names(
        "gcpolicies",
        "kgc",
        (
            Column("MODE", ".spec.mode"),
            Column("DATASETS", ".status.datasets", "integer"),
            Column("NEXT", ".status.nextTime", "date", 1),
            Column("LAST", ".status.lastTime", "date"),
        ),
    ),
    "SkippingIndex": Names(
        "skippingindices",
        "ksi",
        (
            Column("PREFIX", ".spec.location.prefix"),
            Column("FILES", ".status.files", "integer"),
            Column("DESCRIBED", ".status.described", "integer"),
            Column("SIZE", ".status.size", priority=1),
            Column("REFRESHED", ".status.refreshedTime", "date"),
        ),
    ),
    "Repository": Names("repositories", "krepo", (Column("URL", ".spec.url"), Column("PUSH", ".spec.push", "boolean"))),
    "Sync": Names(
        "syncs",
        "ksync",
        (
            Column("DIRECTION", ".spec.direction"),
            Column("DATASET", ".spec.datasetRef.name"),
            Column("REPOSITORY", ".spec.repositoryRef.name"),
            Column("STAGE", ".status.progress.stage"),
            Column("LAST-SYNC", ".status.lastSyncTime", "date"),
            Column("SIZE", ".status.size", priority=1),
            Column("NEXT", ".status.nextTime", "date", 1),
        ),
        (".spec.datasetRef.name",),
    ),
}


def crd(kind: type[Resource]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    name = kind.model_fields["kind"].default
    names = NAMES[name]
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.render() for column in (*READY, *names.columns, *COMMON)],
        "schema": {"openAPIV3Schema": _root_schema(kind)},
    }
    if names.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in names.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": names.plural,
                "singular": name.lower(),
                "shortNames": [names.short],
                "categories": ["kubothek"],
            },
            "versions": [version],
        },
    }


def _root_schema(kind: type[Resource]) -> Schema:
    schema = structural_schema(kind)
    spec, status = schema["properties"]["spec"], schema["properties"]["status"]
    if NAMES[kind.model_fields["kind"].default].sparse:
        spec = _without(spec, "default")
    # Without this default, kstatus takes a resource that was never reconciled for current. Other fields of the status
    # need none: the operator always writes all of it.
    status = _without(status, "default", "required") | {"default": {"observedGeneration": -1}}
    status["properties"]["conditions"] = _conditions_schema(status["properties"]["conditions"])
    return {
        "description": schema["description"],
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
        "x-kubernetes-validations": schema["x-kubernetes-validations"],
    }


def _without(schema: Schema, *dropped: str) -> Schema:
    kept = {key: value for key, value in schema.items() if key not in dropped}
    for key, value in kept.items():
        if key == "properties":
            kept[key] = {name: _without(inner, *dropped) for name, inner in value.items()}
        elif key in ("items", "additionalProperties"):
            kept[key] = _without(value, *dropped)
    return kept


def _conditions_schema(conditions: Schema) -> Schema:
    """Return the schema of conditions with the limits of ``metav1.Condition``."""
    item = conditions["items"]
    limits = {"type": 316, "reason": 1024, "message": 32768}
    properties = {
        name: schema | ({"maxLength": limits[name]} if name in limits else {})
        for name, schema in item["properties"].items()
    }
    return conditions | {
        "items": item
        | {"properties": properties, "required": ["type", "status", "reason", "message", "lastTransitionTime"]},
        "maxItems": CONDITION_LIMIT,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


class _Plain(yaml.SafeDumper):
    """YAML without anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def render(kind: type[Resource]) -> str:
    """Return the YAML document of a kind's CustomResourceDefinition."""
    head = "# Made by `make crds` from operator/kubothek/api; edit the models.\n"
    return head + yaml.dump(crd(kind), Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


def file_name(kind: type[Resource]) -> str:
    """Return the name of the kind's file, such as ``kubothek.io_datasets.yaml``."""
    return f"{GROUP}_{NAMES[kind.model_fields['kind'].default].plural}.yaml"


def main() -> None:
    """Write one file per kind."""
    parser = argparse.ArgumentParser(description="Write the CustomResourceDefinitions.")
    parser.add_argument("--out", type=Path, action="append", help="directory; may be repeated")
    for directory in parser.parse_args().out or DEFAULT_DIRECTORIES:
        directory.mkdir(parents=True, exist_ok=True)
        for kind in KINDS.values():
            (directory / file_name(kind)).write_text(render(kind))


if __name__ == "__main__":
    main()
