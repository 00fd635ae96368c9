"""SkippingIndex: skipping metadata for files that Kubothek does not own."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.files import Csv, csv_rule
from kubothek.api.meta import Attempts, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule
from kubothek.api.schedules import Schedule
from kubothek.api.skipping import ColumnIndexStatus, Skipping
from kubothek.api.values import Columns, Reference

PlainFormat = Literal["Parquet", "ORC", "CSV", "JSONLines"]

_Place = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]
_ELSEWHERE = Immutable("the location cannot change, as the metadata is about its files: create another SkippingIndex")


class PlainLocation(Strict):
    """Files below a prefix of an ObjectStore, optionally only those that match a glob."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.prefix.split('/').exists(part, part == '..' || part == '.') && "
            "(!has(self.glob) || !('..' in self.glob.split('/')))",
            message="prefix or glob has a '.' or '..': name a place below the url of the store",
            holds=lambda self: (
                not {".", ".."} & set(self.prefix.split("/")) and ".." not in (self.glob or "").split("/")
            ),
        ),
        Rule(
            cel="!self.prefix.startsWith('.kubothek')",
            message=".kubothek/ belongs to Kubothek: name the location of data files",
            holds=lambda self: not self.prefix.startswith(".kubothek"),
        ),
    )

    store_ref: Annotated[Reference, _ELSEWHERE]
    """Immutable. The ObjectStore that holds the files."""
    prefix: Annotated[_Place, _ELSEWHERE]
    """Immutable. The directory, relative to the url of the store: the dataset of the original Xskipper. Directories
    below it with names like `column=value` are columns. Names that begin with `.` or `_` are ignored."""
    glob: Annotated[_Place | None, _ELSEWHERE] = None
    """Immutable. A pattern below `prefix`: `2026/*.parquet`; `**` is any number of directories. Default: everything."""


class MetadataPlace(Strict):
    """The location of the metadata."""

    store_ref: Annotated[Reference, _ELSEWHERE]
    """Immutable. The ObjectStore for the metadata."""


class SkippingIndexSpec(Strict):
    """The files, and the metadata of each of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        csv_rule(),
        Rule(
            cel="self.skipping.auto || (has(self.skipping.indices) && self.skipping.indices.size() > 0)",
            message="skipping has neither indices nor auto: true, so there is nothing to keep: add one",
            holds=lambda self: self.skipping.auto or bool(self.skipping.indices),
        ),
    )

    location: PlainLocation
    """The location of the files. Kubothek never writes there."""
    format: Annotated[PlainFormat, _ELSEWHERE] = "Parquet"
    """Immutable. The format of all files."""
    csv: Csv | None = None
    """A job on edit. How to read CSV."""
    columns: Columns = None
    """A job on edit. The columns and their types; default: those of the first file: of Parquet and ORC from its schema,
    of CSV and JSON from its first rows."""
    skipping: Skipping
    """A job on edit: all metadata is rebuilt."""
    schedule: Schedule | None = None
    """Takes effect at once. When to check for new, deleted and changed files; default: on request only, by the
    annotation `kubothek.io/requestedAt` or `kubothek skipping refresh`. Files added since are always opened."""
    metadata: MetadataPlace | None = None
    """The store of the metadata, with the key `.kubothek/++plain/<namespace>.<name>`; default: that of the files."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Takes effect at once. Retain: deleting this resource keeps the metadata, and queries still use it. Delete: a job
    deletes the metadata first. The files always stay."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine that runs the jobs; default: the Engine called `default`, else the
    operator's own."""
    suspend: bool = False
    """Takes effect at once. True: start no jobs; running jobs continue."""


class PlainRefresh(Attempts):
    """One refresh of the metadata."""

    cause: str = ""
    """Its cause: a digest of the fields that define the metadata, with the time of the slot or the request."""
    slot: Time | None = None
    """The time of the slot; without one, the time at which it began."""
    done: bool = False
    """Whether it is complete."""
    problem: str | None = None
    """Why it failed permanently: `Reason: text`."""


class SkippingIndexStatus(Status):
    """The observed state of the files and their metadata."""

    files: int | None = None
    """Number of files that the last refresh found."""
    described: int | None = None
    """Number of these with metadata; the others are always opened."""
    added: int = 0
    """Number of files for which the last refresh wrote metadata."""
    removed: int = 0
    """Number of files whose metadata it removed, as they changed or are gone."""
    bytes: int = 0
    """The size of the metadata."""
    size: str | None = None
    """The same, human-readable."""
    indices: Annotated[tuple[ColumnIndexStatus, ...], Field(max_length=64)] = ()
    """The existing indices."""
    location: str | None = None
    """The location of Xskipper's part of the metadata, relative to the url of its store."""
    left_out: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """The first few files without metadata because of an error, and the error."""
    refreshed_time: Time | None = None
    """When the last refresh ended."""
    next_time: Time | None = None
    """The time of the next slot."""
    handled_request: str | None = None
    """The last request that was handled."""
    refresh: PlainRefresh | None = None
    """The last or running refresh."""
    removal: PlainRefresh | None = None
    """The deletion of the metadata."""


class SkippingIndex(Resource):
    """A SkippingIndex keeps data-skipping metadata, in the form of Xskipper, for files that Kubothek does not own."""

    kind: Literal["SkippingIndex"] = "SkippingIndex"
    spec: SkippingIndexSpec
    status: SkippingIndexStatus = SkippingIndexStatus()

    @property
    def stores(self) -> tuple[Reference, ...]:
        """The ObjectStores of the files and, if different, of the metadata."""
        files, place = self.spec.location.store_ref, self.spec.metadata
        return (files,) if place is None or place.store_ref == files else (files, place.store_ref)
