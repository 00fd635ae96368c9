"""GCPolicy: retention of versions, and garbage collection on a schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import Attempts, Resource, Status, Strict, Time
from kubothek.api.observed import KindCount
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
    """The condition on the label."""
    values: Annotated[tuple[_LabelValue, ...], Field(max_length=64)] = ()
    """For In and NotIn: the values."""


class DatasetSelector(Strict):
    """A selection of Datasets of the namespace: exactly one of `all`, `names`, and labels."""

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
    """Retention of versions besides the current one and tagged ones. A version is kept if either field keeps it.
    Without fields all versions are kept, and only objects that no version needs are deleted: remains of crashes and
    conflicts.
    """

    versions: Annotated[int | None, Field(ge=1, le=1000000)] = None
    """Number of newest versions to keep."""
    age: Duration | None = None
    """Keep versions that were current within this time. A version's age counts from its replacement by the next."""


class GCPolicySpec(Strict):
    """The Datasets, retention and schedule of garbage collection. Edits take effect with the next job."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="duration(self.gracePeriod) >= duration('1m')",
            message="gracePeriod is shorter than 1m: readers and writers need time to finish, choose a longer one",
            holds=lambda self: parse_duration(self.grace_period) >= LEAST_GRACE,
        ),
    )

    selector: DatasetSelector
    """The Datasets. If several policies select a Dataset, each version that any of them keeps is kept, even if that
    policy is suspended."""
    schedule: Schedule
    """When to collect."""
    retention: Retention = Retention()
    """Retention of versions."""
    grace_period: Duration = "24h"
    """Minimum age of deleted objects, and how long versions stay readable after they stopped being current. The store
    records the longest of all policies, and every writer obeys it: a write that takes longer than half of it fails."""
    mode: Mode = "DryRun"
    """DryRun: only report what would be deleted, in the store and in the status. Enforce: delete it."""
    max_deletes: Annotated[int, Field(ge=1, le=1000000000)] = 1000000
    """A safeguard: if a Dataset has more objects to delete, none of them is deleted."""
    engine_ref: Reference | None = None
    """The Engine that runs the jobs; default: the Engine called `default`, else the operator's own."""
    suspend: bool = False
    """Takes effect at once. True: start no jobs; running jobs continue, and the policy's retention still holds."""


class Round(Attempts):
    """The collection of one slot: its Datasets in batches, ordered by ObjectStore and name."""

    slot: Time | None = None
    """The time of the slot, or of the request."""
    mode: Mode = "DryRun"
    """The mode at its start. A later change to DryRun takes effect with the next job."""
    after: str = ""
    """The last processed Dataset, as `<store>/<name>`; the next job starts after it."""
    until: str = ""
    """The last Dataset of the running job; empty between two jobs."""
    started_time: Time | None = None
    """When the first job was started."""
    datasets: int = 0
    """Number of processed Datasets."""
    failed: int = 0
    """Number of these that could not be collected."""
    problems: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """The first few failures: `name: Reason: text`."""
    collected: Annotated[tuple[KindCount, ...], Field(max_length=16)] = ()
    """What was deleted, or would be."""


class GCPolicyStatus(Status):
    """The observed state of the policy, and the results of its collections."""

    datasets: int | None = None
    """Number of Datasets that the selector selects."""
    next_time: Time | None = None
    """The time of the next slot."""
    handled_request: str | None = None
    """The last request to collect now that was handled."""
    round: Round | None = None
    """The collection in progress."""
    last: Round | None = None
    """The last finished collection; the next slot is counted from it."""
    last_time: Time | None = None
    """When it ended."""


class GCPolicy(Resource):
    """A GCPolicy defines which versions of Datasets are kept, and deletes on a schedule what no version needs."""

    kind: Literal["GCPolicy"] = "GCPolicy"
    spec: GCPolicySpec
    status: GCPolicyStatus = GCPolicyStatus()
