"""Commit: one change of one dataset, exactly once."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, ClassVar, Literal

from pydantic import AwareDatetime, Field, PlainSerializer, StringConstraints

from kubothek.resources.dataset import TableState
from kubothek.resources.files import Compression, Csv, FileFormat, file_rules
from kubothek.resources.meta import Attempts, Lenient, Resource, Status, Strict, Time, render_time
from kubothek.resources.rules import Immutable, Rule, UniqueBy
from kubothek.resources.values import Columns, Reference, TagName

Operation = Literal["Append", "Replace", "Overwrite", "Delete", "Update", "Rollback"]

_FIXED = Immutable("a Commit is one change and cannot be edited, but for suspend and retryLimit: create another Commit")
_Path = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]
_Moment = Annotated[AwareDatetime, PlainSerializer(render_time, when_used="json")]
_Filter = Annotated[str, StringConstraints(min_length=1, max_length=16384)]
_Literal = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
_WITH_SOURCE = ("Append", "Replace", "Overwrite")
_CONTENT = {
    "operation",
    "source",
    "where",
    "new_values",
    "row_level",
    "purge",
    "to_version",
    "to_time",
    "to_tag",
    "allow_schema_change",
}
"""The fields that say what a change does."""
_Url = Annotated[str, StringConstraints(max_length=2048, pattern=r"^(https?|file):[^\s]+$")]


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
        *file_rules("source."),
    )

    store_ref: Reference | None = None
    """The ObjectStore that holds `paths`; default: the one of the Dataset."""
    paths: Annotated[tuple[_Path, ...] | None, Field(min_length=1, max_length=1000)] = None
    """Files, relative to the url of the store."""
    urls: Annotated[tuple[_Url, ...] | None, Field(min_length=1, max_length=100)] = None
    """Files on web servers that the operator allows (http, https)."""
    format: FileFormat
    """The format of the files."""
    compression: Compression = "Auto"
    """The compression of the files; Auto goes by the ending of the name."""
    csv: Csv | None = None
    """How to read CSV; the defaults read what spreadsheets and R write."""
    columns: Columns = None
    """The columns of the files and their types; default: those of the Dataset, else what the files look like."""


class CommitSpec(Strict):
    """The change. Immutable, but for `suspend` and `retryLimit`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operation in ['Append', 'Replace', 'Overwrite']) == has(self.source)",
            message="source goes with the operations Append, Replace and Overwrite, which need it: add or remove it",
            holds=lambda self: (self.operation in _WITH_SOURCE) == (self.source is not None),
        ),
        Rule(
            cel="!(self.operation in ['Delete', 'Update']) || has(self.where)",
            message="Delete and Update need where, which rows they concern: add it, TRUE for all",
            holds=lambda self: self.operation not in ("Delete", "Update") or self.where is not None,
        ),
        Rule(
            cel="!has(self.where) || self.operation in ['Replace', 'Delete', 'Update']",
            message="where goes with the operations Replace, Delete and Update: remove it, or correct the operation",
            holds=lambda self: self.where is None or self.operation in ("Replace", "Delete", "Update"),
        ),
        Rule(
            cel="(self.operation == 'Update') == has(self.set)",
            message="set goes with the operation Update, which needs it: add or remove it",
            holds=lambda self: (self.operation == "Update") == (self.new_values is not None),
        ),
        Rule(
            cel="self.operation != 'Update' || self.rowLevel",
            message="an Update changes rows inside of files: say rowLevel: true to rewrite the files that hold them",
            holds=lambda self: self.operation != "Update" or self.row_level,
        ),
        Rule(
            cel="!self.rowLevel || self.operation in ['Delete', 'Update']",
            message="rowLevel goes with the operations Delete and Update: remove it",
            holds=lambda self: not self.row_level or self.operation in ("Delete", "Update"),
        ),
        Rule(
            cel="!self.purge || self.operation == 'Delete'",
            message="purge goes with the operation Delete: remove it",
            holds=lambda self: not self.purge or self.operation == "Delete",
        ),
        Rule(
            cel="self.operation != 'Rollback' || "
            "(has(self.toVersion) ? 1 : 0) + (has(self.toTime) ? 1 : 0) + (has(self.toTag) ? 1 : 0) == 1",
            message="Rollback needs toVersion, toTime or toTag: set exactly one of them",
            holds=lambda self: (
                self.operation != "Rollback" or [self.to_version, self.to_time, self.to_tag].count(None) == 2
            ),
        ),
        Rule(
            cel="self.operation == 'Rollback' || !(has(self.toVersion) || has(self.toTime) || has(self.toTag))",
            message="toVersion, toTime and toTag go with the operation Rollback: remove them",
            holds=lambda self: (
                self.operation == "Rollback" or [self.to_version, self.to_time, self.to_tag].count(None) == 3
            ),
        ),
        Rule(
            cel="!self.allowSchemaChange || self.operation in ['Overwrite', 'Rollback']",
            message="allowSchemaChange goes with the operations Overwrite and Rollback: remove it",
            holds=lambda self: not self.allow_schema_change or self.operation in ("Overwrite", "Rollback"),
        ),
    )

    dataset_ref: Annotated[Reference, _FIXED]
    """Immutable. The Dataset to change."""
    id: Annotated[str | None, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$"), _FIXED] = None
    """Immutable. What makes the change happen once: a second Commit of the same Dataset with the same id, in this
    cluster or another, changes nothing. Default: `<namespace>/<name>` of the Commit."""
    operation: Annotated[Operation, _FIXED]
    """Immutable. What to do. Append: add rows. Replace: put rows in the place of whole partitions. Overwrite: in the
    place of all rows. Delete: take rows away. Update: give rows other values. Rollback: bring back a version."""
    source: Annotated[Source | None, _FIXED] = None
    """Immutable. Where the rows come from: for Append, Replace and Overwrite."""
    where: Annotated[_Filter | None, _FIXED] = None
    """Immutable. Which rows a Delete or Update concerns, or which partitions a Replace; then it may only name partition
    columns, and default is: those that the new rows touch. SQL-like: `month = 3 AND carrier IN ('AA', 'UA')`, with AND,
    OR, NOT, BETWEEN, IS NULL. `TRUE` is everything; any other filter that selects everything is refused."""
    new_values: Annotated[dict[str, _Literal] | None, Field(alias="set", min_length=1, max_length=100), _FIXED] = None
    """Immutable. For Update: the new value of each column, as a literal: `1.5`, `'x'`, `DATE '2026-01-31'`, `NULL`."""
    row_level: Annotated[bool, _FIXED] = False
    """Immutable. For Delete and Update. True: files that hold other rows as well are rewritten. False: only whole files
    go, and a filter that selects rows inside of files is refused."""
    purge: Annotated[bool, _FIXED] = False
    """Immutable. For Delete. True: all versions before it expire as well, so that what still holds such rows is deleted
    by the first garbage collection after the grace period. Refused as long as a version has a tag."""
    to_version: Annotated[int | None, Field(ge=1), _FIXED] = None
    """Immutable. For Rollback: the version to bring back."""
    to_time: Annotated[_Moment | None, _FIXED] = None
    """Immutable. For Rollback: the time at which the version to bring back was current."""
    to_tag: Annotated[TagName | None, _FIXED] = None
    """Immutable. For Rollback: the tag of the version to bring back, as it is when the job runs."""
    allow_schema_change: Annotated[bool, _FIXED] = False
    """Immutable. For Overwrite and Rollback. True: columns that do not go with those of the table take their place."""
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
        content = self.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=_CONTENT)
        source = content.get("source", {})
        if source.get("storeRef") == {"name": dataset_store}:
            del source["storeRef"]
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
