"""Base models of all kinds: metadata, conditions, and the shape ``apiVersion, kind, metadata, spec, status``."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, StringConstraints
from pydantic.alias_generators import to_camel

from kubothek.api.rules import Rule, TransitionRule

GROUP = "kubothek.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
FINALIZER = f"{GROUP}/data-protection"
OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
"""Pattern of names in Kubernetes."""
NAME_LIMIT = 40
"""Longest name of a resource: pods are called ``<name>-inspect-<n>`` and ``<name>-<n>-exec-<m>``, in 63 characters."""

REQUEST_ANNOTATIONS = (f"{GROUP}/requestedAt", "reconcile.fluxcd.io/requestedAt")
"""A new value of either requests periodic work now."""
FREEZE_ANNOTATION = f"{GROUP}/reconcile"
"""With the value ``disabled`` the operator does not reconcile the resource."""


def render_time(moment: datetime) -> str:
    """Render a time as ``metav1.Time``: UTC in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _aware(value: object) -> object:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value


Time = Annotated[datetime, BeforeValidator(_aware), PlainSerializer(render_time, when_used="json")]
"""A moment, written as ``metav1.Time``."""


class Strict(BaseModel):
    """Base of the models of a ``spec``: camelCase, no unknown fields, no coercion of types."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()
    transitions: ClassVar[tuple[TransitionRule, ...]] = ()


class Lenient(BaseModel):
    """Base of models of what the API server or an earlier operator wrote: unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )


class OwnerReference(Lenient):
    """An owner of a resource: its deletion deletes the resource as well."""

    api_version: str = API_VERSION
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Lenient):
    """The part of ``metadata`` that reconcilers use."""

    name: Annotated[str, StringConstraints(max_length=253, pattern=OBJECT_NAME_PATTERN)]
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str = ""


class Condition(Lenient):
    """One aspect of the state of a resource, as in ``metav1.Condition``."""

    type: str
    """Ready, Reconciling or Stalled; runs also have Complete or Failed."""
    status: Literal["True", "False", "Unknown"]
    """Whether the aspect holds."""
    reason: str = ""
    """The reason, as one stable CamelCase word."""
    message: str = ""
    """The reason in words, and what to do."""
    last_transition_time: Time | None = None
    """When ``status`` last changed."""
    observed_generation: int = -1
    """The generation of the resource that the condition is about."""


class Status(Lenient):
    """Fields of every status."""

    observed_generation: int = -1
    """The newest generation that was fully reconciled; -1 before the first."""
    conditions: tuple[Condition, ...] = ()
    """Ready always; Reconciling and Stalled only while true."""

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type; None if it is absent."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Return whether the condition of this type is True."""
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"


class Attempts(Lenient):
    """The attempts of a job that is retried until it succeeds or fails permanently.

    ``attempt`` is written before its job is created. So no job exists of an attempt that is not in the status. A job
    that was observed and is gone was lost.
    """

    attempt: int = 0
    """The number of the current or next attempt, with which the name of its job ends."""
    observed_attempt: int = 0
    """The newest attempt whose job was observed."""
    failures: int = 0
    """Number of failed attempts that count against the retry limit."""
    disruptions: int = 0
    """Number of attempts lost to the cluster: pods deleted or evicted, nodes gone."""
    next_attempt_time: Time | None = None
    """When the next attempt may start."""
    setback: str | None = None
    """Why the previous attempt ended: a reason and its message."""
    engine_digest: str | None = None
    """A digest of the engine's settings of the last attempt: an edit of the Engine revives a run that failed for it."""


class Resource(BaseModel):
    """A resource of any kind. Each kind narrows ``spec`` and ``status`` to its own models."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.size() <= {NAME_LIMIT}",
            message=f"the name is longer than {NAME_LIMIT} characters: names of pods begin with it, shorten it",
            holds=lambda self: len(self.metadata.name) <= NAME_LIMIT,
        ),
        Rule(
            cel="!self.metadata.name.contains('.')",
            message="the name has a dot: use letters, digits and '-' only, as the names of pods begin with it",
            holds=lambda self: "." not in self.metadata.name,
        ),
    )
    transitions: ClassVar[tuple[TransitionRule, ...]] = ()

    api_version: Literal["kubothek.io/v1alpha1"] = "kubothek.io/v1alpha1"
    kind: str
    metadata: ObjectMeta
    spec: Strict
    status: Status = Status()

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return self.metadata.namespace

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that created this resource and controls its spec, if any."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def deleting(self) -> bool:
        """Whether deletion was requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def frozen(self) -> bool:
        """Whether the annotation for freezing disables reconciliation."""
        return self.metadata.annotations.get(FREEZE_ANNOTATION) == "disabled"

    @property
    def ready(self) -> bool:
        """Whether Ready is True for the present generation, not for an older one."""
        return self.ready_but_for(())

    def ready_but_for(self, reasons: Collection[str]) -> bool:
        """Return whether Ready is True, or not True for one of these reasons, for the present generation."""
        condition = self.status.condition("Ready")
        if condition is None or condition.observed_generation != self.metadata.generation:
            return False
        return condition.status == "True" or condition.reason in reasons

    @property
    def requested_at(self) -> str | None:
        """The newest request to act now, from either annotation; equal values are the same request."""
        asked = [self.metadata.annotations[key] for key in REQUEST_ANNOTATIONS if key in self.metadata.annotations]
        return " ".join(asked) or None
