"""The input and the output of a reconciler.

A reconciler is a pure function ``reconcile(resource, context) -> Outcome``. It reads a :class:`Context`, a snapshot
that needs no I/O, and returns the status to publish and the actions to take. A runtime (a cluster, or a directory of
manifests on one machine) builds the snapshot, writes the status **first** and then performs the actions. So the status
announces each action before it happens (write-ahead): an attempt number is in the status before its pod exists. Actions
are idempotent by name: performing one twice has the effect of performing it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, TypeVar

from kubothek.api.bounds import Bound
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.jobs import AnyJob, JobResult, Progress
from kubothek.api.meta import Resource
from kubothek.api.sizes import Sizes
from kubothek.controller.dependency_graph import DependencyGraph
from kubothek.controller.run_index import RunIndex

AnyResource = Resource  # any kind
R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the number of jobs that read data and run at the same time; 0 means unlimited."""

    jobs: int = 0
    """In all namespaces."""
    jobs_per_namespace: int = 0
    jobs_per_store: int = 0
    """On one ObjectStore."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the operator, the same for every resource."""

    cluster_id: str
    """First part of every claim; a rebuilt cluster with the same id keeps its datasets."""
    default_image: str = ""
    default_service_account: str = "kubothek-job"
    allowed_source_hosts: tuple[str, ...] = ()
    allowed_source_images: tuple[str, ...] = ()
    """Images allowed for source containers: see :func:`kubothek.controller.tasks.containers.is_allowed`."""
    allow_local_sources: bool = False
    """Whether ``file:`` URLs and loopback hosts are allowed: true in local mode, never in a cluster."""
    engines: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Local mode only: running engines of other parties, by the lower-case name that transformations use. Each value is
    the address that the engine listens on, and the directory that it shares."""
    inspect_interval: timedelta = timedelta(minutes=10)
    limits: Limits = Limits()
    engine_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Lowest layer of every Engine, a sparse spec: see :mod:`kubothek.api.profiles`."""
    engine_limits: Sizes = field(default_factory=Sizes)
    """Upper limits for the sizes of every job; they override Engines and runs."""
    keep_runs: bool = False
    """Local mode only: keep runs that have ended, because the operator deletes no manifest files."""
    logs: str = ""
    """URL template of a job's log, with ``{namespace}``, ``{pod}``, ``{start}`` and ``{end}``; empty: no log links."""
    deletion_deadline: timedelta = timedelta(minutes=5)
    """How long a Dataset with deletionPolicy Delete waits for its store; after that its data stays."""
    open_lineage_url: str | None = None
    """Endpoint that receives OpenLineage events about runs of derivatives, Queries and Commits of SQL; None: none."""


class JobPhase(StrEnum):
    """Phase of one attempt, as far as it is visible from outside."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED: Final = (JobPhase.SUCCEEDED, JobPhase.FAILED)
"""Terminal phases. Kubernetes uses the same names for pods."""


class FailureClass(StrEnum):
    """Retry budget that a failed attempt counts against."""

    REPORT = "Report"
    """Bad input or a refusal: a retry changes nothing."""
    RETRY = "Retry"
    """The job itself failed, possibly for a transient reason; counts against retryLimit."""
    INFRASTRUCTURE = "Infrastructure"
    """Pod deleted, evicted, or node lost: not the job's fault; has its own budget."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One attempt as the runtime observes it.

    ``reason``/``message`` explain a Pending phase that makes no progress (ImagePullFailed, Unschedulable …) and every
    failure. ``result`` is the result that the job reported; it is absent if the job ended without one.
    """

    name: str
    attempt: int
    phase: JobPhase
    reason: str = ""
    message: str = ""
    failure: FailureClass | None = None
    result: JobResult | None = None
    progress: Progress | None = None
    since: datetime | None = None
    """When the attempt entered this phase, if known."""
    owner_uid: str = ""
    """UID of the resource that the job was launched for, if known. Names are reused, UIDs are not."""
    lingers: bool = False
    """Whether the failed job still exists and must be stopped, because it did not start in time."""


@dataclass(frozen=True, slots=True)
class JobSlot:
    """Concurrency slot that a job occupies: see :mod:`kubothek.controller.scheduling.concurrency`."""

    namespace: str
    store: str
    maintenance: bool


@dataclass(frozen=True, slots=True)
class Load:
    """Number of jobs that hold each slot, and of jobs that wait for one."""

    held: Mapping[JobSlot, int] = field(default_factory=dict)
    wanted: Mapping[JobSlot, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Action: start one attempt. ``engine`` sizes it; ``secrets`` has the Secret to mount by ObjectStore name.

    The runtime owns the name ``job.job`` in the resource's namespace: if the name exists, the job is already launched.
    """

    job: AnyJob
    owner: AnyResource
    engine: AnyResource | None
    secrets: dict[str, str] = field(default_factory=dict)
    volumes: dict[str, str] = field(default_factory=dict)
    """PersistentVolumeClaim by ObjectStore name, for ``file://`` stores in a cluster."""
    keys: dict[str, str] = field(default_factory=dict)
    """Secret with the keys of encrypted metadata, by ObjectStore name."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Other Secrets, by the directory at which the job expects them."""


