"""Everything the charts render, and config/, against the schemas of this Kubernetes and of the CRDs (kubeconform)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import Render
from tests.chart.plain import CONFIG
from tests.chart.test_chart import VALUES
from tests.chart.test_gateway import STORES
from tests.chart.test_gateway import render as render_gateway
from tests.cluster.apiserver import ApiServer
from tests.testcluster.gotools import KUBECONFORM
from tests.testcluster.steps import CommandError, run

__all__ = ["render_gateway"]

_LAST = "io.kubothek.v1alpha1.Verification", "com.coreos.monitoring.v1.ServiceMonitor"
_PREFIX = "#/definitions/"


@pytest.fixture(scope="session")
def schemas(monitored: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for each kind that the API server has, with all that it refers to, and no field besides."""
    definitions: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while not set(_LAST) <= set(definitions):  # those of CRDs come a little later
        assert time.monotonic() < deadline
        time.sleep(0.5)
        definitions = monitored.request("GET", "/openapi/v2")["definitions"]
    for definition in definitions.values():
        _close(definition)
    directory = tmp_path_factory.mktemp("schemas")
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            needed: dict[str, Any] = {}
            _gather(name, definitions, needed)
            file = f"{kind['kind'].lower()}_{kind['group'] or kind['version']}_{kind['version']}.json"
            (directory / file).write_text(json.dumps({"$ref": _PREFIX + name, "definitions": needed}))
    return directory


def _close(node: Any) -> None:
    """Allow only the fields that are named, and numbers where Kubernetes takes them for texts."""
    if isinstance(node, list):
        for item in node:
            _close(item)
    if not isinstance(node, dict):
        return
    if node.get("format") == "int-or-string":
        node.update({"type": ["string", "integer"]})
    if isinstance(node.get("properties"), dict) and not node.get("x-kubernetes-preserve-unknown-fields"):
        node.setdefault("additionalProperties", False)
    for child in node.values():
        _close(child)


def _gather(name: str, definitions: dict[str, Any], needed: dict[str, Any]) -> None:
    if name in needed:
        return
    needed[name] = definitions[name]
    text = json.dumps(definitions[name])
    for part in text.split(f'"$ref": "{_PREFIX}')[1:]:
        _gather(part[: part.index('"')], definitions, needed)


def conforms(schemas: Path, documents: str) -> str:
    location = str(schemas / "{{ .ResourceKind }}_{{ .Group }}_{{ .ResourceAPIVersion }}.json")
    command: list[str | Path] = [KUBECONFORM.ensure() / "kubeconform"]
    command += ["-strict", "-summary", f"-schema-location={location}"]
    return run(command, stdin=documents)


def test_rendered_charts_conform_to_schemas(schemas: Path, render: Render, render_gateway: Render) -> None:
    rendered = [obj for values in VALUES for obj in render(**values)]
    for gateway_values in ({}, {"stores": STORES, "replicas": 1, "tls": {"secretName": "cert"}, "roles": False}):
        rendered += render_gateway(**gateway_values)
    for file in CONFIG.iterdir():
        rendered += yaml.safe_load_all(file.read_text())
    summary = conforms(schemas, yaml.safe_dump_all(rendered))
    assert f"Valid: {len(rendered)}, Invalid: 0, Errors: 0, Skipped: 0" in summary


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("spec", "template", "spec", "containers", 0, "resources", "limit"), {}),
        (("spec", "replicas"), "one"),
        (("metadata", "labels", "a"), 1),
    ],
)
def test_nonconforming_manifest_is_detected(
    schemas: Path, render: Render, path: tuple[str | int, ...], wrong: object
) -> None:
    (deployment,) = (obj for obj in render() if obj["kind"] == "Deployment")
    place: Any = deployment
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(CommandError):
        conforms(schemas, yaml.safe_dump(deployment))
