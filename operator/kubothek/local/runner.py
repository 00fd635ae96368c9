"""Run over manifests: the control loop with its jobs as subprocesses.

It decides from the manifests, the saved statuses and the attempts' files. So the next run continues one that was
interrupted anywhere. It ends when no job runs and no resource will change within PATIENCE by time alone. Then all
resources are ready, have failed, or wait for something that will not happen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue

from kubothek.api.meta import Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.values import ObjectReference
from kubothek.controller.context import CancelJob, JobView, LaunchJob, MakeIdentity
from kubothek.local.apply import Applied
from kubothek.local.attempt import Attempt, Launch
from kubothek.local.credentials import CredentialFiles, make_identity
from kubothek.local.launch import cores, job_environment, render_job
from kubothek.local.loop import ControlLoop
from kubothek.local.manifests import Key, key_of
from kubothek.local.processes import Processes
from kubothek.local.traces import Traces

_PROGRESS_SECONDS = 0.25


class Runner(ControlLoop):
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
        super().__init__(applied, clock)
        self._base = base
        self._on_change: Callable[[Resource], None] = lambda resource: None
        self._traces = Traces()
        self._secrets = applied.secrets
        self._credentials: dict[Key, Path] = {}
        self._keys: dict[Key, Path] = {}
        self._held = ExitStack()
        self._laid_out: dict[Path, Path] = {}
        self._inbox: SimpleQueue[Attempt | None] = SimpleQueue()
        self._processes = Processes(slots, cache(job_environment), self._inbox.put, command)
        self._newest: dict[Key, Attempt] = {}
        self._stopped = False

    @property
    def jobs_started(self) -> int:
        """Number of jobs that this run has started so far."""
        return self._processes.started

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
            self._reconcile(next(iter(self._dirty)))
            self._take_news()

    def _view(self, namespace: str, job: str) -> JobView | None:
        assert self._reconciling is not None, "reconcilers run in _decide"
        attempt = self._attempt(self._reconciling, namespace, job)
        view = self._processes.view(attempt) if attempt is not None else None
        if attempt is not None and view is not None and view.owner_uid == self._uid(self._reconciling):
            self._newest[self._reconciling] = attempt
        return view

    def _launch(self, key: Key, action: LaunchJob) -> None:
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

    def _cancel(self, key: Key, action: CancelJob) -> None:
        attempt = self._attempt(key, action.namespace, action.name)
        if attempt is not None:
            self._processes.cancel(attempt)

    def _make_identity(self, key: Key, action: MakeIdentity) -> None:
        if (key.namespace, action.secret) not in self._secrets:
            make_identity(self._states[key].identity(key))

    def _save(self, resource: Resource) -> None:
        self._states[key_of(resource)].save(resource)

    def _changed(self, before: Resource, after: Resource) -> None:
        if after is not before:
            self._traces.changed(before, after)
        self._on_change(after)

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

    # --- waiting ---

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
        self._end_trace(attempt)
        self._wake_owner(attempt)

    def _end_trace(self, attempt: Attempt) -> None:
        """Report the end of a job to its trace."""
        owner = self.objects.get(attempt.launch.owner) if attempt.launched is not None else None
        if owner is not None:
            self._traces.job_ended(owner, attempt, attempt.ended())

    def _wake_owner(self, attempt: Attempt) -> None:
        self._dirty[attempt.launch.owner] = None
