"""``python -m tests.chart.plain`` (`make config`): config/, the chart rendered for people without Helm; and the part of
the chart's values schema that is an Engine's spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testcluster.gotools import HELM, KUBERNETES
from tests.testcluster.steps import run

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
SCHEMA = ROOT / "charts" / "kubothek" / "values.schema.json"
NAMESPACE = "kubothek-system"

VARIANTS: Mapping[str, Mapping[str, object]] = {
    "one-namespace.yaml": {},
    "all-namespaces.yaml": {"allNamespaces": True},
}
"""What is rendered, with which values. The CRDs are apart, in crds/: they are applied first."""

_HEAD = """\
# Made by `make config` from charts/kubothek; docs/install.md tells how it is applied.
apiVersion: v1
kind: Namespace
metadata:
  name: kubothek-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def values_schema() -> str:
    """The schema of the chart's values, with that of an Engine's spec as it is in the CRD."""
    crd = yaml.safe_load((ROOT / "crds" / "kubothek.io_engines.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    spec = _closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return re.sub(r'(?m)^    "engine": .*$', lambda _: f'    "engine": {json.dumps(spec)}', SCHEMA.read_text())


def _closed(schema: Any) -> Any:
    """A structural schema as JSON Schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: _closed(each) for name, each in value.items()} if key == "properties" else _closed(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-") and key not in ("description", "default")
    }
    if schema.get("x-kubernetes-int-or-string"):
        found["type"] = ["integer", "string"]
    if "properties" in found and "x-kubernetes-preserve-unknown-fields" not in schema:
        found["additionalProperties"] = False
    return found


def plain() -> dict[str, str]:
    """The files of config/ by name."""
    return {name: _HEAD + _rendered(values) for name, values in VARIANTS.items()}


def _rendered(values: Mapping[str, object]) -> str:
    given = {"crds": {"install": False}, **values}
    sets = [f"--set-json={key}={json.dumps(value)}" for key, value in given.items()]
    version = f"--kube-version={KUBERNETES.version}"
    chart = ROOT / "charts" / "kubothek"
    helm = HELM.ensure() / "helm"
    text = run([helm, "template", "kubothek", chart, f"--namespace={NAMESPACE}", version, "--skip-tests", *sets])
    lines = (line for line in text.splitlines() if not line.startswith(("# Source: ", "    helm.sh/chart: ")))
    return (
        "\n".join(lines).replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl") + "\n"
    )


def main() -> None:
    """Write the files."""
    SCHEMA.write_text(values_schema())
    CONFIG.mkdir(exist_ok=True)
    for name, text in plain().items():
        (CONFIG / name).write_text(text)


if __name__ == "__main__":
    main()
