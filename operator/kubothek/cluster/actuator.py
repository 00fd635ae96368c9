"""The actions that reconcilers ask for, done: each is idempotent by its name, or guarded by a version."""

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
"""How many waiting drivers are offered a job: who loses each of them to another operator starts a pod."""


class Performer:
    """Does what was decided about one resource at a time. Raises ApiError and ApiUnavailable: then the round failed."""

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
        """Do it, for the resource of this key and uid."""
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
        """The drivers that may take the job. It counts as asked for, whether there is one or not."""
        asked = key_of(action, self._settings)
        if asked is None or action.engine is None:
            return ()
        self._state.pools.note(action.engine.metadata.uid, asked, self._clock())
        self._queue.add(Key("Engine", key.namespace, action.engine.name))
        return list(self._state.pools.ready(key.namespace, asked))[:_DRIVERS_TRIED]

    async def _start_driver(self, key: Key, action: StartDriver) -> None:
        """A refusal fails the round: the next one comes later each time."""
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
        """Create the Dataset, or edit the one that is there and ours, if it is as we know it."""
        cache, name = self._state.resources["Dataset"], dataset.name
        there, wanted = cache.get(key.namespace, name), manifest_of(dataset)
        try:
            if there is None:
                written = await self._api.create("Dataset", key.namespace, wanted)
            else:
                written = await self._api.json_patch("Dataset", key.namespace, name, edit_patch(there, wanted))
        except ApiError as error:
            if error.status == CONFLICT:  # another one came first, and the watch has yet to tell of it
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
        """Create the Secret of a fresh key. Without the right to do so the pod that needs it says what is missing."""
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
        """Delete a run. If a finalizer of others holds it, the watch tells of it again."""
        await self._api.delete(run.kind, run.namespace, run.name, run.metadata.uid)
        log.info("%s %s/%s: deleted: it has ended, and its time is over", run.kind, run.namespace, run.name)
        self._observer.gone(
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
            self._observer.gone(key.kind, obj)


# JSON patches (RFC 6902) of the operator's own edits; each fails if the object is not as we know it.


def finalizer_patch(obj: Object, present: bool) -> list[Object] | None:
    """A JSON patch that adds or removes our finalizer if the object is still as we know it; None if nothing
    is to do.
    """
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
    """A JSON patch that gives an object another spec, and more labels, if it is still as we know it."""
    labels = (there["metadata"].get("labels") or {}) | wanted["metadata"]["labels"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": there["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/labels", "value": labels},
        {"op": "add", "path": "/spec", "value": wanted["spec"]},
    ]
