"""Decisions of the local runtime: reconcilers run over manifests until nothing changes any more.

As in a cluster, the status is written first, then the actions are performed. The loop is level-triggered: it decides
from the manifests, the saved statuses and the jobs. :mod:`kubothek.local.runner` starts the jobs, and
:mod:`kubothek.local.dry_run` only records them.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.dataset import Dataset
from kubothek.api.kinds import KINDS
from kubothek.api.meta import FINALIZER, Resource
from kubothek.api.sync import Sync
from kubothek.api.verification import Verification
from kubothek.controller.context import (
    Action,
    CancelJob,
    JobView,
    LaunchJob,
    MakeIdentity,
    Outcome,
    PutDataset,
    SetFinalizer,
    Settings,
)
from kubothek.controller.kinds.members import refusal_key
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.local.apply import Applied, requested
from kubothek.local.attempt import Attempt
from kubothek.local.context import LocalContext, Objects
from kubothek.local.errors import LocalError
from kubothek.local.manifests import Key, key_of
from kubothek.local.state import admit

CLUSTER_ID = "local"
"""First part of every claim that this runtime makes."""

PATIENCE = timedelta(minutes=1)
"""How long an idle run waits for a resource that will change by time alone."""

_DISTANT = timedelta(days=365)


class ControlLoop(ABC):
    """Reconciliation of applied manifests; subclasses perform the actions."""

    def __init__(self, applied: Applied, clock: Callable[[], datetime]) -> None:
        self.objects = Objects(applied.resources)
        self._states = dict(applied.states)
        self._refusals: dict[tuple[str, str], tuple[str, str]] = {}
        self._clock = clock
        self._settings = Settings(
            cluster_id=CLUSTER_ID,
            allowed_source_hosts=("*",),
            allow_local_sources=True,
            keep_runs=True,
            engines=running_engines(os.environ.get("KUBOTHEK_ENGINES", "")),
            open_lineage_url=os.environ.get("OPENLINEAGE_URL"),
        )
        self._dirty: dict[Key, None] = dict.fromkeys(key_of(resource) for resource in self.objects)
        self._due: dict[Key, datetime] = {}
        self._reconciling: Key | None = None

    def in_order(self) -> list[Resource]:
        """Return all resources in their present state, in the order in which they are applied."""
        kinds = list(KINDS)
        return sorted(
            self.objects, key=lambda resource: (kinds.index(resource.kind), resource.namespace, resource.name)
        )

    # --- actions ---

    @abstractmethod
    def _launch(self, key: Key, action: LaunchJob) -> None:
        """Start the job of a resource."""

    @abstractmethod
    def _cancel(self, key: Key, action: CancelJob) -> None:
        """Stop the job of a resource and forget it."""

    @abstractmethod
    def _make_identity(self, key: Key, action: MakeIdentity) -> None:
        """Create the private key of a dataset."""

    @abstractmethod
    def _save(self, resource: Resource) -> None:
        """Write the resource to its state."""

    @abstractmethod
    def _view(self, namespace: str, job: str) -> JobView | None:
        """Return the attempt for the active reconciler. Everything that it reads belongs to the same store."""

    def _changed(self, before: Resource, after: Resource) -> None:  # noqa: B027 - not every loop reports changes
        """Report a changed status; ``before`` and ``after`` are the same for a new resource."""

    # --- decisions ---

    def _reconcile(self, key: Key) -> None:
        """Decide about one resource, and perform the actions."""
        self._dirty.pop(key, None)
        resource = self.objects.get(key)
        if resource is None:  # another resource refers to it, but no manifest has it
            return
        outcome = self._decide(resource, self._clock())
        self._publish(resource, outcome)
        for action in outcome.actions:
            self._perform(key, action)
        self._due.pop(key, None)
        if outcome.requeue_after is not None:
            self._due[key] = self._clock() + outcome.requeue_after

    def _decide(self, resource: Resource, now: datetime) -> Outcome:
        key = self._reconciling = key_of(resource)
        context = LocalContext(self.objects, self._settings, now, self._view, self._refusals)
        return RECONCILERS[key.kind](resource, context)

    def _attempt(self, reconciling: Key, namespace: str, job: str) -> Attempt | None:
        state = self._states.get(reconciling)
        return Attempt.of(state.jobs, namespace, job) if state is not None else None

    def _uid(self, key: Key) -> str:
        return self.objects[key].metadata.uid

    def _publish(self, resource: Resource, outcome: Outcome) -> None:
        status = type(resource.status).model_validate(outcome.status)
        if status == resource.status:
            return
        changed = resource.model_copy(update={"status": status})
        self._keep(changed)
        # As in a cluster, a new status triggers its own resource as well: after one job may follow the next.
        self._dirty.update(dict.fromkeys((key_of(resource), *self.objects.woken_by(key_of(resource)))))
        self._changed(resource, changed)

    def _perform(self, key: Key, action: Action) -> None:
        if isinstance(action, LaunchJob):
            self._launch(key, action)
        elif isinstance(action, CancelJob):
            self._cancel(key, action)
        elif isinstance(action, PutDataset):
            self._put(key, action.dataset)
        elif isinstance(action, MakeIdentity):
            self._make_identity(key, action)
        elif isinstance(action, SetFinalizer):  # there are no concurrency limits locally
            self._set_finalizer(key, action.present)
        self._dirty[key] = None

    def _put(self, owner: Key, dataset: Dataset) -> None:
        """Save a Dataset that a resource created, in the state of its owner. One with another owner stays unchanged."""
        key, now = key_of(dataset), self._clock()
        there = self.objects.get(key)
        if there is not None and there.controller != dataset.controller:
            return
        admitted, refused = admit(dataset, there, now)
        if refused:
            self._refusals[key.namespace, refusal_key(key.name)] = ("Invalid", "; ".join(map(str, refused)))
            return
        self.objects.add(admitted)
        for about in (key, *self._homeless(key)):
            self._states[about] = self._states[owner]
            self._save(self.objects[about])
        store = self.objects.get(Key("ObjectStore", key.namespace, dataset.spec.store_ref.name))
        if there is None and store is not None:  # inspect now, not at the next interval
            self._keep(requested(store, now))
        self._dirty.update(dict.fromkeys((key, *self.objects.woken_by(key))))
        self._changed(admitted, admitted)

    def _homeless(self, dataset: Key) -> list[Key]:
        """Return the runs on a Dataset without a manifest: from now on, they share its state."""
        found = []
        for resource in self.objects:
            key = key_of(resource)
            about = isinstance(resource, Commit) and resource.subject == ("Dataset", dataset.name)
            if isinstance(resource, Compaction | Verification | Sync):
                about = resource.spec.dataset_ref.name == dataset.name
            if about and key.namespace == dataset.namespace and key not in self._states:
                found.append(key)
        return found

    def _set_finalizer(self, key: Key, present: bool) -> None:
        resource = self.objects[key]
        others = tuple(name for name in resource.metadata.finalizers if name != FINALIZER)
        finalizers = (*others, FINALIZER) if present else others
        metadata = resource.metadata.model_copy(update={"finalizers": finalizers})
        self._keep(resource.model_copy(update={"metadata": metadata}))

    def _keep(self, resource: Resource) -> None:
        key = key_of(resource)
        if key in self._states:
            self._save(resource)
        self.objects.put(resource)

    def _next_step(self) -> datetime | None:
        """Return when an unsettled resource will change by time alone, if that is soon."""
        limit = self._clock() + PATIENCE
        steps = (when for key, when in self._due.items() if when <= limit and self._will_move(key))
        return min(steps, default=None)

    def _will_move(self, key: Key) -> bool:
        """Return whether time alone changes the decision: reconcilers are pure, so it calls one with a later time.

        A resource that waits for another one requests a requeue, but then decides the same again.
        """
        resource = self.objects.get(key)
        if resource is None or is_finished(resource):
            return False
        outcome = self._decide(resource, self._clock() + _DISTANT)
        status = type(resource.status).model_validate(outcome.status)
        return bool(outcome.actions) or status != resource.status


def is_finished(resource: Resource) -> bool:
    """Return whether the resource is ready, or stalled in its present generation."""
    stalled = resource.status.condition("Stalled")
    return resource.ready or (
        stalled is not None and stalled.status == "True" and stalled.observed_generation == resource.metadata.generation
    )


# Engines of other parties that a user started on this machine, from ``KUBOTHEK_ENGINES``.


_ENGINE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<address>[^/\s,]+:[0-9]{1,5})(?P<directory>/[^,]*)"
)


def running_engines(text: str) -> dict[str, tuple[str, str]]:
    """Parse ``NAME=HOST:PORT/DIRECTORY,…`` into listening address and shared directory by name. Raises LocalError."""
    found: dict[str, tuple[str, str]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        if (engine := _ENGINE.fullmatch(part)) is None:
            raise LocalError(
                f"KUBOTHEK_ENGINES: {part!r} is not NAME=HOST:PORT/DIRECTORY, such as flink=127.0.0.1:5544/tmp/engine"
            )
        found[engine["name"].lower()] = (engine["address"], engine["directory"])
    return found
