"""GCPolicy: what may be forgotten, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.schedules import Schedule
from kubothek.api.values import NAME_PATTERN, Duration, Reference, parse_duration

LEAST_GRACE = timedelta(minutes=1)

Mode = Literal["DryRun", "Enforce"]

_Name = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=NAME_PATTERN)]
_LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
_LabelValue = Annotated[str, StringConstraints(max_length=63)]


class Expression(Strict):
    """One condition on labels, as in ``metav1.LabelSelector``."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            message="values go with the operators In and NotIn, which need them: add or remove them",
            holds=lambda self: (self.operator in ("In", "NotIn")) == bool(self.values),
        ),
    )

    key: _LabelKey
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """What must hold."""
    values: Annotated[tuple[_LabelValue, ...], Field(max_length=64)] = ()
    """For In and NotIn."""


class DatasetSelector(Strict):
    """Which Datasets of the namespace: exactly one of `all`, `names`, and labels."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.all) && self.all, has(self.names), has(self.matchLabels) || has(self.matchExpressions)]"
            ".filter(chosen, chosen).size() == 1",
            message="a selector has either all: true, or names, or matchLabels and matchExpressions: choose one",
            holds=lambda self: (
                [
                    self.all,
                    self.names is not None,
                    self.match_labels is not None or self.match_expressions is not None,
                ].count(True)
                == 1
            ),
        ),
    )

    all: bool = False
    """Every Dataset of the namespace."""
    names: Annotated[tuple[_Name, ...] | None, Field(min_length=1, max_length=1000)] = None
    """Datasets by their names."""
    match_labels: Annotated[dict[str, _LabelValue] | None, Field(min_length=1, max_length=32)] = None
    """Datasets that have all of these labels."""
    match_expressions: Annotated[tuple[Expression, ...] | None, Field(min_length=1, max_length=32)] = None
    """Datasets whose labels meet all of these conditions."""


class Retention(Strict):
    """Which versions stay, besides the present one and tagged ones: what either field keeps. Without any, all do, and
    only what no version needs goes: leftovers of crashes and lost races.
    """

    versions: Annotated[int | None, Field(ge=1, le=1000000)] = None
    """So many of the newest."""
    age: Duration | None = None
    """Those that were current within this time. A version's age counts from when another took its place."""


class GCPolicySpec(Strict):
    """What may be forgotten, of which Datasets, and when it is looked for. Edits take effect with the next job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="duration(self.gracePeriod) >= duration('1m')",
            message="gracePeriod is shorter than 1m: readers and writers need time to finish, choose a longer one",
            holds=lambda self: parse_duration(self.grace_period) >= LEAST_GRACE,
        ),
    )

    selector: DatasetSelector
    """The Datasets. What any policy that selects a Dataset keeps is kept, be it suspended or not."""
    schedule: Schedule
    """When to collect."""
    retention: Retention = Retention()
    """Which versions stay."""
    grace_period: Duration = "24h"
    """How old everything must be that is deleted, and how long versions stay whole after they stopped being current.
    Kept in the store, where the longest of all policies holds, and obeyed by every writer: one that takes longer than
    half of it fails."""
    mode: Mode = "DryRun"
    """DryRun: only say what would be deleted, in the store and in the status. Enforce: delete it."""
    max_deletes: Annotated[int, Field(ge=1, le=1000000000)] = 1000000
    """With more objects of a Dataset than these to delete, none of them is: a stop for mistakes."""
    engine_ref: Reference | None = None
    """The Engine that runs the jobs; default: the Engine called `default`, else the operator's own."""
    suspend: bool = False
    """Takes effect at once. Start no jobs. What runs goes on, and what the policy keeps stays."""


class KindCount(Lenient):
    """Objects of one kind."""

    kind: str
    """data, index, skipping, intake, records, checkpoints, jobs or plans."""
    objects: int = 0
    """How many."""
    bytes: int = 0
    """Their size."""


class Round(Attempts):
    """One slot being worked off: its Datasets, some at a time, in the order of their ObjectStores and names."""

    slot: Time | None = None
    """The time of the slot, or of the request."""
    mode: Mode = "DryRun"
    """The mode in which it was begun. Back to DryRun in between takes effect with the next job."""
    after: str = ""
    """The last Dataset that is through, as `<store>/<name>`; the next job begins with the one behind it."""
    until: str = ""
    """The last Dataset of the job that is under way; empty between two jobs."""
    started_time: Time | None = None
    """When the first job was started."""
    datasets: int = 0
    """Datasets that are through."""
    failed: int = 0
    """Datasets of these that could not be collected; the others of the round were."""
    problems: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """The first few of them: `name: Reason: text`."""
    collected: Annotated[tuple[KindCount, ...], Field(max_length=16)] = ()
    """What was deleted, or would be."""


class GCPolicyStatus(Status):
    """What was found and done."""

    datasets: int | None = None
    """Number of Datasets that the selector selects."""
    next_time: Time | None = None
    """When the next slot is."""
    handled_request: str | None = None
    """The last request to collect now that was taken up."""
    round: Round | None = None
    """The slot that is being worked off."""
    last: Round | None = None
    """The last slot that was worked off; the next one is counted from it."""
    last_time: Time | None = None
    """When it was."""


class GCPolicy(Resource):
    """A GCPolicy says which versions of Datasets are kept, and deletes, on a schedule, what none of them needs."""

    kind: Literal["GCPolicy"] = "GCPolicy"
    spec: GCPolicySpec
    status: GCPolicyStatus = GCPolicyStatus()
