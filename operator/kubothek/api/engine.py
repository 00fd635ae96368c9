"""Engine: the image, sizes and settings of jobs."""

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
"""Name of the Engine for jobs of its namespace that name none."""


class DriverSize(Strict):
    """The size of the driver, which is the only pod of a job without Spark."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("its driver", "driver"),)

    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores; default: 1."""
    memory: Quantity = "1Gi"
    """Memory of the driver's heap; default: 1Gi."""


class ExecutorSize(Strict):
    """The number and size of Spark's executors."""

    rules: ClassVar[tuple[Rule, ...]] = (enough_memory("executors", "executor"),)

    instances: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of executors; default: 2."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of each; default: 1."""
    memory: Quantity = "2Gi"
    """Memory of each one's heap; memory for Python and the system is added. Default: 2Gi."""
    spot: Literal["Any", "Prefer", "Require"] = "Any"
    """Use of spot nodes, which the cloud may reclaim, for executors. Any: like other nodes. Prefer: if possible.
    Require: only these. A decommissioned executor migrates its shuffle blocks. With Prefer and Require, drivers prefer
    other nodes. Default: Any."""


_PodField = Annotated[str, StringConstraints(max_length=253, pattern=OBJECT_NAME_PATTERN)]
_QUEUE = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_PodTemplate = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]


class PodTemplates(Strict):
    """Additions to the pods: node selectors, tolerations, volumes, variables, further containers."""

    driver: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for drivers; fields that the operator sets have precedence."""
    executor: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for executors; fields that the operator sets have precedence."""


class Backoff(Strict):
    """The backoff between attempts; each wait is twice the one before."""

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
    """Retries after retryable failures."""

    limit: Annotated[int, Field(ge=0, le=20)] = 3
    """Maximum number of retries of a job. Lost pods and nodes do not count. Default: 3."""
    backoff: Backoff = Backoff()
    """The backoff between attempts."""


class ForeignEngine(Strict):
    """An external engine that implements the engine contract of Open Data Fabric (gRPC)."""

    engine: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Its name in `transform.engine` of SetTransform, such as flink, regardless of case. It runs the transformations
    with this name of Datasets on this Engine."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^\S+$")]
    """Its image. It runs as a sidecar of the driver, and sees only the files of the run."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5544
    """Its port; default: 5544. The engines of kamu listen on 2884."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of its container."""
    memory: Quantity = "1Gi"
    """Memory of its container."""
    timeout: Duration = "1h"
    """Maximum duration of one run of a transformation."""


class Warm(Strict):
    """Warm drivers, which wait for jobs so that small ones start at once. Each takes one job and ends with it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.min) ? self.min : 1) <= (has(self.max) ? self.max : 4)",
            message="warm.min is more than warm.max: exchange them",
            holds=lambda self: self.min <= self.max,
        ),
    )

    min: Annotated[int, Field(ge=0, le=100)] = 1
    """Minimum number of warm drivers for each ObjectStore of the engine's Datasets, also without recent jobs."""
    max: Annotated[int, Field(ge=1, le=100)] = 4
    """Maximum number of warm drivers. The actual number is the most jobs that recently arrived within one minute."""
    idle_timeout: Duration = "10m"
    """How long jobs count as recent, and after how long a waiting driver is replaced."""
    spark_up_to: Quantity | None = None
    """Keep a local Spark session in each driver for sources up to this size; larger sources use executors as usual.
    Default: no session."""


class EngineSpec(Strict):
    """How jobs run. Fields that are not set come from the Engine `default` of the namespace, then from the operator,
    then from the defaults below.
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
            'credentials): remove it; sizes have fields of their own, the list is in docs/engines.md, "Spark settings"',
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
    """The service account of drivers; default: that in the operator's configuration. It needs the right to manage pods
    in the namespace."""
    driver: DriverSize = DriverSize()
    """The size of the driver."""
    executor: ExecutorSize = ExecutorSize()
    """The number and size of executors."""
    dynamic_allocation: DynamicAllocation | None = None
    """Number of executors by load."""
    scratch: Scratch | None = None
    """Storage for Spark's spill and shuffle; default: the disk of the node."""
    scheduler_name: _PodField | None = None
    """The scheduler of drivers and executors; default: the cluster's."""
    queue_name: Annotated[str, StringConstraints(max_length=63, pattern=_QUEUE)] | None = None
    """The queue of the pods: of Volcano or YuniKorn if one is the scheduler (`volcano`, `yunikorn`), else a LocalQueue
    of Kueue."""
    priority_class_name: _PodField | None = None
    """The PriorityClass of drivers and executors."""
    spark_conf: dict[str, Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    """Further settings of Spark. Settings that decide where it runs, load code or hold credentials are refused."""
    spark_from: Quantity = "32Mi"
    """The size of a source from which Spark does the work. The driver alone does less, and starts in less than a
    second. Default: 32Mi."""
    pod_template: PodTemplates = PodTemplates()
    """Additions to the pods."""
    retry: Retry = Retry()
    """Retries after retryable failures."""
    deadlines: Deadlines = Deadlines()
    """Time limits of an attempt."""
    pod_retention: PodRetention = PodRetention()
    """Retention of the pods of a run that has ended."""
    event_log: EventLog = EventLog()
    """Spark's event log, for its history server."""
    suspend: bool = False
    """True: start no job on this Engine that reads data. Running jobs, inspections, deletions and restorations
    continue."""
    odf: ForeignEngine | None = None
    """An external engine for transformations that name it; all others run on our own."""
    warm: Warm | None = None
    """Warm drivers. Default: none, each job starts its own driver."""


class WarmState(Lenient):
    """The warm drivers."""

    ready: int
    """Number that can take a job now."""
    starting: int
    """Number that are starting."""
    failed: int = 0
    """Number that did not become ready. Their pods are kept for a while for inspection, then replaced."""
    last: int = 0
    """The number of the newest, which is part of its pod's name."""


class EngineStatus(Status):
    """The observed state of the engine."""

    warm: WarmState | None = None
    """The warm drivers."""


class Engine(Resource):
    """An Engine defines how jobs run: image, sizes, Spark's settings. The Engine called `default` runs all jobs of its
    namespace that name no other.
    """

    kind: Literal["Engine"] = "Engine"
    spec: EngineSpec
    status: EngineStatus = EngineStatus()
