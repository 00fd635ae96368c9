"""Commit: one change of one dataset, exactly once."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.resources.dataset import TableState
from kubothek.resources.meta import Attempts, Lenient, Resource, Status, Strict, Time
from kubothek.resources.rules import Immutable, Rule, UniqueBy
from kubothek.resources.values import Columns, Reference

_FIXED = Immutable("a Commit is one change and cannot be edited, but for suspend and retryLimit: create another Commit")
_Character = Annotated[str, StringConstraints(min_length=1, max_length=1)]
_Path = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]
_Url = Annotated[str, StringConstraints(max_length=2048, pattern=r"^(https?|file):[^\s]+$")]


class Csv(Strict):
    """How to read CSV."""

    delimiter: _Character = ","
    """What separates values."""
    quote: _Character = '"'
    """What encloses values that contain the delimiter or a line break."""
    header: bool = True
    """Whether the first line names the columns."""
    null_values: Annotated[tuple[Annotated[str, StringConstraints(max_length=64)], ...], Field(max_length=32)] = (
        "",
        "NA",
        "NULL",
        "null",
    )
    """What stands for a missing value."""


class Source(Strict):
    """Where the rows come from: exactly one of `paths` and `urls`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.paths) != has(self.urls)",
            message="a source has either paths (in a store) or urls: set exactly one of them",
            holds=lambda self: (self.paths is None) != (self.urls is None),
        ),
        Rule(
            cel="!has(self.storeRef) || has(self.paths)",
            message="source.storeRef goes with source.paths: remove it, or name paths",
            holds=lambda self: self.store_ref is None or self.paths is not None,
        ),
        Rule(
            cel="!has(self.urls) || self.urls.all(url, !url.startsWith('file:'))",
            message="a cluster reads no file: urls: put the files into an ObjectStore and name them in paths",
            holds=lambda self: not any(url.startswith("file:") for url in self.urls or ()),
            cluster_only=True,
        ),
        Rule(
            cel="!has(self.paths) || self.paths.all(path, !('..' in path.split('/')))",
            message="source.paths has a '..': name files below the url of the store",
            holds=lambda self: not any(".." in path.split("/") for path in self.paths or ()),
        ),
        Rule(
            cel="!has(self.csv) || self.format == 'CSV'",
            message="source.csv goes with format: CSV: remove it, or correct the format",
            holds=lambda self: self.csv is None or self.format == "CSV",
        ),
        Rule(
            cel="self.format != 'Parquet' || !(self.compression in ['Gzip', 'Zip'])",
            message="a Parquet file is compressed inside: remove source.compression",
            holds=lambda self: self.format != "Parquet" or self.compression not in ("Gzip", "Zip"),
        ),
    )

    store_ref: Reference | None = None
    """The ObjectStore that holds `paths`; default: the one of the Dataset."""
    paths: Annotated[tuple[_Path, ...] | None, Field(min_length=1, max_length=1000)] = None
    """Files, relative to the url of the store."""
    urls: Annotated[tuple[_Url, ...] | None, Field(min_length=1, max_length=100)] = None
    """Files on web servers that the operator allows (http, https)."""
    format: Literal["CSV", "JSONLines", "Parquet"]
    """The format of the files."""
    compression: Literal["Auto", "None", "Gzip", "Zip"] = "Auto"
    """The compression of the files; Auto goes by the ending of the name."""
    csv: Csv | None = None
    """How to read CSV; the defaults read what spreadsheets and R write."""
    columns: Columns = None
    """The columns of the files and their types; default: those of the Dataset, else what the files look like."""


class CommitSpec(Strict):
    """The change. Immutable, but for `suspend` and `retryLimit`."""

    dataset_ref: Annotated[Reference, _FIXED]
    """Immutable. The Dataset to change."""
    id: Annotated[str | None, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$"), _FIXED] = None
    """Immutable. What makes the change happen once: a second Commit of the same Dataset with the same id, in this
    cluster or another, changes nothing. Default: `<namespace>/<name>` of the Commit."""
    operation: Annotated[Literal["Append"], _FIXED]
    """Immutable. What to do with the rows. Append: add them."""
    source: Annotated[Source, _FIXED]
    """Immutable. Where the rows come from."""
    depends_on: Annotated[tuple[Reference, ...], Field(max_length=32), UniqueBy("name"), _FIXED] = ()
    """Immutable. Commits of this namespace that must be complete before this one starts."""
    on_conflict: Annotated[Literal["Fail", "Retry"], _FIXED] = "Fail"
    """Immutable. What happens if a concurrent commit changed what this one was based on. Fail: nothing is changed.
    Retry: do it again from the new version."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine that does it; default: the one of the Dataset."""
    suspend: bool = False
    """May be edited. Start no job. A job that runs goes on. Later Commits of the Dataset do not wait for a suspended
    one."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. How many times the job is tried again when it fails in a way that may pass; default: that of the
    Engine. Raising it revives a Commit that ended with RetryLimitReached."""


class CommitProgress(Lenient):
    """How far the job is."""

    stage: str
    """Starting, Reading, Writing or Committing."""
    tasks_done: int = 0
    """Number of tasks that are finished."""
    tasks_total: int = 0
    """Number of tasks."""
    rows: int = 0
    """Number of rows so far."""


class CommitStatus(Status, Attempts):
    """How far the change is, and what it did."""

    id: str | None = None
    """What makes the change happen once."""
    progress: CommitProgress | None = None
    """How far the running job is."""
    start_time: Time | None = None
    """When the first attempt was started."""
    completion_time: Time | None = None
    """When the change was complete."""
    version: int | None = None
    """The version of the dataset that this change made."""
    rows: int | None = None
    """Number of rows that this change added."""
    files: int | None = None
    """Number of data files that this change added."""
    bytes: int | None = None
    """Size of the data files that this change added."""
    table: TableState | None = None
    """The table as the job left it."""


class Commit(Resource):
    """A Commit is one change of one Dataset. It happens exactly once, however often it is tried, and whatever
    re-creates the manifest.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        *Resource.rules,
        Rule(
            cel="!has(self.spec.dependsOn) || self.spec.dependsOn.all(c, c.name != self.metadata.name)",
            message="spec.dependsOn names the Commit itself: remove it",
            holds=lambda self: all(other.name != self.name for other in self.spec.depends_on),
        ),
    )

    kind: Literal["Commit"] = "Commit"
    spec: CommitSpec
    status: CommitStatus = CommitStatus()

    @property
    def id(self) -> str:
        """What makes the change happen once."""
        return self.spec.id or f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Whether nothing will start for this Commit any more."""
        return self.status.holds("Complete") or self.status.holds("Failed")

    def digest(self, dataset_store: str) -> str:
        """SHA-256 of what the change does: tells a repeated commit from a reused id.

        Defaults are left out, so that fields that a later release adds leave old digests as they are.
        ``dataset_store`` is the store that the source means when it names none.
        """
        source = self.spec.source.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if source.get("storeRef") == {"name": dataset_store}:
            del source["storeRef"]
        content = {"operation": self.spec.operation, "source": source}
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
