"""Which drivers wait for jobs, and how many jobs came that one could take.

Like all that is kept beside the caches it may be forgotten: drivers are found again as pods, and what jobs came is only
a measure of how many should wait.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from kubothek.cluster import names
from kubothek.controller.context import ENDED, WarmDriver, WarmPool

Json = Mapping[str, Any]

_REMEMBERED: Final = 1000
"""How many jobs are remembered of each key: more than ever wait."""


class Pools:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._drivers: dict[tuple[str, str], tuple[str, WarmDriver]] = {}
        """The uid of the Engine, and the driver; by namespace and pod."""
        self._asked: dict[str, dict[str, deque[datetime]]] = defaultdict(dict)
        """By the uid of the Engine, and by key."""

    def follow(self, pod: Json) -> None:
        """Take in a state of a driver pod."""
        meta, engine = pod["metadata"], names.controller_of(pod)
        if names.waits(pod) and engine is not None and not meta.get("deletionTimestamp"):
            driver = WarmDriver(meta["name"], meta["labels"][names.WARM], phase_of(pod), _since(meta))
            self._drivers[meta["namespace"], meta["name"]] = engine["uid"], driver
        else:
            self.drop(meta["namespace"], meta["name"])

    def drop(self, namespace: str, pod: str) -> None:
        """The pod is gone, or waits no longer."""
        self._drivers.pop((namespace, pod), None)

    def note(self, engine: str, key: str, now: datetime) -> None:
        """A job came for a driver with this key, of the Engine with this uid."""
        self._asked[engine].setdefault(key, deque(maxlen=_REMEMBERED)).append(now)

    def forget(self, engine: str) -> None:
        """The Engine with this uid is gone."""
        self._asked.pop(engine, None)

    def warm_pool(self, engine: str) -> WarmPool:
        """What there is for the Engine with this uid."""
        mine = (driver for owner, driver in self._drivers.values() if owner == engine)
        return WarmPool(tuple(mine), self._asked.get(engine, {}))

    def ready(self, namespace: str, key: str) -> Iterator[str]:
        """The pods that can take a job with this key, the longest waiting first."""
        found = [
            driver
            for (space, _), (_, driver) in self._drivers.items()
            if space == namespace and driver.key == key and driver.phase == "Ready"
        ]
        return (driver.name for driver in sorted(found, key=lambda each: (each.since, each.name)))


def _since(meta: Json) -> datetime:
    """When the driver became ready, as it says; else when it was created."""
    created = datetime.fromisoformat(meta["creationTimestamp"])
    try:
        return max(created, datetime.fromisoformat((meta.get("annotations") or {})[names.READY]))
    except (KeyError, ValueError, TypeError):  # not ready, or of a release that does not say when
        return created


def phase_of(pod: Json) -> Literal["Starting", "Ready", "Failed"]:
    """How far a driver is that waits for a job."""
    if pod["status"].get("phase") in ENDED:
        return "Failed"
    ready = names.READY in (pod["metadata"].get("annotations") or {})
    return "Ready" if ready and pod["status"].get("phase") == "Running" else "Starting"
