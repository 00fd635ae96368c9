"""What a reconciler sees and what it may ask for.

A reconciler is a pure function ``reconcile(resource, world) -> Outcome``: it reads a :class:`World`, which is a
snapshot without I/O, and answers with the status to publish and the actions to take. A runtime (a cluster, or a
directory of manifests on one machine) builds the world, writes the status **first** and then performs the actions, so
that whatever an action does was announced before (write-ahead: an attempt number is in the status before its pod is).
Actions are idempotent by their names; performing one twice is performing it once.
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
    """How many jobs that read data run at a time; 0 = any number."""

    jobs: int = 0
    """In all."""
    jobs_per_namespace: int = 0
    jobs_per_store: int = 0
    """On one ObjectStore."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's own settings, the same for every resource."""

    cluster_id: str
    """First part of every claim; a rebuilt cluster with the same id keeps its datasets."""
    default_image: str = ""
    default_service_account: str = "kubothek-job"
    allowed_source_hosts: tuple[str, ...] = ()
    allowed_source_images: tuple[str, ...] = ()
    """Images that containers of sources may have: see :func:`kubothek.controller.tasks.containers.is_allowed`."""
    allow_local_sources: bool = False
    """``file:`` URLs and loopback hosts: true on one's own machine, never in a cluster."""
    engines: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """On one's own machine: engines of other parties that run, by what transformations call them in lower case: where
    each listens, and the directory that it shares."""
    inspect_interval: timedelta = timedelta(minutes=10)
    limits: Limits = Limits()
    engine_defaults: Mapping[str, Any] = field(default_factory=dict)
    """The lowest layer of every Engine, a sparse spec: see :mod:`kubothek.api.profiles`."""
    engine_limits: Sizes = field(default_factory=Sizes)
    """What no job gets more of, whatever Engines and runs say."""
    keep_runs: bool = False
    """On one's own machine: what ended stays, as a file is not deleted."""
    logs: str = ""
    """Where the log of a job is: a URL with ``{namespace}``, ``{pod}``, ``{start}`` and ``{end}``; empty: nowhere."""
    deletion_deadline: timedelta = timedelta(minutes=5)
    """How long a Dataset with deletionPolicy Delete waits for its store before it lets go and keeps the data."""
    open_lineage_url: str | None = None
    """Who is told of the runs of derivatives, in the terms of OpenLineage; None: nobody."""


class JobPhase(StrEnum):
    """Where one attempt is, as far as can be seen from outside."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


ENDED: Final = (JobPhase.SUCCEEDED, JobPhase.FAILED)
"""Phases that no other follows. Kubernetes calls those of pods the same."""


class FailureClass(StrEnum):
    """Which retry budget a failed attempt draws on."""

    REPORT = "Report"
    """Bad input, refusal: retrying changes nothing."""
    RETRY = "Retry"
    """The job itself failed in a way that may pass; counts against retryLimit."""
    INFRASTRUCTURE = "Infrastructure"
    """Pod deleted, evicted, node lost: not the job's fault; a budget of its own."""


@dataclass(frozen=True, slots=True)
class JobView:
    """One attempt as the runtime sees it.

    ``reason``/``message`` explain a Pending that does not move (ImagePullFailed, Unschedulable …) and every failure.
    ``result`` is the job's own word, absent when it died without one.
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
    """When this phase was entered, if known."""
    owner_uid: str = ""
    """The uid of the resource that it was launched for, if known: names come back, uids do not."""
    lingers: bool = False
    """Whether what failed is still there, and is to be stopped: it did not start in time."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a job takes of the operator's limits: see :mod:`kubothek.controller.scheduling.concurrency`."""

    namespace: str
    store: str
    maintenance: bool


