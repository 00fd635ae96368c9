"""Parts of an Engine beyond images and sizes: executors that come and go, where pods wait, what outlives them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Duration, Quantity, parse_quantity

LEAST_EVENT_LOG = "16Mi"
"""Spark begins another file of an event log after 10 MiB at the earliest."""


class DynamicAllocation(Strict):
    """Executors that come with work and go when there is none."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.min) || !has(self.max) || self.min <= self.max",
            message="dynamicAllocation.min is more than dynamicAllocation.max: exchange them",
            holds=lambda self: not {"min", "max"} <= self.model_fields_set or self.min <= self.max,
        ),
        Rule(
            cel="!has(self.initial) || !has(self.max) || self.initial <= self.max",
            message="dynamicAllocation.initial is more than dynamicAllocation.max: lower it",
            holds=lambda self: not {"initial", "max"} <= self.model_fields_set or self.initial <= self.max,
        ),
        Rule(
            cel="!has(self.initial) || !has(self.min) || self.initial >= self.min",
            message="dynamicAllocation.initial is less than dynamicAllocation.min: raise it",
            holds=lambda self: not {"initial", "min"} <= self.model_fields_set or self.initial >= self.min,
        ),
    )

    enabled: bool = True
    """False: there are `executor.instances` executors from the beginning to the end, whatever another layer says."""
    initial: Annotated[int | None, Field(ge=0, le=1000)] = None
    """How many to begin with; default: `min`."""
    min: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many stay, even without work; default: 0."""
    max: Annotated[int | None, Field(ge=1, le=1000)] = None
    """How many there are at most; default: `executor.instances`."""
    shuffle_tracking: bool = True
    """Whether executors stay as long as others may need what they shuffled; default: true. False: they hand it over
    when they go."""
    idle_timeout: Duration = "60s"
    """After how long without work an executor goes; default: 60s."""


class Scratch(Strict):
    """Where Spark spills and shuffles."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.medium) || self.medium == 'Disk' || has(self.size)",
            message="scratch.size is missing: memory and claims are of a size, add it",
            holds=lambda self: self.medium == "Disk" or self.size is not None,
        ),
        Rule(
            cel="!has(self.storageClassName) || (has(self.medium) && self.medium == 'EphemeralPVC')",
            message="scratch.storageClassName goes with medium: EphemeralPVC, remove it or say so",
            holds=lambda self: self.storage_class_name is None or self.medium == "EphemeralPVC",
        ),
    )

    medium: Literal["Disk", "Memory", "EphemeralPVC"] = "Disk"
    """Disk: of the node. Memory: a tmpfs, which counts as memory of the pod. EphemeralPVC: a claim for each executor,
    which the next executor takes over with all that was shuffled; it goes with the job. Default: Disk."""
    size: Quantity | None = None
    """How much each pod may use; default for Disk: no limit."""
    storage_class_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The StorageClass of claims; default: the cluster's."""


class Deadlines(Strict):
    """When an attempt is given up, and another one is made, as `retry` says."""

    schedule: Duration | None = None
    """The longest time from the creation of the driver until it has a node; default: none, as queues and autoscalers
    take their time."""
    start: Duration = "10m"
    """The longest time from then to its start; default: 10m."""
    executors: Duration = "30m"
    """The longest time in which Spark has work and not one executor; default: 30m."""
    total: Duration = "4h"
    """The longest time from the start of the driver to its end; default: 4h."""


class PodRetention(Strict):
    """How long the pods of a run that has ended are kept, for their logs."""

    policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """Always: pods stay until the run is deleted. OnFailure: those of a run that is complete go at once. Never: all go
    when it has ended. Default: Always."""
    duration: Duration | None = None
    """After how long those that are kept go as well; default: when the run is deleted."""


class EventLog(Strict):
    """What Spark's history server shows of a job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!has(self.maxSize) || quantity(string(self.maxSize)).compareTo(quantity('{LEAST_EVENT_LOG}')) >= 0",
            message=f"eventLog.maxSize must be at least {LEAST_EVENT_LOG}: Spark writes files of 10 MiB",
            holds=lambda self: parse_quantity(self.max_size) >= parse_quantity(LEAST_EVENT_LOG),
        ),
    )

    enabled: bool = False
    """True: jobs with Spark leave their event log in the store, below `.kubothek/++spark-events/`. Default: false."""
    max_size: Quantity = "64Mi"
    """How much of it is kept, compressed: the beginning. Default: 64Mi."""
