"""Engine: what runs jobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from kubothek.resources.meta import Resource, Status, Strict
from kubothek.resources.rules import Rule, UniqueBy
from kubothek.resources.values import Duration, ObjectReference, Quantity, parse_duration, parse_quantity

DEFAULT_ENGINE = "default"
"""The Engine of this name is what runs jobs in its namespace that name none."""

DENIED_CONF = (
    # who runs where is the operator's to say
    "spark.app.",
    "spark.master",
    "spark.submit.",
    "spark.kubernetes.",
    "spark.driver.host",
    "spark.driver.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.authenticate",
    # sizes have fields of their own
    "spark.driver.cores",
    "spark.driver.memory",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    # everything that loads or runs code, or sets the environment of processes
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extra",
    "spark.driver.userClassPathFirst",
    "spark.executor.defaultJavaOptions",
    "spark.executor.extra",
    "spark.executor.userClassPathFirst",
    "spark.executorEnv.",
    "spark.extraListeners",
    "spark.files",
    "spark.jars",
    "spark.plugins",
    "spark.pyspark.",
    "spark.python.",
    "spark.r.",
    "spark.repl.",
    "spark.sql.artifact.",
    "spark.sql.catalog",
    "spark.sql.execution.pyspark.",
    "spark.sql.extensions",
    "spark.sql.hive.",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.warehouse.dir",
    # jobs read and write through the ObjectStore's own credentials
    "spark.hadoop.",
)
"""Prefixes of Spark's settings that ``sparkConf`` must not have; a manifest's author is not the cluster's."""


class DriverSize(Strict):
    """The size of the driver, which is also all there is of a job without Spark."""

    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores."""
    memory: Quantity = "1Gi"
    """Memory of the driver's heap."""


class ExecutorSize(Strict):
    """The number and size of Spark's executors."""

    instances: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of each."""
    memory: Quantity = "2Gi"
    """Memory of each one's heap; what Python and the system need comes on top."""


_PodTemplate = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]


class PodTemplates(Strict):
    """What else the pods should have: node selectors, tolerations, volumes, security contexts."""

    driver: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for drivers; the fields that the operator sets win."""
    executor: _PodTemplate = Field(default_factory=dict)
    """A PodTemplateSpec for executors; the fields that the operator sets win."""


class Backoff(Strict):
    """How long to wait between attempts; each wait is twice the one before."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="duration(self.initial) <= duration(self.max)",
            message="retry.backoff.initial is longer than retry.backoff.max: exchange them",
            holds=lambda self: parse_duration(self.initial) <= parse_duration(self.max),
        ),
    )

    initial: Duration = "2s"
    """The first wait."""
    max: Duration = "5m"
    """The longest wait."""


class Retry(Strict):
    """What happens when an attempt fails in a way that may pass."""

    limit: Annotated[int, Field(ge=0, le=20)] = 3
    """How many times a job is tried again. Lost pods and nodes do not count."""
    backoff: Backoff = Backoff()
    """How long to wait between attempts."""


class Deadlines(Strict):
    """When an attempt is given up."""

    start: Duration = "10m"
    """The longest time from the creation of the driver to its start."""
    total: Duration = "4h"
    """The longest time from the creation of the driver to its end."""


class ForeignEngine(Strict):
    """An engine of another party, which keeps the engine contract of Open Data Fabric (gRPC)."""

    engine: Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """What SetTransform calls it in `transform.engine`, such as flink: transformations that ask for it, of Datasets
    that run on this Engine, are run by it. Case does not matter."""
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^\S+$")]
    """Its image. It runs beside the driver, with nothing of it but the files of the run."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5544
    """Where it listens. The engines of kamu listen on 2884."""
    cores: Annotated[int, Field(ge=1, le=64)] = 1
    """CPU cores of its container."""
    memory: Quantity = "1Gi"
    """Memory of its container."""
    timeout: Duration = "1h"
    """The longest time of one run of a transformation."""


class EngineSpec(Strict):
    """How jobs run."""

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
        Rule(
            cel="[self.driver.memory, self.executor.memory].all("
            "memory, quantity(string(memory)).compareTo(quantity('512Mi')) >= 0)",
            message="driver.memory and executor.memory must be at least 512Mi, or Spark does not start",
            holds=lambda self: (
                min(parse_quantity(self.driver.memory), parse_quantity(self.executor.memory)) >= parse_quantity("512Mi")
            ),
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
    spark_conf: dict[str, Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    """Further settings of Spark. What decides where it runs, loads code or holds credentials is refused."""
    spark_from: Quantity = "32Mi"
    """The size of a source from which Spark does the work; less is done by the driver alone, which starts in less than
    a second."""
    pod_template: PodTemplates = PodTemplates()
    """What else the pods should have."""
    retry: Retry = Retry()
    """What happens when an attempt fails in a way that may pass."""
    deadlines: Deadlines = Deadlines()
    """When an attempt is given up."""
    odf: ForeignEngine | None = None
    """An engine of another party for transformations that ask for it; all others run on our own."""


class EngineStatus(Status):
    """What is known about the engine."""


class Engine(Resource):
    """An Engine says what runs jobs: image, sizes, Spark's settings. The Engine called `default` runs all jobs of its
    namespace that name no other.
    """

    kind: Literal["Engine"] = "Engine"
    spec: EngineSpec
    status: EngineStatus = EngineStatus()
