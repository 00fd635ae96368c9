"""A context in memory: what a runtime does, without anything behind it.

``Fake.reconcile`` publishes the status, then performs the actions, as runtimes do, and checks every outcome on the way:
kstatus' invariants, that the schema keeps every field, that deciding again decides the same, and write-ahead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from kubothek.api import jobs
from kubothek.api.bounds import Bound, bounds_of
from kubothek.api.commit import Commit
from kubothek.api.dataset import TASK_FIELDS, Dataset
from kubothek.api.engine import Engine
from kubothek.api.kinds import manifest_of, parse
from kubothek.api.meta import FINALIZER, Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.sizes import Sizes
from kubothek.controller.context import (
    AwaitSlot,
    CancelJob,
    DeleteRun,
    Event,
    FailureClass,
    JobPhase,
    JobSlot,
    JobView,
    LaunchJob,
    Load,
    MakeIdentity,
    Outcome,
    PutDataset,
    SetFinalizer,
    Settings,
    StartDriver,
    StopDriver,
    WarmDriver,
    WarmPool,
)
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.derivation import identity, references
from kubothek.controller.reconcilers import RECONCILERS
from kubothek.controller.run_index import RunIndex, change_of
from kubothek.controller.scheduling.attempts import job_name
from tests import kstatus

R = TypeVar("R", bound=Resource)
START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NAMESPACE = "team"
_ANNOUNCED = {
    "inspect": "last_inspection",
    "delete": "deletion",
    "restore": "restoration",
    **TASK_FIELDS,
    "intake": "intake",
    "collect": "round",
    "skip-files": "refresh",
    "sync": "run",
}
"""Where a status announces an attempt, if not in the status itself; a Compaction has it there."""


class Fake:
    """The context and the runtime around it."""

    def __init__(self, **settings: Any) -> None:
        self.now = START
        self.settings = Settings(cluster_id="cluster", default_image="image:1", **settings)
        self.resources: dict[tuple[str, str], Resource] = {}
        self.jobs: dict[str, JobView] = {}
        self.load = Load()
        self.bounding: list[dict[str, Any]] = []
        """ResourceQuotas and LimitRanges."""
        self.refusals: dict[str, tuple[str, str]] = {}
        self.unreadable: dict[str, tuple[str, ...]] = {}
        """Names of invalid resources, by kind."""
        self.launches: list[LaunchJob] = []
        self.awaited: list[JobSlot] = []
        self.drivers: dict[str, WarmDriver] | None = None
        """Those that wait for jobs; None where there are none."""
        self.asked: dict[str, list[datetime]] = {}
        self.cancelled: list[str] = []
        self.identities: list[str] = []
        """Secrets that were asked for."""
        self.events: list[Event] = []
        self._uids = 0

    # --- Context ---

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        found = self.resources.get((kind.__name__, name))
        assert found is None or isinstance(found, kind)
        return found if namespace == NAMESPACE else None

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        return [r for r in self.resources.values() if isinstance(r, kind)] if namespace == NAMESPACE else []

    @property
    def dependency_graph(self) -> DependencyGraph:
        found = DependencyGraph()
        for each in self.list(Dataset, NAMESPACE):
            found.put(NAMESPACE, each.name, references(each), identity(each))
        return found

    @property
    def engine_limits(self) -> Sizes:
        return self.settings.engine_limits

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        return self.settings.engine_defaults

    def bounds(self, namespace: str) -> Sequence[Bound]:
        return [bound for each in self.bounding for bound in bounds_of(each["kind"], each)]

    @property
    def run_index(self) -> RunIndex:
        found = RunIndex()
        for each in self.resources.values():
            found.put(each.kind, NAMESPACE, each.name, change_of(each))
        return found

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        return self.unreadable.get(kind.__name__, ()) if namespace == NAMESPACE else ()

    def job(self, namespace: str, name: str) -> JobView | None:
        return self.jobs.get(name) if namespace == NAMESPACE else None

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        return self.refusals.get(name) if namespace == NAMESPACE else None

    def warm_pool(self, engine: Engine) -> WarmPool | None:
        return None if self.drivers is None else WarmPool(tuple(self.drivers.values()), self.asked)

    # --- what a person does ---

    def create(self, kind: str, name: str, spec: Mapping[str, Any], **metadata: Any) -> None:
        self._uids += 1
        given = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{self._uids}",
            "creationTimestamp": self.now.isoformat(),
        }
        manifest = {
            "apiVersion": "kubothek.io/v1alpha1",
            "kind": kind,
            "metadata": given | metadata,
            "spec": dict(spec),
        }
        self.resources[kind, name] = parse(manifest)

    def edit(self, kind: str, name: str, **spec: Any) -> None:
        """Change fields of a spec; a new generation."""
        old = self.resources[kind, name]
        changed = old.spec.model_dump(mode="json", by_alias=True, exclude_unset=True) | spec
        new_spec = type(old.spec).model_validate_json(json.dumps(changed))
        metadata = old.metadata.model_copy(update={"generation": old.metadata.generation + 1})
        self.resources[kind, name] = old.model_copy(update={"spec": new_spec, "metadata": metadata})

    def annotate(self, kind: str, name: str, **annotations: str) -> None:
        self._metadata(kind, name, annotations={f"kubothek.io/{key}": value for key, value in annotations.items()})

    def delete(self, kind: str, name: str) -> None:
        """As the API server does: gone at once, unless a finalizer holds it."""
        if self.resources[kind, name].metadata.finalizers:
            self._metadata(kind, name, deletion_timestamp=self.now)
        else:
            del self.resources[kind, name]

    def pass_time(self, span: timedelta) -> None:
        self.now += span

    # --- what a job does ---

    def job_is(self, name: str, phase: JobPhase, reason: str = "", message: str = "", **changes: Any) -> None:
        self.jobs[name] = replace(
            self.jobs[name], phase=phase, reason=reason, message=message or (reason and f"{reason} happened"), **changes
        )

    def job_runs(self, name: str, progress: jobs.Progress | None = None) -> None:
        self.job_is(name, JobPhase.RUNNING, progress=progress)

    def job_ends(self, name: str, **result: Any) -> None:
        given = jobs.JobResult(outcome="Succeeded", reason="Succeeded", message="done", **result)
        self.job_is(name, JobPhase.SUCCEEDED, result=given, since=self.now)

    def job_fails(self, name: str, failure: FailureClass, reason: str, message: str = "it went wrong") -> None:
        self.job_is(name, JobPhase.FAILED, reason, message, failure=failure)

    def job_vanishes(self, name: str) -> None:
        del self.jobs[name]

    # --- what a runtime does ---

    def reconcile(self, kind: str, name: str) -> Outcome:
        """One round over one resource."""
        resource = self.resources[kind, name]
        outcome = RECONCILERS[kind](resource, self)
        assert RECONCILERS[kind](resource, self) == outcome, "deciding again must decide the same"
        before = resource.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not resource.deleting and not resource.frozen:
            assert kstatus.check(resource.metadata.generation, outcome.status, before) == []
        self.publish(kind, name, outcome)
        for action in outcome.actions:
            self._perform(kind, name, action)
        self.events.extend(outcome.events)
        return outcome

    def publish(self, kind: str, name: str, outcome: Outcome) -> None:
        """Write the status, and nothing else."""
        resource = self.resources[kind, name]
        model = type(resource).model_fields["status"].annotation
        assert model is not None
        status = model.model_validate(outcome.status)
        assert status.model_dump(mode="json", by_alias=True, exclude_none=True) == outcome.status
        self.resources[kind, name] = resource.model_copy(update={"status": status})

    def settle(self, kind: str, name: str) -> Outcome:
        """Rounds until the status does not change any more; the last must have nothing left to say."""
        for _ in range(5):
            before = self.resources[kind, name].status
            outcome = self.reconcile(kind, name)
            if (kind, name) not in self.resources or self.resources[kind, name].status == before:
                assert outcome.events == ()
                return outcome
        raise AssertionError(f"the status of {kind} {name} does not settle")

    def _perform(self, kind: str, name: str, action: object) -> None:
        match action:
            case LaunchJob(job):
                self._check_announced(kind, name, job)
                self.launches.append(action)
                if job.job not in self.jobs and job.job not in self.refusals:
                    self.jobs[job.job] = JobView(job.job, job.attempt, JobPhase.PENDING, owner_uid=job.uid)
            case StartDriver(driver, key):
                assert self.drivers is not None
                assert driver not in self.drivers, "names do not come again"
                assert self.engine.status.warm is not None
                assert int(driver.rpartition("-")[2]) <= self.engine.status.warm.last, "a driver that was not announced"
                self.drivers[driver] = WarmDriver(driver, key, "Starting", self.now)
            case StopDriver(_, driver):
                assert self.drivers is not None
                del self.drivers[driver]
            case CancelJob(_, job_):
                self.cancelled.append(job_)
                self.jobs.pop(job_, None)
            case AwaitSlot(slot):
                self.awaited.append(slot)
            case PutDataset(put):
                self._put(put)
            case MakeIdentity(secret):
                self.identities.append(secret)
            case DeleteRun(run):
                del self.resources[run.kind, run.name]
            case SetFinalizer(present):
                self._metadata(kind, name, finalizers=(FINALIZER,) if present else ())
                if not present and self.resources[kind, name].deleting:
                    del self.resources[kind, name]

    def _put(self, put: Dataset) -> None:
        """As an API server does: what is there keeps its identity, and takes the spec and the labels."""
        manifest = manifest_of(put)
        there = self.resources.get(("Dataset", put.name))
        if there is None:
            metadata = manifest["metadata"]
            self.create(
                "Dataset", put.name, manifest["spec"], **{k: metadata[k] for k in ("labels", "ownerReferences")}
            )
            return
        assert there.controller == put.controller, "a Dataset of somebody else is left alone"
        spec = parse(manifest | {"metadata": {"name": put.name}}).spec
        changes = {"generation": there.metadata.generation + 1, "labels": there.metadata.labels | put.metadata.labels}
        metadata_now = there.metadata.model_copy(update=changes)
        self.resources["Dataset", put.name] = there.model_copy(update={"spec": spec, "metadata": metadata_now})

    def _check_announced(
        self,
        kind: str,
        name: str,
        job: Any,
    ) -> None:
        status: Any = self.resources[kind, name].status
        where = None if kind == "Compaction" else _ANNOUNCED.get(job.verb)
        if job.verb == "skip-files" and job.drop:
            where = "removal"
        announced = getattr(status, where) if where else status
        assert announced.attempt == job.attempt, "an attempt is launched that the status does not announce"

    def _metadata(self, kind: str, name: str, **changes: Any) -> None:
        old = self.resources[kind, name]
        self.resources[kind, name] = old.model_copy(update={"metadata": old.metadata.model_copy(update=changes)})

    # --- what is there now ---

    def condition(self, kind: str, name: str) -> tuple[str, str]:
        """Ready's status and reason."""
        ready = self.resources[kind, name].status.condition("Ready")
        assert ready is not None
        return ready.status, ready.reason

    def message(self, kind: str, name: str) -> str:
        ready = self.resources[kind, name].status.condition("Ready")
        assert ready is not None
        return ready.message

    def kstatus(self, kind: str, name: str) -> str:
        """What kstatus makes of it."""
        resource = self.resources[kind, name]
        metadata = {
            "generation": resource.metadata.generation,
            "deletionTimestamp": resource.metadata.deletion_timestamp,
        }
        status = resource.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        return kstatus.compute({"metadata": metadata, "status": status})

    @property
    def store(self) -> ObjectStore:
        found = self.resources["ObjectStore", "lake"]
        assert isinstance(found, ObjectStore)
        return found

    @property
    def dataset(self) -> Dataset:
        found = self.resources["Dataset", "flights"]
        assert isinstance(found, Dataset)
        return found

    def commit(self, name: str = "january") -> Commit:
        found = self.resources["Commit", name]
        assert isinstance(found, Commit)
        return found

    @property
    def engine(self) -> Engine:
        found = self.resources["Engine", "default"]
        assert isinstance(found, Engine)
        return found


