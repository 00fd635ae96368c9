"""Manifests as text, for tests."""

from __future__ import annotations

from pathlib import Path

STORE = """\
apiVersion: kubothek.io/v1alpha1
kind: ObjectStore
metadata: {name: lake}
spec: {url: "file:store"}
---
apiVersion: kubothek.io/v1alpha1
kind: Engine
metadata: {name: default}
spec:
  retry: {backoff: {initial: 10ms, max: 20ms}}
"""


def dataset(name: str, spec: str = "") -> str:
    """A Dataset; ``spec`` adds lines to its spec."""
    return f"""\
---
apiVersion: kubothek.io/v1alpha1
kind: Dataset
metadata: {{name: {name}}}
spec:
  storeRef: {{name: lake}}
  {spec}
"""


def commit(name: str, of: str, path: str = "sources/ok.csv", spec: str = "") -> str:
    """A Commit that appends one CSV file; ``spec`` adds lines to its spec."""
    return f"""\
---
apiVersion: kubothek.io/v1alpha1
kind: Commit
metadata: {{name: {name}}}
spec:
  datasetRef: {{name: {of}}}
  operation: Append
  source: {{paths: [{path}], format: CSV}}
  {spec}
"""


def write(directory: Path, *documents: str) -> Path:
    """A directory ``manifests`` with the documents in one file."""
    manifests = directory / "manifests"
    manifests.mkdir(exist_ok=True)
    (manifests / "all.yaml").write_text("".join(documents))
    return manifests
