"""Run over manifests that records its jobs instead of starting them: the same decisions, and no write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from kubothek.api.jobs import JobResult
from kubothek.api.meta import Resource
from kubothek.controller.context import CancelJob, FailureClass, JobPhase, JobView, LaunchJob, MakeIdentity
from kubothek.local.apply import Applied, requested
from kubothek.local.loop import PATIENCE, ControlLoop
from kubothek.local.manifests import Key

_JOB_TIME: Final = timedelta(seconds=1)
"""How long a simulated job takes: two inspections must not begin in the same second."""


class DryRun(ControlLoop):
    """Dry run over applied manifests; it inspects every store.

    ``simulate`` returns the result that a job would report. Jobs of earlier runs keep their results; one that was
    interrupted counts as lost.
    """

    def __init__(self, applied: Applied, simulate: Callable[[LaunchJob], JobResult], now: datetime) -> None:
        stores = {key: requested(store, now) for key, store in applied.resources.items() if key.kind == "ObjectStore"}
        super().__init__(replace(applied, resources={**applied.resources, **stores}), lambda: self._now)
        self._simulate = simulate
        self._now = now
        self._views: dict[tuple[str, str], JobView | None] = {}

    def run(self) -> None:
        """Decide until nothing changes any more. Time that a run would wait passes at once."""
        waited = timedelta(0)
        while True:
            while self._dirty:
                self._reconcile(next(iter(self._dirty)))
            step = self._next_step()
            if step is None or waited > PATIENCE:
                return
            waited += max(step - self._now, timedelta(0))
            self._now = max(self._now, step)
            self._dirty.update({key: None for key, when in self._due.items() if when <= self._now})

    def _launch(self, key: Key, action: LaunchJob) -> None:
        self._now += _JOB_TIME
        result, job = self._simulate(action), action.job
        succeeded = result.outcome == "Succeeded"
        self._views[key.namespace, job.job] = JobView(
            job.job,
            job.attempt,
            JobPhase.SUCCEEDED if succeeded else JobPhase.FAILED,
            result.reason,
            result.message,
            failure=None if succeeded else FailureClass.REPORT,
            result=result,
            since=self._now,
            owner_uid=self._uid(key),
        )

    def _cancel(self, key: Key, action: CancelJob) -> None:
        self._views[action.namespace, action.name] = None

    def _view(self, namespace: str, job: str) -> JobView | None:
        assert self._reconciling is not None, "reconcilers run in _decide"
        if (namespace, job) in self._views:
            return self._views[namespace, job]
        attempt = self._attempt(self._reconciling, namespace, job)
        return attempt.ended() if attempt is not None else None

    def _make_identity(self, key: Key, action: MakeIdentity) -> None:
        """Do nothing: no job reads the key."""

    def _save(self, resource: Resource) -> None:
        """Do nothing."""
