"""Engine: what runs jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from kubothek.api.engine_parts import Deadlines, DynamicAllocation, EventLog, PodRetention, Scratch
from kubothek.api.meta import OBJECT_NAME_PATTERN, Lenient, Resource, Status, Strict
from kubothek.api.rules import Rule, UniqueBy
from kubothek.api.sizes import enough_memory
from kubothek.api.spark_denied import DENIED_CONF
from kubothek.api.values import Duration, ObjectReference, Quantity, parse_duration

DEFAULT_ENGINE = "default"
"""The Engine of this name is what runs jobs in its namespace that name none."""


class DriverSize(Strict):
    """The size of the driver, which is also all there is of a job without Spark."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("its driver", "driver"),)

    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores; default: 1."""
    memory: Quantity = "1Gi"
    """Memory of the driver's heap; default: 1Gi."""


class ExecutorSize(Strict):
    """The number and size of Spark's executors."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("executors", "executor"),)

    instances: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many; default: 2."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of each; default: 1."""
    memory: Quantity = "2Gi"
    """Memory of each one's heap; what Python and the system need comes on top. Default: 2Gi."""
    spot: Literal["Any", "Prefer", "Require"] = "Any"
    """Whether executors run on nodes that the cloud may take back: as on any other, rather than on others, or nowhere
    else. What they shuffled is handed over when they are told to go. Drivers then rather run on others.
    Default: Any."""


_PodField = Annotated[str, StringConstraints(max_length=253, pattern=OBJECT_NAME_PATTERN)]
_QUEUE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_PodTemplate = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]


class PodTemplates(Strict):
    """What else the pods should have: node selectors, tolerations, volumes, variables, containers beside."""

    driver: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for drivers; the fields that the operator sets win."""
    executor: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for executors; the fields that the operator sets win."""


class Backoff(Strict):
    """How long to wait between attempts; each wait is twice the one before."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.initial) || !has(self.max) || duration(self.initial) <= duration(self.max)",
            message="retry.backoff.initial is longer than retry.backoff.max: exchange them",
            holds=lambda self: (
                not {"initial", "max"} <= self.model_fields_set
                or parse_duration(self.initial) <= parse_duration(self.max)
            ),
        ),
    )

    initial: Duration = "2s"
    """The first wait; default: 2s."""
    max: Duration = "5m"
    """The longest wait; default: 5m."""


class Retry(Strict):
    """What happens when an attempt fails in a way that may pass."""

    limit: Annotated[int, Field(ge=0, le=20)] = 3
    """How many times a job is tried again. Lost pods and nodes do not count. Default: 3."""
    backoff: Backoff = Backoff()
    """How long to wait between attempts."""


class ForeignEngine(Strict):
    """An engine of another party, which keeps the engine contract of Open Data Fabric (gRPC)."""

    engine: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """What SetTransform calls it in `transform.engine`, such as flink: transformations that ask for it, of Datasets
    that run on this Engine, are run by it. Case does not matter."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^\S+$")]
    """Its image. It runs beside the driver, with nothing of it but the files of the run."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5544
    """Where it listens; default: 5544. The engines of kamu listen on 2884."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of its container."""
    memory: Quantity = "1Gi"
    """Memory of its container."""
    timeout: Duration = "1h"
    """The longest time of one run of a transformation."""


class Warm(Strict):
    """Drivers that wait for jobs, so that small ones begin at once. Each takes one job and ends with it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.min) ? self.min : 1) <= (has(self.max) ? self.max : 4)",
            message="warm.min is more than warm.max: exchange them",
            holds=lambda self: self.min <= self.max,
        ),
    )

    min: Annotated[int, Field(ge=0, le=100)] = 1
    """How many wait for jobs on each ObjectStore of the engine's Datasets, although nobody asked for any."""
    max: Annotated[int, Field(ge=1, le=100)] = 4
    """How many wait at most: as many as there were jobs within a minute."""
    idle_timeout: Duration = "10m"
    """How long a burst of jobs is remembered, and how long a driver waits before another one takes its place."""
    spark_up_to: Quantity | None = None
    """Keep a Spark session up in each driver, which does the work of sources up to this size there; what is larger gets
    executors, as it does without. Default: no session is kept."""


