"""The control loop: takes a key from the queue, asks the reconciler, publishes the status, then performs the
actions.

Order matters and is the same for every resource: status first (write-ahead: an attempt is announced before it
is launched), then actions, then events. Any step may fail or be repeated; the next round starts from what is,
not from what was meant, so each write is either idempotent by its name or guarded by a version.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_bytes

from kubothek.reconcile.kinds import invalid
from kubothek.reconcile.kinds.members import refusal_key
from kubothek.reconcile.reconcilers import Reconciler
from kubothek.reconcile.running.warming import key_of
from kubothek.reconcile.world import (
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
from kubothek.resources.dataset import Dataset
from kubothek.resources.kinds import KINDS, InvalidResource, manifest_of
from kubothek.resources.meta import API_VERSION, Resource
from kubothek.runtime.kubernetes import names
from kubothek.runtime.kubernetes.api import Api, ApiError, ApiUnavailable, Object
from kubothek.runtime.kubernetes.launch import Launcher, Refused
from kubothek.runtime.kubernetes.manifests import pods
from kubothek.runtime.kubernetes.names import controller_of
from kubothek.runtime.kubernetes.observed import looks
from kubothek.runtime.kubernetes.observed.dependants import dependants
from kubothek.runtime.kubernetes.observed.state import ClusterState, ClusterWorld
from kubothek.runtime.kubernetes.outcomes import outcome
from kubothek.runtime.kubernetes.patches import edit_patch, finalizer_patch
from kubothek.runtime.kubernetes.queue import Key, WorkQueue
from kubothek.runtime.kubernetes.telemetry.events import EventRecorder
from kubothek.runtime.kubernetes.telemetry.logs import round_of
from kubothek.runtime.kubernetes.telemetry.metrics import Metrics
from kubothek.runtime.kubernetes.telemetry.traces import Traces

log = logging.getLogger(__name__)


RECONCILE_TIMEOUT = 60.0
"""Seconds for one round over one resource, all its API calls included."""
_EVENTS_REFRESH = timedelta(seconds=30)
_OF_OTHERS = ("generation", "deletionTimestamp", "annotations", "labels")
"""Metadata that none of our writes changes."""
_CONFLICT = 409
_DRIVERS_TRIED = 3
"""How many waiting drivers are offered a job: who loses each of them to another operator starts a pod."""
_SPREAD = 20.0
"""Seconds by which another look may be late: less than any deadline of a schedule."""


class Controller:
    """Keeps every resource's cluster-side state in step with its spec."""

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
        self._launcher = launcher
        self._recorder = recorder
        self._reconcilers = reconcilers
        self.clock = clock
        self._rng = random.Random()
        self.queue = WorkQueue() if queue is None else queue
        self.metrics = Metrics() if metrics is None else metrics
        self._traces = Traces(0.0) if traces is None else traces
        self.state = ClusterState()

    # --- what is seen ---------------------------------------------------------------------------------------

    def observe(self, kind: str, obj: Object) -> bool:
        """A state of an object, from a watch or a listing. Whether it is news: then what depends on it is queued."""
        meta = obj["metadata"]
        if kind == "Pod":
            known = self.state.pods.get(meta["namespace"], meta["name"])
            news = self.state.put_pod(obj)
            if news:
                self.metrics.pod(known, obj)
                self._traces.pod(known, obj, self._owner_of(obj))
                self._wake_owner(obj)
                if known is not None and names.waits(known):  # maybe it does no longer
                    self._wake_owner(known)
            self._wake_waiting()
            return news
        before = self.state.resources[kind].get(meta["namespace"], meta["name"])
        news = self.state.resources[kind].put(obj)
        if news:
            self.metrics.resource(kind, before, obj)
            self._traces.resource(kind, before, obj)
            edited = before is not None and before["metadata"].get("generation") != meta.get("generation")
            self.queue.add(Key(kind, meta["namespace"], meta["name"]), urgent=edited)
            self._wake_dependants(kind, before, obj)
        return news

    def gone(self, kind: str, obj: Object) -> bool:
        """The object was deleted. Whether that is news."""
        meta = obj["metadata"]
        namespace, name, uid = meta["namespace"], meta["name"], meta["uid"]
        if kind == "Pod":
            known = self.state.pods.get(namespace, name)
            self._traces.pod(known, obj, self._owner_of(obj))
            self.state.put_pod(obj)  # the watch's last word on it may hold its end
            cancelled = self.state.is_cancelled(namespace, names.job_of(obj))
            last = self.state.remove_pod(namespace, name, uid)
            if last is not None:
                self.metrics.pod_gone(known, last, cancelled=cancelled)
                self._wake_owner(obj)
            self._wake_waiting()
            return last is not None
        found = self.state.resources[kind].remove(namespace, name, uid) is not None
        if found:
            self.state.forget_owner(uid)
            self.queue.forget(Key(kind, namespace, name))
            self.state.places.withdraw(Key(kind, namespace, name))
            self._wake_dependants(kind, obj, None)
            self._wake_waiting()
        return found

    def _wake_owner(self, pod: Object) -> None:
        reference, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if reference is None or reference["kind"] not in KINDS:
            return
        if self._owner_of(pod) is None:
            self.state.forget_owner(reference["uid"])
            return
        self.queue.add(Key(reference["kind"], namespace, reference["name"]))

    def _owner_of(self, pod: Object) -> Object | None:
        """The resource that a job is of; None if it is gone, or another one of its name is there."""
        reference, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if reference is None or reference["kind"] not in KINDS:
            return None
        owner = self.state.resources[reference["kind"]].get(namespace, reference["name"])
        return owner if owner is not None and owner["metadata"]["uid"] == reference["uid"] else None

    def _wake_dependants(self, kind: str, before: Object | None, after: Object | None) -> None:
        if kind == "ObjectStore":
            for key in looks.told_of(self.state, before, after):
                self.queue.add(key, urgent=True)
        for key in dependants(self.state, kind, before, after):
            self.queue.add(key)

    def _wake_waiting(self) -> None:
        """Places may have become free."""
        for key in self.state.places.woken():
            self.queue.add(key)

    # --- what is done ---------------------------------------------------------------------------------------

    async def work(self) -> None:
        """One worker: reconcile what the queue hands out, for ever, whatever goes wrong with one key."""
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
                self.state.places.answered(key)
                self._wake_waiting()

    def world(self) -> ClusterWorld:
        """What is known now."""
        return ClusterWorld(self.state, self._settings, self.clock())

    async def reconcile(self, key: Key) -> float | None:
        """One round over one resource. Returns the seconds after which to look again, if so."""
        cache, began = self.state.resources[key.kind], datetime.now(UTC)
        wake = await self._look_closer(cache.get(key.namespace, key.name))
        obj, resource = cache.get(key.namespace, key.name), cache.model(key.namespace, key.name)
        if obj is None or resource is None:
            return None
        world = self.world()
        if isinstance(resource, InvalidResource):
            decided = invalid.reconcile(obj, resource, world.now)
        else:
            decided = self._reconcilers[key.kind](resource, world)
        with self._places_for(key, decided.actions):
            if not await self._publish(key, obj, decided.status):
                return None
            for action in decided.actions:
                await self._perform(key, obj["metadata"]["uid"], action)
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

    @contextmanager
    def _places_for(self, key: Key, actions: Sequence[Action]) -> Iterator[None]:
        try:
            with self.state.places.decided(key, actions):
                yield
        finally:
            self._wake_waiting()

    async def _look_closer(self, obj: Object | None) -> list[timedelta]:
        """Fetch what the caches lack about the resource's pods; returns when to look at them again."""
        wake: list[timedelta] = []
        now = self.clock()
        for pod in list(self.state.pods_of(obj["metadata"]["uid"])) if obj is not None else ():
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
        """Write the status unless it is there already. False if the object is gone, or is not what was looked at."""
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
            if error.status != _CONFLICT:
                raise
            # Somebody changed it meanwhile: an editor, or another operator. What was decided holds no more.
            if (newer := await self._api.get(key.kind, key.namespace, key.name)) is not None:
                self.observe(key.kind, newer)
            return False
        if written is None:
            self.gone(key.kind, obj)
            return False
        self._wrote(key, obj, written)
        return True

    def _wrote(self, key: Key, before: Object, written: Object) -> None:
        """Our own write: known at once, and no reason to look at the resource again.

        Unless its answer tells what others did meanwhile: the watch will tell it as well, but as nothing new.
        """
        if self.state.resources[key.kind].put(written):
            self.metrics.resource(key.kind, before, written)
            self._traces.resource(key.kind, before, written)
            self._wake_dependants(key.kind, before, written)
            if any(written["metadata"].get(name) != before["metadata"].get(name) for name in _OF_OTHERS):
                self.queue.add(key)

    async def _perform(self, key: Key, uid: str, action: Action) -> None:
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
            if self.state.refuse(key.namespace, action.job.job, uid, refusal):
                log.info("%s: job %s refused: %s: %s", key, action.job.job, *refusal)
                self.queue.add(key)
            return
        log.info("%s: job %s launched", key, action.job.job, extra={"job": action.job.job, "verb": action.job.verb})
        self.observe("Pod", launched)

    def _waiting(self, key: Key, action: LaunchJob) -> Sequence[str]:
        """The drivers that may take the job. It counts as asked for, whether there is one or not."""
        asked = key_of(action, self._settings)
        if asked is None or action.engine is None:
            return ()
        self.state.pools.note(action.engine.metadata.uid, asked, self.clock())
        self.queue.add(Key("Engine", key.namespace, action.engine.name))
        return list(self.state.pools.ready(key.namespace, asked))[:_DRIVERS_TRIED]

    async def _start_driver(self, key: Key, action: StartDriver) -> None:
        """A refusal fails the round: the next one comes later each time."""
        started = await self._launcher.start_driver(action)
        log.info("%s: driver %s started, to wait for jobs", key, action.name)
        self.observe("Pod", started)

    async def _stop_driver(self, action: StopDriver) -> None:
        driver = self.state.pods.get(action.namespace, action.name)
        if driver is not None and names.waits(driver):
            await self._launcher.stop_driver(action.namespace, driver)

    async def _cancel(self, key: Key, uid: str, action: CancelJob) -> None:
        self.state.cancel(action.namespace, action.name)
        known = self.state.pod_of(action.namespace, action.name)
        pod = None if known is None else known["metadata"]["name"]
        ending = await self._launcher.cancel(action.namespace, action.name, uid, pod)
        if ending is None and known is not None:
            self.state.remove_pod(action.namespace, known["metadata"]["name"], known["metadata"]["uid"])
            self.queue.add(key)

    async def _put(self, key: Key, uid: str, dataset: Dataset) -> None:
        """Create the Dataset, or edit the one that is there and ours, if it is as we know it."""
        cache, name = self.state.resources["Dataset"], dataset.name
        there, wanted = cache.get(key.namespace, name), manifest_of(dataset)
        try:
            if there is None:
                written = await self._api.create("Dataset", key.namespace, wanted)
            else:
                written = await self._api.json_patch("Dataset", key.namespace, name, edit_patch(there, wanted))
        except ApiError as error:
            if error.status == _CONFLICT:  # another one came first, and the watch has yet to tell of it
                raise
            if self.state.refuse(key.namespace, refusal_key(name), uid, (error.reason or "Refused", error.message)):
                self.queue.add(key)
            return
        if self.state.refusal(key.namespace, refusal_key(name)) is not None:
            self.state.cancel(key.namespace, refusal_key(name))
            self.queue.add(key)
        if cache.put(written):
            self.queue.add(Key("Dataset", key.namespace, name))
            self._wake_dependants("Dataset", there, written)

    async def _make_identity(self, key: Key, secret: str) -> None:
        """Create the Secret of a fresh key. Without the right to do so the pod that needs it says what is missing."""
        try:
            await self._api.create("Secret", key.namespace, pods.identity(key.namespace, secret, token_bytes(32)))
        except ApiError as error:
            if error.status not in (403, _CONFLICT):
                raise
            if error.status == 403:
                log.warning("%s: the Secret %s could not be created: %s", key, secret, error.message)
        else:
            log.info("%s: Secret %s created", key, secret)

    async def _delete(self, run: Resource) -> None:
        """Delete a run. If a finalizer of others holds it, the watch tells of it again."""
        await self._api.delete(run.kind, run.namespace, run.name, run.metadata.uid)
        log.info("%s %s/%s: deleted: it has ended, and its time is over", run.kind, run.namespace, run.name)
        self.gone(run.kind, {"metadata": {"namespace": run.namespace, "name": run.name, "uid": run.metadata.uid}})

    async def _set_finalizer(self, key: Key, present: bool) -> None:
        obj = self.state.resources[key.kind].get(key.namespace, key.name)
        patch = finalizer_patch(obj, present) if obj is not None else None
        if obj is None or patch is None:
            return
        try:
            self._wrote(key, obj, await self._api.json_patch(key.kind, key.namespace, key.name, patch))
        except ApiError as error:
            if error.status != 404:
                raise
            self.gone(key.kind, obj)


def spread(seconds: float, rng: random.Random) -> float:
    """A wait, a little longer by chance, so that not all looks that were planned together come together."""
    return seconds + rng.uniform(0.0, min(seconds * 0.05, _SPREAD))


def without_none(value: Mapping[str, object]) -> dict[str, object]:
    """The mapping without its None values, at every depth: the API server drops them, so ours must not have them."""
    return {k: _without_none(v) for k, v in value.items() if v is not None}


def _without_none(value: object) -> object:
    if isinstance(value, Mapping):
        return without_none(value)
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
