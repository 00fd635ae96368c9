"""Query: one SELECT over datasets, or cells of a cube, its result kept."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.cube_changes import CubeQuestion
from kubothek.api.dataset import TableState
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule, UniqueBy
from kubothek.api.runs import EDITABLE
from kubothek.api.sizes import Sizes
from kubothek.api.values import Duration, Reference, TagName

_FIXED = Immutable(f"a Query is one run and cannot be edited, but for {EDITABLE}: create another Query")
_Directory = Annotated[
    str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^/.\x00-\x1f]([^\x00-\x1f]*[^/\x00-\x1f])?$")
]


_Moment = Annotated[
    str,
    StringConstraints(
        max_length=40,
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$",
    ),
]


class AsOf(Strict):
    """Which version is read: exactly one of `version`, `time` and `tag`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.version) ? 1 : 0) + (has(self.time) ? 1 : 0) + (has(self.tag) ? 1 : 0) == 1",
            message="asOf has a version, a time or a tag: set exactly one of them",
            holds=lambda self: [self.version, self.time, self.tag].count(None) == 2,
        ),
    )

    version: Annotated[int | None, Field(ge=1)] = None
    """The version of every dataset that the statement names."""
    time: _Moment | None = None
    """The time at which the versions were current, with a time zone: `2026-11-21T14:00:00Z`."""
    tag: TagName | None = None
    """The tag of the version, which every dataset that the statement names must have."""


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
    """The ObjectStore to write to; default: the one that is read."""
    path: _Directory
    """The directory, relative to the url of the store. The file gets a name of its own in it, see status."""
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
    )

    location: Location | None = None
    """A file that nobody has to look after."""
    dataset_ref: Reference | None = None
    """A Dataset, whose content the rows become in one commit."""

    @property
    def target(self) -> str:
        """Where the rows go, in words."""
        if self.dataset_ref is not None:
            return f"Dataset {self.dataset_ref.name!r}"
        assert self.location is not None, "a rule of the kind"
        return f"a file in {self.location.path}"


class QuerySpec(Strict):
    """The question, and where the answer goes. Immutable, but for `suspend`, `retryLimit` and
    `ttlSecondsAfterFinished`.
    """

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
    )

    sql: Annotated[str | None, StringConstraints(min_length=1, max_length=65536), _FIXED] = None
    """Immutable. One SELECT. The datasets of the store are tables of their names in the store; `FROM flights AS OF
    VERSION 3` reads one as it was."""
    cube: Annotated[CubeQuestion | None, _FIXED] = None
    """Immutable. In place of `sql`: cells of a cube of the store."""
    store_ref: Annotated[Reference, _FIXED]
    """Immutable. The ObjectStore whose datasets are read."""
    as_of: Annotated[AsOf | None, _FIXED] = None
    """Immutable. Which version is read of datasets whose version the statement does not say; default: the present."""
    as_at: Annotated[_Moment | None, _FIXED] = None
    """Immutable. For `sql` over Datasets with a ledger: only what had happened by then, by event time, with all that is
    known of it. With a zone: `2026-11-21T14:00:00Z`."""
    result: Annotated[Result, _FIXED]
    """Immutable. Where the rows go."""
    depends_on: Annotated[tuple[Reference, ...], Field(max_length=32), UniqueBy("name"), _FIXED] = ()
    """Immutable. Commits of this namespace that must be complete before this query starts."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine that runs it; default: the Engine called `default`, else the operator's own. The query may
    use its driver's memory."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, in place of those of the Engine."""
    time_limit: Annotated[Duration, _FIXED] = "1h"
    """Immutable. How long the query may take; one that takes longer has failed."""
    suspend: bool = False
    """May be edited. Start no job. A job that runs goes on."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. How many times the job is tried again when it fails in a way that may pass; default: that of the
    Engine. Raising it revives a Query that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. How long after its end the Query is deleted, with its pods; default: never. What Argo CD, Flux
    or Helm applied stays, as they would only apply it again."""


class QueryProgress(Lenient):
    """How far the job is."""

    stage: str
    """Starting, Planning, Running or Committing."""
    rows: int = 0
    """Number of rows so far."""


class QueryRead(Lenient):
    """What was read of one dataset."""

    dataset: str
    """Its name in the store."""
    version: int
    """The version."""
    files: int = 0
    """Number of data files that were opened."""
    considered: int = 0
    """Files that were left for skipping to decide about, after partitions and secondary indices had been asked."""
    skipped: int = 0
    """How many of them were not opened."""
    filters: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """What it was filtered by: `column:Equal`, `column:Range` …"""


class QueryStatus(Status, Attempts):
    """How far the query is, and where its result is."""

    progress: QueryProgress | None = None
    """How far the running job is; only of a job that a waiting driver took (`Engine.spec.warm`)."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """Where the log of its last attempt is, if the operator was told where logs are kept."""
    completion_time: Time | None = None
    """When the result was complete."""
    location: str | None = None
    """The file with the rows, relative to the url of the store."""
    version: int | None = None
    """The version of the Dataset that the rows became."""
    rows: int | None = None
    """Number of rows of the result."""
    files: int | None = None
    """Number of files of the result."""
    bytes: int | None = None
    """Size of the files of the result."""
    reads: Annotated[tuple[QueryRead, ...], Field(max_length=16)] = ()
    """What was read, as far as there is room."""
    table: TableState | None = None
    """The Dataset of the result as the job left it."""


class Query(Resource):
    """A Query is one SELECT over the datasets of an ObjectStore, or a question to a cube in it. Its rows become a file
    or the content of a Dataset, exactly once, however often it is tried.
    """

    kind: Literal["Query"] = "Query"
    spec: QuerySpec
    status: QueryStatus = QueryStatus()

    @property
    def finished(self) -> bool:
        """Whether nothing will start for this Query any more."""
        return self.status.holds("Complete") or self.status.holds("Failed")
