"""Control loop of the local runtime: reconciles what may have changed until nothing changes any more.

As in a cluster, the status is written first, then the actions are performed. The loop is level-triggered: it decides
from the manifests, the saved statuses and the attempts' files. So the next run continues one that was interrupted
anywhere.

It ends when no job runs and no resource will change within PATIENCE by time alone. Then all resources are ready, have
failed, or wait for something that will not happen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.dataset import Dataset
from kubothek.api.kinds import KINDS
from kubothek.api.meta import FINALIZER, Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.sync import Sync
from kubothek.api.values import ObjectReference
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
from kubothek.local.attempt import Attempt, Launch
from kubothek.local.context import LocalWorld, Objects
from kubothek.local.credentials import CredentialFiles, make_identity
from kubothek.local.errors import LocalError
from kubothek.local.launch import cores, job_environment, render_job
from kubothek.local.manifests import Key, key_of
from kubothek.local.processes import Processes
from kubothek.local.state import admit
from kubothek.local.traces import Traces

CLUSTER_ID = "local"
"""First part of every claim that this runtime makes."""

PATIENCE = timedelta(minutes=1)
"""How long an idle run waits for a resource that will change by time alone."""

_PROGRESS_SECONDS = 0.25
_DISTANT = timedelta(days=365)


class Runner:
    """One run over applied manifests.

    Relative URLs are resolved against ``base``; ``slots`` is how many cores jobs may use at once.
    """

    def __init__(
        self,
        applied: Applied,
        *,
        base: Path,
        slots: int,
        command: tuple[str, ...],
        clock: Callable[[], datetime],
    ) -> None:
        self.objects = Objects(applied.resources)
        self._states = dict(applied.states)
        self._refusals: dict[tuple[str, str], tuple[str, str]] = {}
        self._base = base
        self._clock = clock
        self._on_change: Callable[[Resource], None] = lambda resource: None
        self._settings = Settings(
            cluster_id=CLUSTER_ID,
            allowed_source_hosts=("*",),
            allow_local_sources=True,
            keep_runs=True,
            engines=running_engines(os.environ.get("KUBOTHEK_ENGINES", "")),
            open_lineage_url=os.environ.get("OPENLINEAGE_URL"),
        )
        self._traces = Traces()
        self._secrets = applied.secrets
        self._credentials: dict[Key, Path] = {}
        self._keys: dict[Key, Path] = {}
        self._held = ExitStack()
        self._laid_out: dict[Path, Path] = {}
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()
        self._processes = Processes(slots, cache(job_environment), self._inbox.put, command)
        self._dirty: dict[Key, None] = dict.fromkeys(key_of(resource) for resource in self.objects)
        self._due: dict[Key, datetime] = {}
        self._newest: dict[Key, Attempt] = {}
        self._looking: Key | None = None
        self._stopped = False

    @property
    def jobs_started(self) -> int:
        """Number of jobs that this run has started so far."""
        return self._processes.started

    def in_order(self) -> list[Resource]:
        """Return all resources in their present state, in the order in which they are applied."""
        kinds = list(KINDS)
        return sorted(
            self.objects, key=lambda resource: (kinds.index(resource.kind), resource.namespace, resource.name)
        )

    def log_of(self, key: Key) -> Path | None:
        """Return the log of the newest attempt of a resource that this run has observed."""
        attempt = self._newest.get(key)
        return attempt.log_file if attempt is not None and attempt.log_file.exists() else None

    def stop(self) -> None:
        """End the run as soon as possible; may be called from a signal handler."""
        self._inbox.put(None)

    def run(self, on_change: Callable[[Resource], None]) -> bool:
        """Run to the end. Returns False if stopped: its jobs are ended, and the next run resumes them.

        ``on_change`` is called with every resource whose status changed.
        """
        self._on_change = on_change
        with ExitStack() as held:
            self._held = held
            held.enter_context(self._traces.sending())
            self._lay_out_credentials(held)
            held.callback(self._processes.close)
            while not self._stopped:
                self._reconcile_dirty()
                step = None if self._processes.busy else self._next_step()
                if step is None and not self._processes.busy:
                    break
                self._await_news(step)
        return not self._stopped

    def _lay_out_credentials(self, held: ExitStack) -> None:
        """Write the Secrets of stores to the directories that interrupted jobs of an earlier run use as well."""
        for store in self.objects:
            if isinstance(store, ObjectStore):
                self._lay_out(store, store.spec.credentials_secret_ref, "credentials", self._credentials, held)
                self._lay_out(store, store.spec.keys_secret_ref, "keys", self._keys, held)

    def _lay_out(
        self,
        store: ObjectStore,
        secret: ObjectReference | None,
        where: str,
        directories: dict[Key, Path],
        held: ExitStack,
    ) -> None:
        contents = self._secrets.get((store.namespace, secret.name)) if secret is not None else None
        if contents is not None:
            key = key_of(store)
            directory = self._states[key].root / where / key.namespace / key.name
            directories[key] = held.enter_context(CredentialFiles(directory, contents))

    # --- deciding and acting ---

    def _reconcile_dirty(self) -> None:
        while self._dirty and not self._stopped:
            key = next(iter(self._dirty))
            del self._dirty[key]
            resource = self.objects.get(key)
            if resource is None:  # another resource refers to it, but no manifest has it
                continue
            outcome = self._decide(resource, self._clock())
            self._publish(resource, outcome)
            for action in outcome.actions:
                self._perform(key, action)
            self._due.pop(key, None)
            if outcome.requeue_after is not None:
                self._due[key] = self._clock() + outcome.requeue_after
            self._take_news()

    def _decide(self, resource: Resource, now: datetime) -> Outcome:
        key = self._looking = key_of(resource)
        world = LocalWorld(self.objects, self._settings, now, self._view, self._refusals)
        return RECONCILERS[key.kind](resource, world)

    def _view(self, namespace: str, job: str) -> JobView | None:
        """Return the attempt for the active reconciler. Everything that it reads belongs to the same store."""
        assert self._looking is not None, "reconcilers run in _decide"
        attempt = self._attempt(self._looking, namespace, job)
        view = self._processes.view(attempt) if attempt is not None else None
        if attempt is not None and view is not None and view.owner_uid == self._uid(self._looking):
            self._newest[self._looking] = attempt
        return view

    def _attempt(self, looking: Key, namespace: str, job: str) -> Attempt | None:
        state = self._states.get(looking)
        return Attempt.of(state.jobs, namespace, job) if state is not None else None

    def _uid(self, key: Key) -> str:
        return self.objects[key].metadata.uid

    def _publish(self, resource: Resource, outcome: Outcome) -> None:
        status = type(resource.status).model_validate(outcome.status)
        if status == resource.status:
            return
        changed = resource.model_copy(update={"status": status})
        self._keep(changed)
        self._traces.changed(resource, changed)
        # As in a cluster, a new status triggers its own resource as well: after one job may follow the next.
        self._dirty.update(dict.fromkeys((key_of(resource), *self.objects.woken_by(key_of(resource)))))
        self._on_change(changed)

    def _perform(self, key: Key, action: Action) -> None:
        if isinstance(action, LaunchJob):
            attempt = self._attempt(key, key.namespace, action.job.job)
            assert attempt is not None, "a job has a store, and what has a store has a state"
            spec = render_job(action, self._base, self._credentials, self._keys, self._mounted(key, action))
            launch = Launch(
                owner=key,
                owner_uid=self._uid(key),
                cores=cores(action),
                traceparent=self._traces.traceparent(action),
            )
            with self._traces.launching(action):
                self._processes.launch(attempt, spec, launch)
        elif isinstance(action, CancelJob):
            attempt = self._attempt(key, action.namespace, action.name)
            if attempt is not None:
                self._processes.cancel(attempt)
        elif isinstance(action, PutDataset):
            self._put(key, action.dataset)
        elif isinstance(action, MakeIdentity):
            if (key.namespace, action.secret) not in self._secrets:
                make_identity(self._states[key].identity(key))
        elif isinstance(action, SetFinalizer):  # there are no concurrency limits locally
            self._set_finalizer(key, action.present)
        self._dirty[key] = None

    def _mounted(self, key: Key, action: LaunchJob) -> dict[str, Path]:
        """Return the local directories of a job's other Secrets: from the manifests, otherwise the generated key."""
        found = {}
        for where, secret in action.mounts.items():
            contents = self._secrets.get((key.namespace, secret))
            if contents is None:
                found[where] = self._states[key].identity(key)
                continue
            directory = self._states[key].root / "secrets" / key.namespace / secret
            found[where] = self._laid_out.get(directory) or self._held.enter_context(
                CredentialFiles(directory, contents)
            )
            self._laid_out[directory] = found[where]
        return found

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
            self._states[about].save(self.objects[about])
        store = self.objects.get(Key("ObjectStore", key.namespace, dataset.spec.store_ref.name))
        if there is None and store is not None:  # inspect now, not at the next interval
            self._keep(requested(store, now))
        self._dirty.update(dict.fromkeys((key, *self.objects.woken_by(key))))
        self._on_change(admitted)

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
            self._states[key].save(resource)
        self.objects.put(resource)

    # --- waiting ---

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
        if resource is None or settled(resource):
            return False
        outcome = self._decide(resource, self._clock() + _DISTANT)
        status = type(resource.status).model_validate(outcome.status)
        return bool(outcome.actions) or status != resource.status

    def _await_news(self, step: datetime | None) -> None:
        """Block until a job ends, or until ``step``; without it, until the next check for progress."""
        self._take_news((step - self._clock()).total_seconds() if step is not None else _PROGRESS_SECONDS)
        for attempt in self._processes.read_progress():
            self._wake_owner(attempt)
        now = self._clock()
        self._dirty.update({key: None for key, when in self._due.items() if when <= now})

    def _take_news(self, seconds: float = 0.0) -> None:
        try:
            attempt = self._inbox.get(block=seconds > 0, timeout=seconds if seconds > 0 else None)
        except Empty:
            return
        if attempt is None:
            self._stopped = True
            return
        self._processes.reap(attempt)
        self._tell_end(attempt)
        self._wake_owner(attempt)

    def _tell_end(self, attempt: Attempt) -> None:
        """Report the end of a job to its trace."""
        owner = self.objects.get(attempt.launch.owner) if attempt.launched is not None else None
        if owner is not None:
            self._traces.job_ended(owner, attempt, attempt.ended())

    def _wake_owner(self, attempt: Attempt) -> None:
        self._dirty[attempt.launch.owner] = None


def settled(resource: Resource) -> bool:
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
