"""Runs (Commits, Queries …) as the API server shows them: what they change, and whether they have ended."""

from __future__ import annotations

from kubothek.api.values import parse_time
from kubothek.cluster.cache.objects import Object
from kubothek.controller.run_index import Change, RunIndex


def finished(run: Object) -> bool:
    """Return whether the Commit, Query, Compaction or Verification is Complete or Failed."""
    return holds(run, "Complete") or holds(run, "Failed")


def subject_of(commit: Object) -> tuple[str, str]:
    """Return the kind and the name of the resource that a Commit changes."""
    spec = commit["spec"]
    if "cube" in spec:
        return "Cube", str(spec["cube"]["cubeRef"]["name"])
    return "Dataset", str(spec["datasetRef"]["name"])


def follow(run_index: RunIndex, kind: str, namespace: str, name: str, run: Object | None) -> None:
    """Update the index for a run that changed; None: it is gone."""
    run_index.put(kind, namespace, name, None if run is None else _change(kind, run))


def holds(obj: Object, kind: str) -> bool:
    """Return whether the condition is True."""
    return condition(obj, kind) == "True"


def condition(obj: Object, kind: str) -> str | None:
    """Return the status of a condition; None if there is none."""
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            return str(each["status"])
    return None


def _change(kind: str, run: Object) -> Change | None:
    """Return the change that a run makes; None if the manifest is invalid or names no Dataset."""
    try:
        if kind == "Commit":
            subject = subject_of(run)
        else:
            holder = run["spec"]["result"] if kind == "Query" else run["spec"]
            if "datasetRef" not in holder:
                return None
            subject = ("Dataset", str(holder["datasetRef"]["name"]))
    except (KeyError, TypeError):
        return None
    created, completed = run["metadata"].get("creationTimestamp"), (run.get("status") or {}).get("completionTime")
    return Change(subject, parse_time(created), finished(run), parse_time(completed))
