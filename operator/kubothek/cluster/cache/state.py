"""The observed state, and the :class:`~kubothek.controller.context.Context` through which reconcilers read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from kubothek.api.bounds import BOUNDING, Bound, bounds_of
from kubothek.api.engine import Engine
from kubothek.api.kinds import KINDS, InvalidResource, parse
from kubothek.api.meta import Resource
from kubothek.api.sizes import Sizes
from kubothek.cluster import names
from kubothek.cluster.cache import runs
from kubothek.cluster.cache.derivatives import follow
from kubothek.cluster.cache.job_slots import JobSlots
from kubothek.cluster.cache.objects import Cache, Object, trimmed_pod
from kubothek.cluster.cache.warm_pools import Pools
from kubothek.cluster.pod_status import outcome
from kubothek.controller.context import JobView, Limits, Load, Settings, WarmPool
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.run_index import KINDS as RUNS
from kubothek.controller.run_index import RunIndex

R = TypeVar("R", bound=Resource)
NO_LIMITS: Final = Limits()


@dataclass(slots=True)
class _Trace:
    """Facts about an attempt that its pod does not show."""

    owner_uid: str
    refusal: tuple[str, str] | None = None
    lost: JobView | None = None
    cancelled: bool = False


class ClusterState:
    """The caches, and some facts beyond them: refused launches, lost attempts, why pods do not start.

    A restart may lose those facts without harm: a refused launch is refused again. An attempt without a pod is
    launched again under its own name and finds its earlier work by the commit id.
    """

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        self.dependency_graph = DependencyGraph()
        self.run_index = RunIndex()
        followers = {kind: partial(runs.follow, self.run_index, kind) for kind in RUNS} | {
            "Dataset": partial(follow, self.dependency_graph)
        }
        self.resources: dict[str, Cache[Resource | InvalidResource]] = {
            kind: Cache(_parsed, follow=followers.get(kind)) for kind in KINDS
        }
        self.pods: Cache[JobView | None] = Cache(outcome.ended_view, trimmed_pod)
        """The model of a pod is the outcome of its job, None until the job has ended."""
        self.bounds: dict[str, Cache[tuple[Bound, ...]]] = {kind: Cache(partial(bounds_of, kind)) for kind in BOUNDING}
        """The limits that namespaces set for pods (quotas, limit ranges), by kind."""
        self.job_slots = JobSlots(limits)
        self.pools = Pools()
        self._given: dict[tuple[str, str], str] = {}
        """The pods of jobs that warm drivers took, by namespace and job."""
        self.pod_events: dict[str, Sequence[Object]] = {}
        """Warning events by pod uid, of pods that do not start."""
        self._traces: dict[tuple[str, str], _Trace] = {}
        self._attempts: dict[str, set[tuple[str, str]]] = {}

    def count(self, kind: str) -> int:
        """Return the number of cached objects of a kind."""
        return len(self.cache(kind))

    def cache(self, kind: str) -> Cache[Any]:
        """Return the cache of a kind."""
        return self.pods if kind == "Pod" else self.bounds[kind] if kind in BOUNDING else self.resources[kind]

    def bounds_in(self, namespace: str) -> Sequence[Bound]:
        """Return the limits that a namespace sets for pods."""
        return [bound for cache in self.bounds.values() for found in cache.models(namespace) for bound in found]

    def put_pod(self, pod: Object) -> bool:
        """Store a state of a driver pod; return False if it is not new."""
        if not self.pods.put(pod):
            return False
        self.pools.follow(pod)
        if names.waits(pod):
            return True
        self.job_slots.follow(pod)
        owner = names.controller_of(pod)
        if owner is not None:
            namespace, name, job = pod["metadata"]["namespace"], pod["metadata"]["name"], names.job_of(pod)
            if job != name:
                self._given[namespace, job] = name
            trace = self._trace(namespace, job, owner["uid"])
            trace.refusal = trace.lost = None
        return True

    def pod_of(self, namespace: str, job: str) -> Object | None:
        """Return the driver pod of a job: the warm driver that took it, or the pod of its name."""
        return self.pods.get(namespace, self._given.get((namespace, job), job))

    def remove_pod(self, namespace: str, name: str, uid: str) -> Object | None:
        """Remove a driver pod. Unless we cancelled it, its attempt stays known as ended or lost."""
        pod = self.pods.remove(namespace, name, uid)
        self.pod_events.pop(uid, None)
        if pod is None:
            return None
        if names.waits(pod):
            self.pools.drop(namespace, name)
            return pod
        name = names.job_of(pod)
        self.job_slots.release(namespace, name)
        self._given.pop((namespace, name), None)
        trace = self._traces.get((namespace, name))
        owner = names.controller_of(pod)
        if owner is None or trace is None or trace.owner_uid != owner["uid"]:
            return pod
        if trace.cancelled:
            self._forget(namespace, name)
        else:
            trace.lost = outcome.lost_view(pod)
        return pod

    def unended_pods_of(self, owner_uid: str) -> Iterator[Object]:
        """Yield the driver pods of a resource's jobs that have not ended."""
        for namespace, name in self._attempts.get(owner_uid, ()):
            pod = self.pod_of(namespace, name)
            if pod is not None and self.pods.model(namespace, pod["metadata"]["name"]) is None:
                yield pod

    def job_view(self, namespace: str, name: str, now: datetime) -> JobView | None:
        """Return the attempt of this name, from its pod or as last known."""
        pod = self.pod_of(namespace, name)
        if pod is not None:
            ended = self.pods.model(namespace, pod["metadata"]["name"])
            return ended or outcome.job_view(pod, now, self.pod_events.get(pod["metadata"]["uid"], ()))
        trace = self._traces.get((namespace, name))
        return trace.lost if trace else None

    def cancel(self, namespace: str, name: str) -> None:
        """Note that we stop this attempt: it is forgotten once its pod is gone."""
        trace = self._traces.get((namespace, name))
        if trace is not None and self.pod_of(namespace, name) is not None:
            trace.cancelled = True
        else:
            self._forget(namespace, name)

    def is_cancelled(self, namespace: str, name: str) -> bool:
        """Return whether we stopped the attempt of this name, and its pod still exists."""
        trace = self._traces.get((namespace, name))
        return trace is not None and trace.cancelled

    def refuse(self, namespace: str, name: str, owner_uid: str, refusal: tuple[str, str]) -> bool:
        """Record why (reason, message) the launch of this attempt was refused. Return whether that is new."""
        trace = self._trace(namespace, name, owner_uid)
        news = trace.refusal != refusal
        trace.refusal = refusal
        return news

    def refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return the refusal of the last launch of this attempt; None if it was not refused."""
        trace = self._traces.get((namespace, name))
        return trace.refusal if trace else None

    def forget_owner(self, uid: str) -> None:
        """Forget the attempts of a resource that is gone."""
        self.pools.forget(uid)
        for attempt in self._attempts.pop(uid, ()):
            self._traces.pop(attempt, None)

    def _trace(self, namespace: str, name: str, owner_uid: str) -> _Trace:
        trace = self._traces.get((namespace, name))
        if trace is None or trace.owner_uid != owner_uid:
            self._forget(namespace, name)
            trace = self._traces[namespace, name] = _Trace(owner_uid)
            self._attempts.setdefault(owner_uid, set()).add((namespace, name))
        return trace

    def _forget(self, namespace: str, name: str) -> None:
        trace = self._traces.pop((namespace, name), None)
        if trace is not None:
            attempts = self._attempts[trace.owner_uid]
            attempts.discard((namespace, name))
            if not attempts:
                del self._attempts[trace.owner_uid]


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """A :class:`~kubothek.controller.context.Context` over the state at one moment.

    It is a snapshot because a reconciler never yields to the event loop, and the state changes only there.
    """

    state: ClusterState
    settings: Settings
    now: datetime

    @property
    def load(self) -> Load:
        return self.state.job_slots.load

    @property
    def dependency_graph(self) -> DependencyGraph:
        return self.state.dependency_graph

    @property
    def engine_limits(self) -> Sizes:
        """The operator's size limits for jobs."""
        return self.settings.engine_limits

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        """The operator's defaults for all Engines."""
        return self.settings.engine_defaults

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """Return the limits of the namespace's quotas and limit ranges."""
        return self.state.bounds_in(namespace)

    @property
    def run_index(self) -> RunIndex:
        return self.state.run_index

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        found = self.state.resources[kind.__name__].model(namespace, name)
        return found if isinstance(found, kind) else None

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        return [found for found in self.state.resources[kind.__name__].models(namespace) if isinstance(found, kind)]

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        cache = self.state.resources[kind.__name__]
        names = [obj["metadata"]["name"] for obj in cache.objects(namespace)]
        return [name for name in names if isinstance(cache.model(namespace, name), InvalidResource)]

    def job(self, namespace: str, name: str) -> JobView | None:
        return self.state.job_view(namespace, name, self.now)

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        return self.state.refusal(namespace, name)

    def warm_pool(self, engine: Engine) -> WarmPool:
        return self.state.pools.warm_pool(engine.metadata.uid)


def _parsed(obj: Object) -> Resource | InvalidResource:
    """Return the resource, or why it is invalid. Other resources treat an invalid one as absent."""
    try:
        return parse(obj)
    except InvalidResource as error:
        return error
