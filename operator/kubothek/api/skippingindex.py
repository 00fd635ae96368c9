"""SkippingIndex: skipping metadata for files that Kubothek does not own."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.files import Csv
from kubothek.api.meta import Attempts, Resource, Status, Strict, Time
from kubothek.api.rules import Immutable, Rule
from kubothek.api.schedules import Schedule
from kubothek.api.skipping import ColumnIndexStatus, Skipping
from kubothek.api.values import Columns, Reference

PlainFormat = Literal["Parquet", "ORC", "CSV", "JSONLines"]

_Place = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]
_ELSEWHERE = Immutable("the location cannot change, as the metadata is about its files: create another SkippingIndex")


class PlainLocation(Strict):
    """Files below a prefix of an ObjectStore, or of those the ones that match a glob."""

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
            message=".kubothek/ is Kubothek's own: name a place where files lie",
            holds=lambda self: not self.prefix.startswith(".kubothek"),
        ),
    )

    store_ref: Annotated[Reference, _ELSEWHERE]
    """Immutable. The ObjectStore that holds the files."""
    prefix: Annotated[_Place, _ELSEWHERE]
    """Immutable. The directory, relative to the url of the store: what real Xskipper calls the dataset. Directories
    below it that are named `column=value` are columns. What begins with `.` or `_` is left alone."""
    glob: Annotated[_Place | None, _ELSEWHERE] = None
    """Immutable. A pattern below `prefix`: `2026/*.parquet`; `**` is any number of directories. Default: everything."""


class MetadataPlace(Strict):
    """Where the metadata goes."""

    store_ref: Annotated[Reference, _ELSEWHERE]
    """Immutable. The ObjectStore for the metadata."""


class SkippingIndexSpec(Strict):
    """Which files, and what is kept of each of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.csv) || self.format == 'CSV'",
            message="csv goes with format: CSV: remove it, or correct the format",
            holds=lambda self: self.csv is None or self.format == "CSV",
        ),
        Rule(
            cel="self.skipping.auto || (has(self.skipping.indices) && self.skipping.indices.size() > 0)",
            message="skipping has neither indices nor auto: true, so there is nothing to keep: add one",
            holds=lambda self: self.skipping.auto or bool(self.skipping.indices),
        ),
    )

    location: PlainLocation
    """Where the files lie. Kubothek never writes there."""
    format: Annotated[PlainFormat, _ELSEWHERE] = "Parquet"
    """Immutable. The format of all files."""
    csv: Csv | None = None
    """A job on edit. How to read CSV."""
    columns: Columns = None
    """A job on edit. The columns and their types; default: those of the first file, of Parquet and ORC as they are
    stored, of CSV and JSON as its first rows have them."""
    skipping: Skipping
    """A job on edit: all metadata is made anew."""
    schedule: Schedule | None = None
    """Takes effect at once. When to look for files that came, went, or changed; default: on request only, by the
    annotation `kubothek.io/requestedAt` or `kubothek skipping refresh`. Files that came since are always opened."""
    metadata: MetadataPlace | None = None
    """Where the metadata goes, as `.kubothek/++plain/<namespace>.<name>`; default: the ObjectStore of the files."""
    deletion_policy: Literal["Retain", "Delete"] = "Retain"
    """Takes effect at once. Retain: deleting this resource leaves the metadata as it is, and queries go on using it.
    Delete: a job deletes the metadata first. The files always stay."""
    engine_ref: Reference | None = None
    """Takes effect at the next job. The Engine that runs the jobs; default: the Engine called `default`, else the
    operator's own."""
    suspend: bool = False
    """Takes effect at once. Start no jobs. What runs goes on."""


class PlainRefresh(Attempts):
    """One look at the files."""

    cause: str = ""
    """What it was begun for: a digest of what decides about the metadata, with the time of the slot or the request."""
    slot: Time | None = None
    """The time of the slot, or when it was begun without one."""
    done: bool = False
    """Whether it is through."""
    problem: str | None = None
    """Why it was given up: `Reason: text`."""


class SkippingIndexStatus(Status):
    """What is described."""

    files: int | None = None
    """Number of files that the last look found."""
    described: int | None = None
    """How many of them are described; the others are always opened."""
    added: int = 0
    """How many the last look described anew."""
    removed: int = 0
    """How many descriptions went, as their files changed or are gone."""
    bytes: int = 0
    """The size of the metadata."""
    size: str | None = None
    """The same for people."""
    indices: Annotated[tuple[ColumnIndexStatus, ...], Field(max_length=64)] = ()
    """The indices that there are."""
    location: str | None = None
    """Where Xskipper's part of the metadata lies, relative to the url of its store."""
    left_out: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """The first few files that could not be described, and why."""
    refreshed_time: Time | None = None
    """When the last look was over."""
    next_time: Time | None = None
    """When the next slot is."""
    handled_request: str | None = None
    """The last request that was taken up."""
    refresh: PlainRefresh | None = None
    """The last look, or the one that is under way."""
    removal: PlainRefresh | None = None
    """How far the deletion of the metadata is."""


class SkippingIndex(Resource):
    """A SkippingIndex keeps data-skipping metadata, in the form of Xskipper, for files that Kubothek does not own."""

    kind: Literal["SkippingIndex"] = "SkippingIndex"
    spec: SkippingIndexSpec
    status: SkippingIndexStatus = SkippingIndexStatus()

    @property
    def stores(self) -> tuple[Reference, ...]:
        """The ObjectStores of the files and, if it is another, of the metadata."""
        files, place = self.spec.location.store_ref, self.spec.metadata
        return (files,) if place is None or place.store_ref == files else (files, place.store_ref)
