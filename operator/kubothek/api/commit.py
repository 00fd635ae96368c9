"""Commit: one change of one dataset, exactly once."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import AwareDatetime, Field, PlainSerializer, StringConstraints

from kubothek.api.cube import CubeState
from kubothek.api.cube_changes import CubeChange
from kubothek.api.dataset import TableState
from kubothek.api.files import Source
from kubothek.api.merge import MatchedClause, NotMatchedClause, UnsourcedClause
from kubothek.api.meta import Attempts, Lenient, Resource, Status, Strict, Time, render_time
from kubothek.api.observed import MemberEffect
from kubothek.api.rules import Immutable, Rule, UniqueBy
from kubothek.api.runs import EDITABLE, RunResource
from kubothek.api.sizes import Sizes
from kubothek.api.values import ColumnName, Reference, TagName, distinct

Operation = Literal["Append", "Replace", "Overwrite", "Merge", "Delete", "Update", "Rollback"]

_FIXED = Immutable(f"a Commit is one change and cannot be edited, but for {EDITABLE}: create another Commit")
_Moment = Annotated[AwareDatetime, PlainSerializer(render_time, when_used="json")]
_Filter = Annotated[str, StringConstraints(min_length=1, max_length=16384)]
_Literal = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
_WITH_SOURCE = ("Append", "Replace", "Overwrite", "Merge")
_MERGE = ("key", "when_matched", "when_not_matched", "when_not_matched_by_source")
_CONTENT = {
    "cube",
    "operation",
    "source",
    "push_source",
    "where",
    "new_values",
    "row_level",
    "purge",
    *_MERGE,
    "to_version",
    "to_time",
    "to_tag",
    "allow_schema_change",
}
"""The fields that define a change, without those of its execution."""

DEFAULT_PUSH_SOURCE = "default"
"""The push source of a ledger to which a Commit without ``spec.pushSource`` appends."""


class CommitSpec(Strict):
    """The change. Immutable, except `suspend`, `retryLimit` and `ttlSecondsAfterFinished`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        distinct("key", "key"),
        Rule(
            cel="has(self.datasetRef) != has(self.cube)",
            message="a Commit changes either a Dataset (datasetRef) or a Cube (cube): set exactly one of them",
            holds=lambda self: (self.dataset_ref is None) != (self.cube is None),
        ),
        Rule(
            cel="has(self.operation) == has(self.datasetRef)",
            message="datasetRef requires operation; for a Cube, set cube.operation instead",
            holds=lambda self: (self.operation is None) == (self.dataset_ref is None),
        ),
        Rule(
            cel="(has(self.operation) && self.operation in ['Append', 'Replace', 'Overwrite', 'Merge']) == "
            "has(self.source)",
            message="Append, Replace, Overwrite and Merge require source; other operations do not accept it",
            holds=lambda self: (self.operation in _WITH_SOURCE) == (self.source is not None),
        ),
        Rule(
            cel="!has(self.pushSource) || (has(self.operation) && self.operation == 'Append')",
            message="only Append accepts pushSource: remove it",
            holds=lambda self: self.push_source is None or self.operation == "Append",
        ),
        Rule(
            cel="!has(self.operation) || !(self.operation in ['Delete', 'Update']) || has(self.where)",
            message="Delete and Update require where, a filter of the rows; TRUE for all",
            holds=lambda self: self.operation not in ("Delete", "Update") or self.where is not None,
        ),
        Rule(
            cel="!has(self.where) || (has(self.operation) && self.operation in ['Replace', 'Delete', 'Update'])",
            message="only Replace, Delete and Update accept where: remove it, or correct the operation",
            holds=lambda self: self.where is None or self.operation in ("Replace", "Delete", "Update"),
        ),
        Rule(
            cel="(has(self.operation) && self.operation == 'Merge') == has(self.key)",
            message="Merge requires key, the columns that identify a row; other operations do not accept it",
            holds=lambda self: (self.operation == "Merge") == (self.key is not None),
        ),
        Rule(
            cel="(has(self.operation) && self.operation == 'Merge') == "
            "(has(self.whenMatched) || has(self.whenNotMatched) || has(self.whenNotMatchedBySource))",
            message="Merge requires whenMatched, whenNotMatched or whenNotMatchedBySource; other operations do not "
            "accept them",
            holds=lambda self: (self.operation == "Merge") == any(getattr(self, name) for name in _MERGE[1:]),
        ),
        Rule(
            cel="(has(self.operation) && self.operation == 'Update') == has(self.set)",
            message="Update requires set; other operations do not accept it",
            holds=lambda self: (self.operation == "Update") == (self.new_values is not None),
        ),
        Rule(
            cel="!has(self.operation) || self.operation != 'Update' || self.rowLevel",
            message="Update requires rowLevel: true, which rewrites the files that hold matching rows",
            holds=lambda self: self.operation != "Update" or self.row_level,
        ),
        Rule(
            cel="!self.rowLevel || (has(self.operation) && self.operation in ['Delete', 'Update'])",
            message="only Delete and Update accept rowLevel: remove it",
            holds=lambda self: not self.row_level or self.operation in ("Delete", "Update"),
        ),
        Rule(
            cel="!self.purge || (has(self.operation) && self.operation == 'Delete')",
            message="only Delete accepts purge: remove it",
            holds=lambda self: not self.purge or self.operation == "Delete",
        ),
        Rule(
            cel="!has(self.operation) || self.operation != 'Rollback' || "
            "(has(self.toVersion) ? 1 : 0) + (has(self.toTime) ? 1 : 0) + (has(self.toTag) ? 1 : 0) == 1",
            message="Rollback requires exactly one of toVersion, toTime and toTag",
            holds=lambda self: (
                self.operation != "Rollback" or [self.to_version, self.to_time, self.to_tag].count(None) == 2
            ),
        ),
        Rule(
            cel="(has(self.operation) && self.operation == 'Rollback') || "
            "!(has(self.toVersion) || has(self.toTime) || has(self.toTag))",
            message="only Rollback accepts toVersion, toTime and toTag: remove them",
            holds=lambda self: (
                self.operation == "Rollback" or [self.to_version, self.to_time, self.to_tag].count(None) == 3
            ),
        ),
        Rule(
            cel="!self.allowSchemaChange || (has(self.operation) && self.operation in ['Overwrite', 'Rollback'])",
            message="only Overwrite and Rollback accept allowSchemaChange: remove it",
            holds=lambda self: not self.allow_schema_change or self.operation in ("Overwrite", "Rollback"),
        ),
        Rule(
            cel="!has(self.cube) || self.onConflict == 'Fail'",
            message="a Cube does not accept onConflict: Retry, as its changes run one after the other: remove it",
            holds=lambda self: self.cube is None or self.on_conflict == "Fail",
        ),
    )

    dataset_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Dataset to change."""
    cube: Annotated[CubeChange | None, _FIXED] = None
    """Immutable. Instead of `datasetRef` and `operation`: the change of a Cube, which is atomic over its datasets."""
    id: Annotated[str | None, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$"), _FIXED] = None
    """Immutable. The idempotency key: a second Commit of the same Dataset or Cube with the same id, in this cluster or
    another, changes nothing. Default: `<namespace>/<name>` of the Commit."""
    operation: Annotated[Operation | None, _FIXED] = None
    """Immutable. What to do with the Dataset. Append: add rows. Replace: replace whole partitions. Overwrite: replace
    all rows. Merge: update, delete and insert rows by key. Delete: delete rows. Update: change values of rows.
    Rollback: restore an earlier version."""
    source: Annotated[Source | None, _FIXED] = None
    """Immutable. For Append, Replace, Overwrite and Merge: where the rows come from, files or the rows of a SELECT."""
    key: Annotated[tuple[ColumnName, ...] | None, Field(min_length=1, max_length=16), _FIXED] = None
    """Immutable. For Merge: the columns that identify a row in the Dataset and in the source. A source with two rows of
    one key is refused. NULL matches no row."""
    when_matched: Annotated[tuple[MatchedClause, ...] | None, Field(min_length=1, max_length=8), _FIXED] = None
    """Immutable. For Merge: what happens to rows of the Dataset with a source row of the same key; the first clause
    whose `where` is true. Default: they stay."""
    when_not_matched: Annotated[tuple[NotMatchedClause, ...] | None, Field(min_length=1, max_length=8), _FIXED] = None
    """Immutable. For Merge: what happens to source rows without a row of the same key. Default: nothing."""
    when_not_matched_by_source: Annotated[
        tuple[UnsourcedClause, ...] | None, Field(min_length=1, max_length=8), _FIXED
    ] = None
    """Immutable. For Merge: what happens to rows of the Dataset without a source row. Default: they stay."""
    push_source: Annotated[
        str | None, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]+$"), _FIXED
    ] = None
    """Immutable. For Append to a Dataset with a ledger: the push source whose event in the chain defines how rows are
    read and merged; default: `default`."""
    where: Annotated[_Filter | None, _FIXED] = None
    """Immutable. For Delete and Update: the rows to change. For Replace: the partitions to replace, by partition
    columns only; default: the partitions of the new rows. SQL-like: `month = 3 AND carrier IN ('AA', 'UA')`, with AND,
    OR, NOT, BETWEEN, IS NULL. `TRUE` selects everything; any other filter that selects everything is refused."""
    new_values: Annotated[dict[str, _Literal] | None, Field(alias="set", min_length=1, max_length=100), _FIXED] = None
    """Immutable. For Update: the new value of each column, an SQL expression over the columns of the row: `price *
    1.1`, `'x'`, `DATE '2026-01-31'`, `NULL`."""
    row_level: Annotated[bool, _FIXED] = False
    """Immutable. For Delete and Update. True: files that also hold other rows are rewritten. False: only whole files
    are deleted, and a filter that selects only some rows of a file is refused."""
    purge: Annotated[bool, _FIXED] = False
    """Immutable. For Delete. True: all earlier versions expire as well, so that the first garbage collection after the
    grace period deletes the files with such rows. Refused as long as a version has a tag."""
    to_version: Annotated[int | None, Field(ge=1), _FIXED] = None
    """Immutable. For Rollback: the version to restore."""
    to_time: Annotated[_Moment | None, _FIXED] = None
    """Immutable. For Rollback: a time at which the version to restore was current."""
    to_tag: Annotated[TagName | None, _FIXED] = None
    """Immutable. For Rollback: the tag of the version to restore, resolved when the job runs."""
    allow_schema_change: Annotated[bool, _FIXED] = False
    """Immutable. For Overwrite and Rollback. True: incompatible columns replace those of the table."""
    depends_on: Annotated[tuple[Reference, ...], Field(max_length=32), UniqueBy("name"), _FIXED] = ()
    """Immutable. Commits of this namespace that must be complete before this one starts."""
    on_conflict: Annotated[Literal["Fail", "Retry"], _FIXED] = "Fail"
    """Immutable. What happens on a conflict with a concurrent commit. Fail: nothing changes. Retry: repeat the
    operation on the new version."""
    engine_ref: Annotated[Reference | None, _FIXED] = None
    """Immutable. The Engine for the job; default: that of the Dataset or Cube."""
    size: Annotated[Sizes | None, _FIXED] = None
    """Immutable. Sizes for this run, which override those of the Engine."""
    suspend: bool = False
    """May be edited. True: start no job; a running job continues. Later Commits of the Dataset do not wait for a
    suspended one."""
    retry_limit: Annotated[int | None, Field(ge=0, le=20)] = None
    """May be edited. Maximum number of retries after retryable failures; default: that of the Engine. Raising it
    revives a Commit that ended with RetryLimitReached."""
    ttl_seconds_after_finished: Annotated[int | None, Field(ge=0)] = None
    """May be edited. Seconds after its end until the Commit and its pods are deleted; default: never. Commits that Argo
    CD, Flux or Helm applied stay, as these tools would re-apply them. So do Commits on which others depend."""


class Subject(NamedTuple):
    """The resource that a Commit changes."""

    kind: Literal["Dataset", "Cube"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


class CommitProgress(Lenient):
    """Progress of the job."""

    stage: str
    """Starting, Reading, Writing or Committing."""
    tasks_done: int = 0
    """Number of finished tasks."""
    tasks_total: int = 0
    """Number of tasks."""
    rows: int = 0
    """Number of rows so far."""


class MemberChange(MemberEffect):
    """What a change of a cube did to one of its datasets."""

    table: TableState | None = None
    """The dataset as the job left it, if the result had room for it."""


class CommitStatus(Status, Attempts):
    """The progress of the change, and its effect."""

    id: str | None = None
    """The idempotency key of the change."""
    progress: CommitProgress | None = None
    """Progress of the running job."""
    start_time: Time | None = None
    """When the first attempt was started."""
    logs: str | None = None
    """URL of the log of the last attempt, if the operator has a URL template for logs."""
    completion_time: Time | None = None
    """When the change was complete."""
    version: int | None = None
    """The version of the dataset, or of the cube, that this change made."""
    rows: int | None = None
    """Number of rows that this change added."""
    files: int | None = None
    """Number of data files that this change added."""
    bytes: int | None = None
    """Size of the data files that this change added."""
    table: TableState | None = None
    """The table as the job left it."""
    cube: CubeState | None = None
    """The cube as the job left it."""
    members: Annotated[tuple[MemberChange, ...], Field(max_length=32)] = ()
    """What this change did to each dataset of a cube."""


class Commit(RunResource):
    """A Commit is one change of one Dataset, or of one Cube. It happens exactly once, despite retries and re-created
    manifests.
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
        """The idempotency key of the change."""
        return self.spec.id or f"{self.namespace}/{self.name}"

    @property
    def subject(self) -> Subject:
        """The Dataset or Cube to change."""
        if self.spec.cube is not None:
            return Subject("Cube", self.spec.cube.cube_ref.name)
        assert self.spec.dataset_ref is not None, "a rule of the kind"
        return Subject("Dataset", self.spec.dataset_ref.name)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the rows."""
        if self.spec.cube is not None:
            return tuple(rows.source for rows in self.spec.cube.datasets)
        return () if self.spec.source is None else (self.spec.source,)

    def digest(self, home: str) -> str:
        """Return the SHA-256 of the change, which distinguishes a repeated commit from a reused id.

        Defaults are omitted, so that fields of later releases do not change old digests. ``home`` is the store of the
        Dataset or Cube, the default of a source. A time limit of a statement changes no row.
        """
        content = self.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True, include=_CONTENT)
        members = content.get("cube", {}).get("datasets", ())
        for source in (content.get("source", {}), *(member["source"] for member in members)):
            if source.get("storeRef") == {"name": home}:
                del source["storeRef"]
            source.pop("timeLimit", None)
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