class EngineSpec(Strict):
    """How jobs run. What is not said is as the Engine `default` of the namespace says, then as the operator does; only
    then come the defaults that are named here.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.sparkConf) || self.sparkConf.all(key, key.startsWith('spark.'))",
            message="a key of spec.sparkConf does not begin with 'spark.': it would have no effect, remove it",
            holds=lambda self: all(key.startswith("spark.") for key in self.spark_conf),
        ),
        Rule(
            cel="!has(self.sparkConf) || !self.sparkConf.exists(key, ["
            + ", ".join(f"'{prefix}'" for prefix in DENIED_CONF)
            + "].exists(denied, key.startsWith(denied)))",
            message="spec.sparkConf sets what only the operator may (where Spark runs, sizes, code that is loaded, "
            "credentials): remove it; sizes have fields of their own, the full list is in the documentation of Engine",
            holds=lambda self: not any(key.startswith(DENIED_CONF) for key in self.spark_conf),
        ),
    )

    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^\S+$")] | None = None
    """The container image of drivers and executors; default: the operator's."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """As in a container."""
    image_pull_secrets: Annotated[tuple[ObjectReference, ...], Field(max_length=16), UniqueBy("name")] = ()
    """Secrets for the registry of the image."""
    service_account_name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """The service account of drivers; default: the operator's. It needs the right to manage pods in the namespace."""
    driver: DriverSize = DriverSize()
    """The size of the driver."""
    executor: ExecutorSize = ExecutorSize()
    """The number and size of executors."""
    dynamic_allocation: DynamicAllocation | None = None
    """Executors that come with work and go when there is none."""
    scratch: Scratch | None = None
    """Where Spark spills and shuffles; default: the disk of the node."""
    scheduler_name: _PodField | None = None
    """The scheduler of drivers and executors; default: the cluster's."""
    queue_name: Annotated[str, StringConstraints(max_length=63, pattern=_QUEUE)] | None = None
    """The queue in which the pods wait: of Volcano or YuniKorn if these are the scheduler (`volcano`, `yunikorn`), else
    the LocalQueue of Kueue."""
    priority_class_name: _PodField | None = None
    """The PriorityClass of drivers and executors."""
    spark_conf: dict[str, Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    """Further settings of Spark. What decides where it runs, loads code or holds credentials is refused."""
    spark_from: Quantity = "32Mi"
    """The size of a source from which Spark does the work; less is done by the driver alone, which starts in less than
    a second. Default: 32Mi."""
    pod_template: PodTemplates = PodTemplates()
    """What else the pods should have."""
    retry: Retry = Retry()
    """What happens when an attempt fails in a way that may pass."""
    deadlines: Deadlines = Deadlines()
    """When an attempt is given up."""
    pod_retention: PodRetention = PodRetention()
    """How long the pods of a run that has ended are kept."""
    event_log: EventLog = EventLog()
    """What Spark's history server shows of a job."""
    suspend: bool = False
    """Start no job on this Engine that reads data. What runs goes on, and so do inspections, deletions and
    restorations."""
    odf: ForeignEngine | None = None
    """An engine of another party for transformations that ask for it; all others run on our own."""
    warm: Warm | None = None
    """Drivers that wait for jobs. Default: none, each job starts its own."""


class WarmState(Lenient):
    """The drivers that wait for jobs."""

    ready: int
    """How many can take a job now."""
    starting: int
    """How many are getting ready."""
    failed: int = 0
    """How many did not get ready. Their pods are kept for a while, to be looked at, and replaced after that."""
    last: int = 0
    """The number of the newest, which is part of its pod's name."""


class EngineStatus(Status):
    """What is known about the engine."""

    warm: WarmState | None = None
    """The drivers that wait for jobs."""


class Engine(Resource):
    """An Engine says what runs jobs: image, sizes, Spark's settings. The Engine called `default` runs all jobs of its
    namespace that name no other.
    """

    kind: Literal["Engine"] = "Engine"
    spec: EngineSpec
    status: EngineStatus = EngineStatus()