@dataclass(frozen=True, slots=True)
class WarmDriver:
    """Warm driver: one that waits for a job, or will do so when it is ready."""

    name: str
    key: str
    """Which jobs it may take: see :mod:`kubothek.controller.scheduling.warm_pool`."""
    phase: Literal["Starting", "Ready", "Failed"]
    since: datetime
    """When it became ready; until then, when it was created."""


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Warm drivers of an Engine, and the recent demand for them."""

    drivers: tuple[WarmDriver, ...] = ()
    asked: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    """Arrival times, by key and in order, of jobs that a warm driver could take."""


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Action: start a driver that waits for a job with this ``key``. ``like`` is a template of such a job: its owner is
    the Engine, and the driver mounts what it mounts.
    """

    name: str
    key: str
    like: LaunchJob


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Action: stop a warm driver, unless it already has a job."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Action: stop an attempt and forget it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class AwaitSlot:
    """Action: wait for this slot, and reconcile again when one is free. Must be repeated in each reconciliation."""

    slot: JobSlot


@dataclass(frozen=True, slots=True)
class PutDataset:
    """Action: create a Dataset, or update the spec and labels of one with the same controller, the reconciled resource.
    A Dataset with another controller stays unchanged. If the API server refuses it, ``launch_refusal`` has the reason
    under ``members.refusal_key``.
    """

    dataset: Dataset


@dataclass(frozen=True, slots=True)
class MakeIdentity:
    """Action: create a Secret with a new private key for the dataset of the reconciled resource; keep an existing one.
    The Secret outlives the resource, as the chain does.
    """

    secret: str


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Action: add or remove our finalizer on the resource."""

    present: bool


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Action: delete a run that has ended, and with it its pods."""

    run: AnyResource


Action = (
    LaunchJob | StartDriver | StopDriver | CancelJob | AwaitSlot | PutDataset | MakeIdentity | SetFinalizer | DeleteRun
)


@dataclass(frozen=True, slots=True)
class Event:
    """Kubernetes event, emitted once per transition. ``reason`` is that of the condition."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Decision of a reconciler: the full status, actions in order, events, and when to reconcile again."""

    status: dict[str, object]
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None


class Lookup(Protocol):
    """Read access to the existing resources."""

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return the resource, or None."""

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        """Return all resources of a kind in the namespace, in no particular order."""

    @property
    def dependency_graph(self) -> DependencyGraph:
        """Which Datasets are derived from which."""

    @property
    def engine_limits(self) -> Sizes:
        """The operator's limits for job sizes."""

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        """The operator's layer below all Engines."""

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """Return the bounds that the namespace's ResourceQuotas and LimitRanges set."""


class Context(Lookup, Protocol):
    """Consistent snapshot of everything around a resource. Reading it costs no I/O."""

    @property
    def now(self) -> datetime: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def run_index(self) -> RunIndex:
        """Which runs change which Dataset or Cube."""

    @property
    def load(self) -> Load:
        """Jobs that hold slots and jobs that wait for one, in all namespaces."""

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        """Return the names of the resources of a kind whose manifests are invalid (``kinds.invalid``)."""

    def job(self, namespace: str, name: str) -> JobView | None:
        """Return the attempt of this name, or None if there is no trace of it."""

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Return reason and message if the last try to launch this attempt, or to put this Dataset, was refused (quota,
        admission, namespace).
        """

    def warm_pool(self, engine: Engine) -> WarmPool | None:
        """Return the warm drivers of an Engine; None if the runtime has none by design."""