STORE_SPEC = {"url": "s3://bucket/lake"}
DATASET_SPEC = {"storeRef": {"name": "lake"}}
COMMIT_SPEC = {
    "datasetRef": {"name": "flights"},
    "operation": "Append",
    "source": {"paths": ["in/a.csv"], "format": "CSV"},
}


def seen(version: int | None = None, uuid: str = "flights", **changes: Any) -> jobs.DatasetState:
    """What a job tells of a dataset."""
    totals = jobs.Totals(rows=(version or 0) * 10, files=version or 0, bytes=(version or 0) * 1000, partitions=1)
    time = "2026-11-21T11:00:00Z" if version else None
    return jobs.DatasetState(
        uuid=uuid, version=version, etag=f"e{version}", totals=totals, last_commit_time=time, **changes
    )


def committed(version: int, **changes: Any) -> dict[str, Any]:
    """The result of a commit job."""
    done = jobs.CommitOutcome(version=version, rows=10, files=1, bytes=1000, **changes)
    return {"commit": done, "dataset": seen(version)}


def with_store(context: Fake, *datasets: jobs.DatasetState, conditional_writes: bool = True) -> None:
    """An ObjectStore that was inspected, with these answers."""
    context.create("ObjectStore", "lake", STORE_SPEC)
    context.reconcile("ObjectStore", "lake")
    context.job_ends("lake-inspect-1", store=jobs.StoreState(conditional_writes=conditional_writes), datasets=datasets)
    context.settle("ObjectStore", "lake")


def with_dataset(context: Fake, state: jobs.DatasetState | None = None, **spec: Any) -> None:
    """A Dataset that was found by an inspection."""
    context.create("Dataset", "flights", DATASET_SPEC | spec)
    with_store(context, state or seen())
    context.settle("Dataset", "flights")


def with_running_commit(context: Fake, name: str = "january", **spec: Any) -> str:
    """A Commit whose first attempt runs; the name of its job."""
    if ("Dataset", "flights") not in context.resources:
        with_dataset(context)
    context.create("Commit", name, COMMIT_SPEC | spec)
    context.reconcile("Commit", name)
    job = job_name(name, 1)
    context.job_runs(job)
    context.settle("Commit", name)
    return job
