"""Parts of an Engine beyond images and sizes: dynamic allocation, scratch space, deadlines, retention, event log."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule
from kubothek.api.values import Duration, Quantity, parse_quantity

LEAST_EVENT_LOG = "16Mi"
"""Minimum of ``maxSize``: Spark starts a new file of an event log after 10 MiB at the earliest."""


class DynamicAllocation(Strict):
    """Number of executors by load."""

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
    """False: always `executor.instances` executors, whatever another layer sets."""
    initial: Annotated[int | None, Field(ge=0, le=1000)] = None
    """Initial number; default: `min`."""
    min: Annotated[int, Field(ge=0, le=1000)] = 0
    """Minimum number, even without work; default: 0."""
    max: Annotated[int | None, Field(ge=1, le=1000)] = None
    """Maximum number; default: `executor.instances`."""
    shuffle_tracking: bool = True
    """Whether executors stay as long as others may need their shuffle blocks; default: true. False: they migrate these
    blocks before they end."""
    idle_timeout: Duration = "60s"
    """Time without work after which an executor ends; default: 60s."""


class Scratch(Strict):
    """Storage for Spark's spill and shuffle."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.medium) || self.medium == 'Disk' || has(self.size)",
            message="scratch.size is missing: memory and claims are of a size, add it",
            holds=lambda self: self.medium == "Disk" or self.size is not None,
        ),
        Rule(
            cel="!has(self.storageClassName) || (has(self.medium) && self.medium == 'EphemeralPVC')",
            message="scratch.storageClassName goes with medium: EphemeralPVC, remove it, or set this medium",
            holds=lambda self: self.storage_class_name is None or self.medium == "EphemeralPVC",
        ),
    )

    medium: Literal["Disk", "Memory", "EphemeralPVC"] = "Disk"
    """Disk: of the node. Memory: a tmpfs, which counts as memory of the pod. EphemeralPVC: a claim for each executor,
    deleted with the job; a replacement executor reuses the claim and its shuffle blocks. Default: Disk."""
    size: Quantity | None = None
    """Size limit per pod; default for Disk: no limit."""
    storage_class_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """The StorageClass of claims; default: the cluster's."""


class Deadlines(Strict):
    """Time limits of an attempt. One that exceeds a limit fails and is retried, see `retry`."""

    schedule: Duration | None = None
    """Maximum time from the creation of the driver until it has a node; default: none, as queues and autoscalers may
    need long."""
    start: Duration = "10m"
    """Maximum time from then to its start; default: 10m."""
    executors: Duration = "30m"
    """Maximum time for which Spark has work and no executor; default: 30m."""
    total: Duration = "4h"
    """Maximum time from the start of the driver to its end; default: 4h."""


class PodRetention(Strict):
    """Retention of the pods of a run that has ended, for their logs."""

    policy: Literal["Always", "OnFailure", "Never"] = "Always"
    """Always: pods are deleted with the run. OnFailure: pods of complete runs are deleted at once. Never: all are
    deleted when the run ends. Default: Always."""
    duration: Duration | None = None
    """Time after which kept pods are deleted as well; default: when the run is deleted."""


class EventLog(Strict):
    """Spark's event log, for its history server."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"!has(self.maxSize) || quantity(string(self.maxSize)).compareTo(quantity('{LEAST_EVENT_LOG}')) >= 0",
            message=f"eventLog.maxSize must be at least {LEAST_EVENT_LOG}: Spark writes files of 10 MiB",
            holds=lambda self: parse_quantity(self.max_size) >= parse_quantity(LEAST_EVENT_LOG),
        ),
    )

    enabled: bool = False
    """True: jobs with Spark write their event log to the store, below `.kubothek/++spark-events/`. Default: false."""
    max_size: Quantity = "64Mi"
    """Maximum compressed size; the end of a longer log is dropped. Default: 64Mi."""
