"""``python -m tests.chart.plain`` (`make config`): config/, the chart rendered for people without Helm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.gotools import HELM, KUBERNETES
from tests.cluster.steps import run

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
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
    CONFIG.mkdir(exist_ok=True)
    for name, text in plain().items():
        (CONFIG / name).write_text(text)


if __name__ == "__main__":
    main()
