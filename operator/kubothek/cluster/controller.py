"""The control loop: takes a key from the queue, calls the reconciler, writes the status, then executes the actions.

The order is the same for every resource: status first (write-ahead: it announces an attempt before the launch), then
actions, then events. Any step may fail or be repeated. The next reconciliation starts from the observed state, so each
write is either idempotent by its name or guarded by a version.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from kubothek.api.kinds import InvalidResource
from kubothek.api.meta import API_VERSION
from kubothek.cluster.actuator import Performer
from kubothek.cluster.api import CONFLICT, Api, ApiError, ApiUnavailable, Object
from kubothek.cluster.cache.state import ClusterContext, ClusterState
from kubothek.cluster.event_handlers import Observer
from kubothek.cluster.launch import Launcher
from kubothek.cluster.pod_status import outcome
from kubothek.cluster.queue import Key, WorkQueue
from kubothek.cluster.telemetry.events import EventRecorder
from kubothek.cluster.telemetry.logs import round_of
from kubothek.cluster.telemetry.metrics import Metrics
from kubothek.cluster.telemetry.traces import Traces
from kubothek.controller.context import Settings
from kubothek.controller.kinds import invalid
from kubothek.controller.reconcilers import Reconciler

log = logging.getLogger(__name__)

RECONCILE_TIMEOUT = 60.0
"""Seconds for one reconciliation, including its API calls."""
_EVENTS_REFRESH = timedelta(seconds=30)
_SPREAD = 20.0
"""Maximum jitter of a requeue, in seconds: less than any deadline of a schedule."""


class Controller:
    """The control loop of all kinds."""

    def __init__(
        self,
        *,
        api: Api,
        settings: Settings,
        launcher: Launcher,
        recorder: EventRecorder,
        reconcilers: Mapping[str, Reconciler],
        queue: WorkQueue | None = None,
        metrics: Metrics | None = None,
        traces: Traces | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._settings = settings
        self._recorder = recorder
        self._reconcilers = reconcilers
        self.clock = clock
        self._rng = random.Random()
        self.queue = WorkQueue() if queue is None else queue
        self.metrics = Metrics() if metrics is None else metrics
        self._traces = Traces(0.0) if traces is None else traces
        self.state = ClusterState(settings.limits)
        self.observer = Observer(self.state, self.queue, self.metrics, self._traces)
        self._performer = Performer(api, settings, launcher, self.state, self.queue, self.observer, self._traces, clock)

    async def work(self) -> None:
        """Run one worker: reconcile keys of the queue for ever; an error of one key never ends it."""
        while True:
            key = await self.queue.get()
            after: float | None = None
            failed = True
            try:
                with round_of(key), self.metrics.round_of(key.kind):
                    async with asyncio.timeout(RECONCILE_TIMEOUT):
                        after = await self.reconcile(key)
                failed = False
            except (ApiError, ApiUnavailable, TimeoutError) as error:
                log.warning("%s: will be tried again: %s", key, error or "timed out")
            except Exception:
                log.exception("%s: internal error, will be tried again", key)
            finally:
                self.queue.done(key, failed=failed, after=after)
                (self.state.job_slots.withdraw if failed else self.state.job_slots.answered)(key)
                self.observer.wake_waiting()

    def context(self) -> ClusterContext:
        """Return the observed state as reconcilers read it now."""
        return ClusterContext(self.state, self._settings, self.clock())

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile one resource once. Return the seconds until the next reconciliation, or None."""
        cache, began = self.state.resources[key.kind], datetime.now(UTC)
        wake = await self._fetch_pod_events(cache.get(key.namespace, key.name))
        obj, resource = cache.get(key.namespace, key.name), cache.model(key.namespace, key.name)
        if obj is None or resource is None:
            return None
        context = self.context()
        if isinstance(resource, InvalidResource):
            decided = invalid.reconcile(obj, resource, context.now)
        else:
            decided = self._reconcilers[key.kind](resource, context)
        with self.state.job_slots.decided(key, decided.actions):
            # The decision alone may let others proceed, long before its actions are done. A launch that fails may do
            # so too: `work` wakes them at the end.
            self.observer.wake_waiting()
            if not await self._publish(key, obj, decided.status):
                return None
            for action in decided.actions:
                await self._performer.perform(key, obj["metadata"]["uid"], action)
        did = [type(action).__name__ for action in decided.actions]
        if without_none(decided.status) != obj.get("status"):
            did.append("status")
        self._traces.round(key.kind, obj, began, datetime.now(UTC), did=did)
        for event in decided.events:
            self._recorder.emit(obj, event)
        if decided.requeue_after is not None:
            wake.append(decided.requeue_after)
        if not wake:
            return None
        return spread(min(wake).total_seconds(), self._rng)

    async def _fetch_pod_events(self, obj: Object | None) -> list[timedelta]:
        """Fetch the events of the resource's pods where needed; return the times until their next checks."""
        wake: list[timedelta] = []
        now = self.clock()
        for pod in list(self.state.unended_pods_of(obj["metadata"]["uid"])) if obj is not None else ():
            left = outcome.patience_left(pod, now)
            if left is not None:
                wake.append(left)
            if outcome.wants_events(pod, now):
                meta = pod["metadata"]
                fields = f"involvedObject.uid={meta['uid']},type=Warning"
                self.state.pod_events[meta["uid"]] = [
                    event
                    async for page, _ in self._api.pages("CoreEvent", meta["namespace"], fields=fields)
                    for event in page
                ]
                wake.append(_EVENTS_REFRESH)
        return wake

    async def _publish(self, key: Key, obj: Object, status: Mapping[str, object]) -> bool:
        """Write the status unless it is unchanged. Return False if the object is gone, or has changed meanwhile."""
        wanted = without_none(status)
        if wanted == obj.get("status"):
            return True
        meta = obj["metadata"]
        known = {each: meta[each] for each in ("name", "namespace", "uid", "resourceVersion")}
        try:
            written = await self._api.apply_status(
                {"apiVersion": API_VERSION, "kind": key.kind, "metadata": known, "status": wanted}
            )
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            # A user or another operator changed it: the decision is out of date.
            if (newer := await self._api.get(key.kind, key.namespace, key.name)) is not None:
                self.observer.observe(key.kind, newer)
            return False
        if written is None:
            self.observer.deleted(key.kind, obj)
            return False
        self.observer.wrote(key, obj, written)
        return True


def spread(seconds: float, rng: random.Random) -> float:
    """Return the wait with random jitter, so that requeues planned together do not fire together."""
    return seconds + rng.uniform(0.0, min(seconds * 0.05, _SPREAD))


def without_none(value: Mapping[str, object]) -> dict[str, object]:
    """Return the mapping without None values, at every depth, as the API server drops them too."""
    return {k: _without_none(v) for k, v in value.items() if v is not None}


def _without_none(value: object) -> object:
    if isinstance(value, Mapping):
        return without_none(value)
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
