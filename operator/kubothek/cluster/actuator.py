"""Execution of the actions that reconcilers return. Each is idempotent by its name, or guarded by a version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from secrets import token_bytes

from kubothek.api.dataset import Dataset
from kubothek.api.kinds import manifest_of
from kubothek.api.meta import FINALIZER, Resource
from kubothek.cluster import names
from kubothek.cluster.api import CONFLICT, Api, ApiError, Object
from kubothek.cluster.cache.state import ClusterState
from kubothek.cluster.event_handlers import Observer
from kubothek.cluster.launch import Launcher, Refused
from kubothek.cluster.pods import job_pod
from kubothek.cluster.queue import Key, WorkQueue
from kubothek.cluster.telemetry.traces import Traces
from kubothek.controller.context import (
    Action,
    CancelJob,
    DeleteRun,
    LaunchJob,
    MakeIdentity,
    PutDataset,
    SetFinalizer,
    Settings,
    StartDriver,
    StopDriver,
)
from kubothek.controller.kinds.members import refusal_key
from kubothek.controller.scheduling.warm_pool import key_of

log = logging.getLogger(__name__)

_DRIVERS_TRIED = 3
"""Warm drivers tried per job. If other operators take all of them, the job gets a pod of its own."""


class Performer:
    """Executor of the actions of resources. Raises ApiError or ApiUnavailable, which fail the reconciliation."""

    def __init__(
        self,
        api: Api,
        settings: Settings,
        launcher: Launcher,
        state: ClusterState,
        queue: WorkQueue,
        observer: Observer,
        traces: Traces,
        clock: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._settings = settings
        self._launcher = launcher
        self._state = state
        self._queue = queue
        self._observer = observer
        self._traces = traces
        self._clock = clock

    async def perform(self, key: Key, uid: str, action: Action) -> None:
        """Execute the action for the resource of this key and uid."""
        match action:
            case LaunchJob():
                await self._launch(key, uid, action)
            case StartDriver():
                await self._start_driver(key, action)
            case StopDriver():
                await self._stop_driver(action)
            case CancelJob():
                await self._cancel(key, uid, action)
            case PutDataset():
                await self._put(key, uid, action.dataset)
            case MakeIdentity():
                await self._make_identity(key, action.secret)
            case SetFinalizer():
                await self._set_finalizer(key, action.present)
            case DeleteRun():
                await self._delete(action.run)

    async def _launch(self, key: Key, uid: str, action: LaunchJob) -> None:
        with self._traces.launching(action):
            launched = await self._launcher.launch(action, self._waiting(key, action))
        if isinstance(launched, Refused):
            refusal = (launched.reason, launched.message)
            if self._state.refuse(key.namespace, action.job.job, uid, refusal):
                log.info("%s: job %s refused: %s: %s", key, action.job.job, *refusal)
                self._queue.add(key)
            return
        log.info("%s: job %s launched", key, action.job.job, extra={"job": action.job.job, "verb": action.job.verb})
        self._observer.observe("Pod", launched)

    def _waiting(self, key: Key, action: LaunchJob) -> Sequence[str]:
        """Return the warm drivers that may take the job. Record the request even if there is none."""
        asked = key_of(action, self._settings)
        if asked is None or action.engine is None:
            return ()
        self._state.pools.note(action.engine.metadata.uid, asked, self._clock())
        self._queue.add(Key("Engine", key.namespace, action.engine.name))
        return list(self._state.pools.ready(key.namespace, asked))[:_DRIVERS_TRIED]

    async def _start_driver(self, key: Key, action: StartDriver) -> None:
        """Start a warm driver. A refusal fails the reconciliation, so that the retry backs off."""
        started = await self._launcher.start_driver(action)
        log.info("%s: driver %s started, to wait for jobs", key, action.name)
        self._observer.observe("Pod", started)

    async def _stop_driver(self, action: StopDriver) -> None:
        driver = self._state.pods.get(action.namespace, action.name)
        if driver is not None and names.waits(driver):
            await self._launcher.stop_driver(action.namespace, driver)

    async def _cancel(self, key: Key, uid: str, action: CancelJob) -> None:
        self._state.cancel(action.namespace, action.name)
        known = self._state.pod_of(action.namespace, action.name)
        pod = None if known is None else known["metadata"]["name"]
        ending = await self._launcher.cancel(action.namespace, action.name, uid, pod)
        if ending is None and known is not None:
            self._state.remove_pod(action.namespace, known["metadata"]["name"], known["metadata"]["uid"])
            self._queue.add(key)

    async def _put(self, key: Key, uid: str, dataset: Dataset) -> None:
        """Create the Dataset, or patch the existing one if its resource version is the cached one."""
        cache, name = self._state.resources["Dataset"], dataset.name
        there, wanted = cache.get(key.namespace, name), manifest_of(dataset)
        try:
            if there is None:
                written = await self._api.create("Dataset", key.namespace, wanted)
            else:
                written = await self._api.json_patch("Dataset", key.namespace, name, edit_patch(there, wanted))
        except ApiError as error:
            if error.status == CONFLICT:  # the cache is behind a concurrent write
                raise
            if self._state.refuse(key.namespace, refusal_key(name), uid, (error.reason or "Refused", error.message)):
                self._queue.add(key)
            return
        if self._state.refusal(key.namespace, refusal_key(name)) is not None:
            self._state.cancel(key.namespace, refusal_key(name))
            self._queue.add(key)
        if cache.put(written):
            self._queue.add(Key("Dataset", key.namespace, name))
            self._observer.wake_dependants("Dataset", there, written)

    async def _make_identity(self, key: Key, secret: str) -> None:
        """Create a Secret with a new key. If access is denied only log: the pod that needs it reports it missing."""
        try:
            await self._api.create("Secret", key.namespace, job_pod.identity(key.namespace, secret, token_bytes(32)))
        except ApiError as error:
            if error.status not in (403, CONFLICT):
                raise
            if error.status == 403:
                log.warning("%s: the Secret %s could not be created: %s", key, secret, error.message)
        else:
            log.info("%s: Secret %s created", key, secret)

    async def _delete(self, run: Resource) -> None:
        """Delete a run. If a foreign finalizer keeps the object, the watch delivers it again."""
        await self._api.delete(run.kind, run.namespace, run.name, run.metadata.uid)
        log.info("%s %s/%s: deleted: it has ended, and its time is over", run.kind, run.namespace, run.name)
        self._observer.deleted(
            run.kind, {"metadata": {"namespace": run.namespace, "name": run.name, "uid": run.metadata.uid}}
        )

    async def _set_finalizer(self, key: Key, present: bool) -> None:
        obj = self._state.resources[key.kind].get(key.namespace, key.name)
        patch = finalizer_patch(obj, present) if obj is not None else None
        if obj is None or patch is None:
            return
        try:
            self._observer.wrote(key, obj, await self._api.json_patch(key.kind, key.namespace, key.name, patch))
        except ApiError as error:
            if error.status != 404:
                raise
            self._observer.deleted(key.kind, obj)


# JSON patches (RFC 6902) of the operator's own edits; each fails if the resource version has changed.


def finalizer_patch(obj: Object, present: bool) -> list[Object] | None:
    """Return a JSON patch that adds or removes our finalizer; None if there is nothing to change."""
    meta = obj["metadata"]
    finalizers: list[str] = meta.get("finalizers") or []
    if present == (FINALIZER in finalizers):
        return None
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]}
    if not present:
        return [guard, {"op": "remove", "path": f"/metadata/finalizers/{finalizers.index(FINALIZER)}"}]
    if finalizers:
        return [guard, {"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}]
    return [guard, {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}]


def edit_patch(there: Object, wanted: Object) -> list[Object]:
    """Return a JSON patch that replaces an object's spec and adds labels."""
    labels = (there["metadata"].get("labels") or {}) | wanted["metadata"]["labels"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/spec", "value": wanted["spec"]},
    ]
