"""What an inspection of an ObjectStore, as it begins and ends, is to the resources in it: news for few of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kubothek.api.members import head_uuid
from kubothek.cluster.cache.objects import Object
from kubothek.cluster.queue import Key

if TYPE_CHECKING:
    from kubothek.cluster.cache.state import ClusterState


def standing(store: Object | None) -> object:
    """What all users of a store look at: whether it can be used, and what it can do."""
    status = (store or {}).get("status") or {}
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions") or ()]
    return status.get("capabilities"), conditions


def _ended(store: Object | None) -> object:
    """Which inspection ended last, and when that was seen."""
    inspection = ((store or {}).get("status") or {}).get("lastInspection") or {}
    return inspection.get("attempt"), inspection.get("finished")


def told_of(state: ClusterState, before: Object | None, store: Object | None) -> Iterator[Key]:
    """Those of which an inspection that has just ended had something new to tell.

    They are to listen soon: a result is kept until the inspection after the next one begins.
    """
    if store is None or _ended(before) == _ended(store):
        return
    namespace, name = store["metadata"]["namespace"], store["metadata"]["name"]
    told: set[str] = set()
    number = ((store.get("status") or {}).get("lastInspection") or {}).get("attempt", 0)
    for job in (f"{name}-inspect-{number}", f"{name}-inspect-{number - 1}"):  # the next may have begun
        end = state.pods.model(namespace, job)
        if end is not None and end.result is not None:
            told.update(each.uuid for each in end.result.datasets)
            told.update(head_uuid(each.prefix) for each in end.result.cubes)
    for kind in ("Cube", "Dataset"):
        for obj in state.resources[kind].objects(namespace):
            if obj["spec"]["storeRef"]["name"] == name and _uuid(kind, obj) in told:
                yield Key(kind, namespace, obj["metadata"]["name"])


def _uuid(kind: str, obj: Object) -> str:
    """What a Dataset, or a Cube, is called in its store."""
    own = str(obj["metadata"]["name"])
    return head_uuid(obj["spec"].get("uuidPrefix", own)) if kind == "Cube" else str(obj["spec"].get("uuid", own))