@dataclass(frozen=True, slots=True)
class Load:
    """How many jobs hold a place, and how many wait for one."""

    taken: Mapping[Place, int] = field(default_factory=dict)
    wanted: Mapping[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """Start one attempt. ``engine`` sizes it; ``secrets`` maps an ObjectStore's name to the Secret mounted for it.

    The runtime owns the name ``job.job`` in the resource's namespace: present already means launched already.
    """

    job: AnyJob
    owner: AnyResource
    engine: AnyResource | None
    secrets: dict[str, str] = field(default_factory=dict)
    volumes: dict[str, str] = field(default_factory=dict)
    """PersistentVolumeClaim by ObjectStore name, for ``file://`` stores in a cluster."""
    keys: dict[str, str] = field(default_factory=dict)
    """Secret with the keys of encrypted metadata by ObjectStore name."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Other Secrets, by the directory at which the job expects them."""


@dataclass(frozen=True, slots=True)
class WarmDriver:
    """A driver that waits for a job, or will."""

    name: str
    key: str
    """What jobs it may take: see :mod:`kubothek.controller.scheduling.warm_pool`."""
    phase: Literal["Starting", "Ready", "Failed"]
    since: datetime
    """When it became ready; until then, when it was created."""


@dataclass(frozen=True, slots=True)
class WarmPool:
    """What there is of an Engine's waiting drivers, and how many were asked for of late."""

    drivers: tuple[WarmDriver, ...] = ()
    asked: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    """When jobs came that one could take, by key, in order."""


@dataclass(frozen=True, slots=True)
class StartDriver:
    """Start a driver that waits for a job which ``key`` fits. ``like`` is such a job, but for what it does: its owner
    is the Engine, and what it mounts is what the driver mounts.
    """

    name: str
    key: str
    like: LaunchJob


@dataclass(frozen=True, slots=True)
class StopDriver:
    """Stop a driver, unless it has been given a job."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Stop an attempt and forget it."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class AwaitPlace:
    """A job waits for this place; to be asked for in each round anew. Look at the resource again when one is free."""

    place: Place


@dataclass(frozen=True, slots=True)
class PutDataset:
    """Create a Dataset, or give the one that is there this spec and these labels. Its controller is the resource that
    is reconciled; one that is another's is left as it is. What refuses it is told as ``launch_refusal`` of its
    ``members.refusal_key``.
    """

    dataset: Dataset


@dataclass(frozen=True, slots=True)
class MakeIdentity:
    """Create a Secret with a fresh private key for the dataset of the resource that is reconciled; one of that name
    stays as it is. It outlives the resource, as the chain does.
    """

    secret: str


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Add or remove our finalizer on the resource."""

    present: bool


@dataclass(frozen=True, slots=True)
class DeleteRun:
    """Delete a run that has ended, and with it its pods."""

    run: AnyResource


Action = (
    LaunchJob | StartDriver | StopDriver | CancelJob | AwaitPlace | PutDataset | MakeIdentity | SetFinalizer | DeleteRun
)


@dataclass(frozen=True, slots=True)
class Event:
    """Told once, on a transition. ``reason`` is that of the condition."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reconciler decided: the full status to publish, then actions in order, events, and when to look again."""

    status: dict[str, object]
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None


class Lookup(Protocol):
    """The resources that there are."""

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """The resource, or None."""

    def list(self, kind: type[R], namespace: str) -> Sequence[R]:
        """All resources of a kind in the namespace, in no particular order."""

    @property
    def dependency_graph(self) -> DependencyGraph:
        """Which Datasets are derived from which."""

    @property
    def engine_limits(self) -> Sizes:
        """The operator's limits of the sizes of jobs."""

    @property
    def engine_defaults(self) -> Mapping[str, Any]:
        """The operator's layer below all Engines."""

    def bounds(self, namespace: str) -> Sequence[Bound]:
        """What the namespace's quotas and ranges allow."""


class World(Lookup, Protocol):
    """A consistent snapshot of what surrounds a resource. Reading it costs no I/O."""

    @property
    def now(self) -> datetime: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def run_index(self) -> RunIndex:
        """Which runs change which Dataset or Cube."""

    @property
    def load(self) -> Load:
        """Who holds places, and who waits for one, in all namespaces."""

    def invalid(self, kind: type[R], namespace: str) -> Sequence[str]:
        """The names of the resources of a kind that are there, but cannot be read: see ``reconcile.invalid``."""

    def job(self, namespace: str, name: str) -> JobView | None:
        """The attempt of this name, or None if there is no trace of it."""

    def launch_refusal(self, namespace: str, name: str) -> tuple[str, str] | None:
        """Reason and message if the last try to launch this attempt, or to put this Dataset, was refused (quota,
        admission, namespace).
        """

    def warm_pool(self, engine: Engine) -> WarmPool | None:
        """The drivers of an Engine that wait for jobs; None where there are none by design."""
