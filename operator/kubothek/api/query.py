"""Query: one SELECT over datasets, or a query of a cube, with a stored result; once, or to keep a Dataset current."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.as_of import DEFAULT_TIME_LIMIT, AsOf, Moment, Statement
from kubothek.api.cube_changes import CubeQuestion
from kubothek.api.dataset import TableState
from kubothek.api.meta import Attempts, Lenient, Status, Strict, Time
from kubothek.api.observed import QueryRead
from kubothek.api.rules import Immutable, Rule, TransitionRule, UniqueBy
from kubothek.api.runs import EDITABLE, RunResource
from kubothek.api.schedules import Schedule
from kubothek.api.sizes import Sizes
from kubothek.api.values import ColumnName, Duration, Reference, distinct

_FIXED = Immutable(f"a Query cannot be edited, but for schedule, {EDITABLE}: create another Query")
_Directory = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^/.\x00-\x1f]([^\x00-\x1f]*[^/\x00-\x1f])?$")
]


_STANDING = "(has(self.schedule) || (has(self.follow) && size(self.follow) > 0))"


class Location(Strict):
    """A file in an ObjectStore."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.path.split('/').exists(part, part == '' || part == '..' || part == '.')",
            message="location.path has an empty part, a '.' or a '..': name a directory below the url of the store",
            holds=lambda self: not {"", ".", ".."} & set(self.path.split("/")),
        ),
    )

    store_ref: Reference | None = None
    """The ObjectStore to write to; default: the one that the query reads."""
    path: _Directory
    """The directory, relative to the url of the store. The file gets a unique name in it, see status."""
    format: Literal["Parquet", "CSV", "JSONLines"] = "Parquet"
    """The format of the file."""


