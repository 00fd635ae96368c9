"""The changes of an ObjectStore by an inspection, and the resources that they concern: mostly few of its users."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubothek.api.members import head_uuid
from kubothek.cluster.cache.objects import Object
from kubothek.cluster.queue import Key

if TYPE_CHECKING:
    from kubothek.cluster.cache.state import ClusterState


def standing(store: Object | None) -> object:
    """Return the part of the status on which all users of a store depend: capabilities and conditions."""
    status = (store or {}).get("status") or {}
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()]
    return status.get("capabilities"), conditions


def _ended(store: Object | None) -> object:
    """Return the attempt number of the last inspection, and when the operator observed its end."""
    inspection = ((store or {}).get("status") or {}).get("lastInspection") or {}
    return inspection.get("attempt"), inspection.get("finished")


def reported_resources(state: ClusterState, before: Object | None, store: Object | None) -> Iterator[Key]:
    """Yield the Cubes and Datasets in the result of an inspection that has just ended.

    They must read it soon: a result is kept until the inspection after the next one begins.
    """
    if store is None or _ended(before) == _ended(store):
        return
    namespace, name = store["metadata"]["namespace"], store["metadata"]["name"]
    reported: set[str] = set()
    number = ((store.get("status") or {}).get("lastInspection") or {}).get("attempt", 0)
    for job in (f"{name}-inspect-{number}", f"{name}-inspect-{number - 1}"):  # the next may have begun
        end = state.pods.model(namespace, job)
        if end is not None and end.result is not None:
            reported.update(each.uuid for each in end.result.datasets)
            reported.update(head_uuid(each.prefix) for each in end.result.cubes)
    for kind in ("Cube", "Dataset"):
        for obj in state.resources[kind].objects(namespace):
            if obj["spec"]["storeRef"]["name"] == name and _uuid(kind, obj) in reported:
                yield Key(kind, namespace, obj["metadata"]["name"])


def _uuid(kind: str, obj: Object) -> str:
    """Return the UUID of a Dataset, or of a Cube's head, in its store."""
    own = str(obj["metadata"]["name"])
    return head_uuid(obj["spec"].get("uuidPrefix", own)) if kind == "Cube" else str(obj["spec"].get("uuid", own))
