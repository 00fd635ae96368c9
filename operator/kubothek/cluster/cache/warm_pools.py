"""Warm drivers, and the recent jobs that one could have taken.

A restart may lose both: drivers are found again as pods, and the recent jobs only size the pool.
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
"""Recent jobs kept for each key: more than a pool ever has drivers."""


class Pools:
    """The warm pools of all Engines. Belongs to one event loop."""

    def __init__(self) -> None:
        self._drivers: dict[tuple[str, str], tuple[str, WarmDriver]] = {}
        """The uid of the Engine, and the driver; by namespace and pod."""
        self._asked: dict[str, dict[str, deque[datetime]]] = defaultdict(dict)
        """Times of jobs, by the uid of the Engine and by key."""

    def follow(self, pod: Json) -> None:
        """Update the pool from a state of a driver pod."""
        meta, engine = pod["metadata"], names.controller_of(pod)
        if names.waits(pod) and engine is not None and not meta.get("deletionTimestamp"):
            driver = WarmDriver(meta["name"], meta["labels"][names.WARM], phase_of(pod), _since(meta))
            self._drivers[meta["namespace"], meta["name"]] = engine["uid"], driver
        else:
            self.drop(meta["namespace"], meta["name"])

    def drop(self, namespace: str, pod: str) -> None:
        """Remove a pod that is gone, or no longer waits for a job."""
        self._drivers.pop((namespace, pod), None)

    def note(self, engine: str, key: str, now: datetime) -> None:
        """Record a job for a driver with this key, of the Engine with this uid."""
        self._asked[engine].setdefault(key, deque(maxlen=_REMEMBERED)).append(now)

    def forget(self, engine: str) -> None:
        """Forget the jobs of an Engine that is gone."""
        self._asked.pop(engine, None)

    def warm_pool(self, engine: str) -> WarmPool:
        """Return the drivers and recent jobs of the Engine with this uid."""
        mine = (driver for owner, driver in self._drivers.values() if owner == engine)
        return WarmPool(tuple(mine), self._asked.get(engine, {}))

    def ready(self, namespace: str, key: str) -> Iterator[str]:
        """Return the pods that can take a job with this key, the oldest first."""
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
    """Return the phase of a warm driver."""
    if pod["status"].get("phase") in ENDED:
        return "Failed"
    ready = names.READY in (pod["metadata"].get("annotations") or {})
    return "Ready" if ready and pod["status"].get("phase") == "Running" else "Starting"