class Result(Strict):
    """Where the rows go: exactly one of `location` and `datasetRef`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.location) != has(self.datasetRef)",
            message="a result has either a location or a datasetRef: set exactly one of them",
            holds=lambda self: (self.location is None) != (self.dataset_ref is None),
        ),
        Rule(
            cel="!has(self.operation) || has(self.datasetRef)",
            message="operation is for a datasetRef: remove it, or let the rows become a Dataset",
            holds=lambda self: self.operation is None or self.dataset_ref is not None,
        ),
        Rule(
            cel="(has(self.operation) && self.operation == 'Merge') == has(self.key)",
            message="Merge requires key, the columns that identify a row; Overwrite does not accept it",
            holds=lambda self: (self.operation == "Merge") == (self.key is not None),
        ),
        distinct("key", "key", "result."),
    )

    location: Location | None = None
    """A file, which the operator does not manage."""
    dataset_ref: Reference | None = None
    """A Dataset, which the rows change in one commit."""
    operation: Literal["Overwrite", "Merge"] | None = None
    """For `datasetRef`. Overwrite: the rows replace all rows of the Dataset. Merge: a row updates the row of the
    Dataset with the same key, or is added; other rows of the Dataset stay. Default: Overwrite."""
    key: Annotated[tuple[ColumnName, ...] | None, Field(min_length=1, max_length=16)] = None
    """For Merge: the columns that identify a row. A result with two rows of one key is refused. NULL matches no row."""

    @property
    def effect(self) -> str:
        """What happens to the rows, in words."""
        return f"its rows {'are merged by key into' if self.operation == 'Merge' else 'become'} {self.target}"

    @property
    def target(self) -> str:
        """The target of the rows, in words."""
        if self.dataset_ref is not None:
            return f"Dataset {self.dataset_ref.name!r}"
        assert self.location is not None, "a rule of the kind"
        return f"a file in {self.location.path}"


class QuerySpec(Strict):
    """The query and its result. Immutable, except `schedule`, `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.sql) != has(self.cube)",
            message="a Query asks either by sql or of a cube: set exactly one of them",
            holds=lambda self: (self.sql is None) != (self.cube is None),
        ),
        Rule(
            cel="!has(self.cube) || !has(self.asOf) || !has(self.asOf.tag)",
            message="versions of a cube have no tags: give asOf a version or a time",
            holds=lambda self: self.cube is None or self.as_of is None or self.as_of.tag is None,
        ),
        Rule(
            cel="!has(self.cube) || !has(self.asAt)",
            message="asAt asks ledgers for event times, which a cube has none of: remove it, or ask by sql",
            holds=lambda self: self.cube is None or self.as_at is None,
        ),
        Rule(
            cel=f"!{_STANDING} || has(self.result.datasetRef)",
            message="a Query with schedule or follow keeps a Dataset current: set result.datasetRef",
            holds=lambda self: not self.is_standing or self.result.dataset_ref is not None,
        ),
        Rule(
            cel=f"!{_STANDING} || !has(self.asOf)",
            message="a Query with schedule or follow reads the versions that are current at each run: remove asOf",
            holds=lambda self: not self.is_standing or self.as_of is None,
        ),
        Rule(
            cel=f"!{_STANDING} || !has(self.ttlSecondsAfterFinished)",
            message="a Query with schedule or follow never finishes: remove ttlSecondsAfterFinished",
            holds=lambda self: not self.is_standing or self.ttl_seconds_after_finished is None,
        ),
        Rule(
            cel="!has(self.follow) || !has(self.result.datasetRef) || "
            "self.follow.all(each, each.name != self.result.datasetRef.name)",
            message="follow names the Dataset of the result, so each run would start the next one: remove it",
            holds=lambda self: self.result.dataset_ref not in self.follow,
        ),
    )
    transitions: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="has(self.schedule) == has(oldSelf.schedule)",
            message="schedule can be edited, but neither added nor removed: create another Query",
            holds=lambda old, new: (old.schedule is None) == (new.schedule is None),
        ),
    )

    sql: Annotated[Statement | None, _FIXED] = None
    """Immutable. One SELECT. The datasets of the store are tables with their names in the store; `FROM flights AS OF
    VERSION 3` reads an earlier version."""
    cube: Annotated[CubeQuestion | None, _FIXED] = None
    """Immutable. Instead of `sql`: cells of a cube of the store."""
    store_ref: Annotated[Reference, _FIXED]
    """Immutable. The ObjectStore whose datasets are read."""
    as_of: Annotated[AsOf | None, _FIXED] = None
    """Immutable. The version to read of datasets without a version in the statement; default: the current one."""
    as_at: Annotated[Moment | None, _FIXED] = None
    """Immutable. For `sql` over Datasets with a ledger: only events up to this event time, with all later corrections.
    With a time zone: `2026-11-21T14:00:00Z`."""
    result: Annotated[Result, _FIXED]
    """Immutable. Where the rows go."""
    schedule: Schedule | None = None
    """May be edited, but neither added nor removed. Run at creation and at each slot, so that the Dataset of the result
    stays current; with `follow`, only at slots before which an input has changed. Default: one run."""
    follow: Annotated[tuple[Reference, ...], Field(max_length=16), UniqueBy("name"), _FIXED] = ()
    """Immutable. Datasets of the ObjectStore: run at creation and whenever one of them has a new version, or at the
    slots of `schedule`."""
    depends_on: Annotated[tuple[Reference, ...], Field(max_length=32), UniqueBy("name"), _FIXED] = ()
    """Immutable. Commits of this namespace that must be complete before this query starts."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine for the job; default: the Engine called `default`, else the operator's own. The memory of
    its driver limits the query."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, which override those of the Engine."""
    time_limit: Annotated[Duration, _FIXED] = DEFAULT_TIME_LIMIT
    """Immutable. Maximum duration of the query; one that takes longer fails."""
    suspend: bool = False
    """May be edited. True: start no job; a running job continues."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. Maximum number of retries after retryable failures; default: that of the Engine. Raising it
    revives a Query that ended with RetryLimitReached. With `schedule` or `follow`, it holds for each run."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. Seconds after its end until the Query and its pods are deleted; default: never. Queries that Argo
    CD, Flux or Helm applied stay, as these tools would re-apply them."""

    @property
    def is_standing(self) -> bool:
        """Whether the query runs again and again."""
        return self.schedule is not None or bool(self.follow)


class QueryProgress(Lenient):
    """Progress of the job."""

    stage: str
    """Starting, Planning, Running or Committing."""
    rows: int = 0
    """Number of rows so far."""


class FollowedInput(Lenient):
    """A Dataset that a Query follows, as it was when a run began."""

    name: str
    """The Dataset."""
    uid: str
    """The uid of the Dataset, which tells it from another one of the same name."""
    version: int
    """Its version."""


class QueryRun(Lenient):
    """One run of a Query with `schedule` or `follow`."""

    number: int
    """Its number."""
    time: Time
    """When it began. Number and time are part of the id of its commit."""
    slot: Time
    """The last slot that was handled; without one, the time at which the run began."""
    inputs: tuple[FollowedInput, ...] = ()
    """The followed Datasets as they were when it began."""
    done: bool = False
    """Whether it is complete."""
    problem: str | None = None
    """Why it failed permanently: `Reason: text`."""

    @property
    def is_open(self) -> bool:
        """Whether it is neither complete nor given up."""
        return not self.done and self.problem is None


class QueryStatus(Status, Attempts):
    """The progress of the query, and its result; with `schedule` or `follow`, that of the last successful run."""

    progress: QueryProgress | None = None
    """Progress of the running job; only if a warm driver took it (`Engine.spec.warm`)."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """URL of the log of the last attempt, if the operator has a URL template for logs."""
    completion_time: Time | None = None
    """When the result was complete."""
    location: str | None = None
    """The file with the rows, relative to the url of the store."""
    version: int | None = None
    """The version of the Dataset with the rows."""
    rows: int | None = None
    """Number of rows of the result."""
    files: int | None = None
    """Number of files of the result."""
    bytes: int | None = None
    """Size of the files of the result."""
    reads: Annotated[tuple[QueryRead, ...], Field(max_length=16)] = ()
    """What was read of each dataset, as far as the result had room."""
    table: TableState | None = None
    """The Dataset of the result as the job left it."""
    run: QueryRun | None = None
    """With `schedule` or `follow`: the last or running run."""
    next_time: Time | None = None
    """With `schedule`: the time of the next slot."""
    handled_request: str | None = None
    """With `schedule` or `follow`: the last request that was handled."""


class Query(RunResource):
    """A Query is one SELECT over the datasets of an ObjectStore, or a query of a cube in it. Its rows become a file or
    the content of a Dataset, exactly once despite retries. With `schedule` or `follow` it keeps a Dataset current.
    """

    kind: Literal["Query"] = "Query"
    spec: QuerySpec
    status: QueryStatus = QueryStatus()
