"""What kstatus (cli-utils) makes of an object, and what must hold of the conditions that we publish.

``compute`` is the algorithm of kstatus for custom resources; ``check`` lists every broken invariant of what Flux calls
the status standard (FAIL0001 to FAIL0011), with our runs' ``Failed`` among the negative conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEGATIVE = ("Reconciling", "Stalled", "Failed", "Corrupt")
ALLOWED = ("Ready", "Reconciling", "Stalled", "Complete", "Failed", "Corrupt")


def compute(obj: Mapping[str, Any]) -> str:
    """``Current``, ``InProgress``, ``Failed`` or ``Terminating``, in kstatus' order of tests."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata["generation"]:
        return "InProgress"
    for condition in status.get("conditions") or ():
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    ready = [condition for condition in status.get("conditions") or () if condition["type"] == "Ready"]
    if ready:
        return "Current" if ready[0]["status"] == "True" else "InProgress"
    return "Current"


def check(generation: int, status: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> list[str]:
    """The invariants that a published status breaks; ``before`` is the status that it replaces."""
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    true = {kind for kind, condition in conditions.items() if condition["status"] == "True"}
    observed = status.get("observedGeneration")
    ready = conditions.get("Ready", {}).get("status")
    settled = ready == "True" or "Stalled" in true
    rules = {
        "Ready is always present": ready is not None,
        "each type is there once": len(conditions) == len(status["conditions"]),
        "no other types than ours": set(conditions) <= set(ALLOWED),
        "all but Ready are there only while True": all(kind in true for kind in conditions if kind != "Ready"),
        "nothing negative while Ready": ready != "True" or not true & set(NEGATIVE),
        "Stalled means not Ready": "Stalled" not in true or ready == "False",
        "Reconciling and Stalled exclude each other": not {"Reconciling", "Stalled"} <= true,
        "Ready is Unknown only while Reconciling": ready != "Unknown" or "Reconciling" in true,
        "Complete means Ready": "Complete" not in true or ready == "True",
        "Failed means Stalled": "Failed" not in true or "Stalled" in true,
        "observedGeneration is there": observed is not None,
        "observedGeneration is not ahead": observed is None or observed <= generation,
        "observedGeneration follows when Ready or Stalled": not settled or observed == generation,
        "conditions are of this generation": all(
            condition["observedGeneration"] == generation for condition in conditions.values()
        ),
        "reasons are CamelCase words": all(
            condition["reason"].isalnum() and condition["reason"][0].isupper() for condition in conditions.values()
        ),
        "messages are there and not too long": all(
            0 < len(condition["message"]) <= 2048 for condition in conditions.values()
        ),
        "lastTransitionTime moves with status only": _times_hold(conditions, before),
    }
    return [rule for rule, holds in rules.items() if not holds]


def _times_hold(conditions: Mapping[str, Any], before: Mapping[str, Any] | None) -> bool:
    earlier = {condition["type"]: condition for condition in (before or {}).get("conditions") or ()}
    return all(
        condition["lastTransitionTime"] == earlier[kind]["lastTransitionTime"]
        for kind, condition in conditions.items()
        if kind in earlier and earlier[kind]["status"] == condition["status"]
    )
