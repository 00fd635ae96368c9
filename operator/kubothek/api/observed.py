"""What jobs observe: the models that a job result carries and a status keeps."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from kubothek.api.meta import Lenient


class IndexStatus(Lenient):
    """A secondary index of a table."""

    column: str
    """The column."""
    kind: Literal["Kartothek", "Native"] = "Native"
    """Its kind."""
    state: Literal["Ready", "Waiting", "Partial", "Stale"] = "Ready"
    """Waiting: the first non-NULL value of the column creates it. Partial: lookups are slow until a job repairs it, as
    after another program added files. Stale: it is unreadable, and a job rebuilds it."""
    rows: int = 0
    """Number of values of a Kartothek index, or of entries of a native one, which has a value once per file."""


class Bin(Lenient):
    """A step of a histogram of file sizes."""

    below: int | None = None
    """Files below this size in bytes that are not in an earlier step; the last step has no limit."""
    files: int = 0
    """Number of files."""


class Health(Lenient):
    """The state of a table's files at one version, from commit records."""

    version: int = 0
    """The version."""
    small_files: int = 0
    """Number of files of less than half of the target size."""
    small_percent: int = 0
    """Their share of all files, in percent."""
    worst_partition_small_files: int = 0
    """The maximum number of small files in one partition, or in one bucket of it; of unsorted files, if
    spec.maintenance.compaction has sortBy or zOrderBy."""
    sizes: Annotated[tuple[Bin, ...], Field(max_length=8)] = ()
    """A histogram of file sizes, without empty steps."""
    versions: int = 0
    """Number of readable versions."""
    history_files: int = 0
    """Number of files that only older versions need."""
    history_bytes: int = 0
    """Their size: a GCPolicy can free it by expiring versions."""
    garbage_files: int = 0
    """Number of files that no version needs, such as those of failed commits or conflicts: an estimate by inspections
    from commit records. A GCPolicy deletes those older than the grace period."""
    garbage_bytes: int = 0
    """Their size."""


class IcebergStatus(Lenient):
    """The export of Iceberg metadata."""

    version: int = 0
    """The exported version, which is also the id of the snapshot; 0 before the first export."""
    lag: int = 0
    """By how many versions it is behind the table."""
    metadata_location: str | None = None
    """The location of the table metadata, for readers."""
    problem: str | None = None
    """Why the last export failed, as `Reason: text`."""


class LedgerSource(Lenient):
    """The read position of a source of the chain."""

    name: str
    """The source."""
    kind: str = ""
    """The kind of its position, such as `odf/etag`."""
    value: str = ""
    """The position."""


class QueryRead(Lenient):
    """What a query read of one dataset."""

    dataset: str
    """Its name in the store."""
    version: int
    """The version."""
    files: int = 0
    """Number of data files that were opened."""
    considered: int = 0
    """Files on which skipping decided, after pruning by partitions and secondary indices."""
    skipped: int = 0
    """Number of these files that were not opened."""
    filters: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Its filters: `column:Equal`, `column:Range` …"""


class KindCount(Lenient):
    """Objects of one kind."""

    kind: str
    """data, index, skipping, intake, records, checkpoints, jobs or plans."""
    objects: int = 0
    """Number of objects."""
    bytes: int = 0
    """Their size."""


class FirstFinding(Lenient):
    """The first finding, and its location."""

    code: str
    """The kind of finding, in one word: see docs/verification.md."""
    message: str
    """What is wrong, and what to do."""
    block: str | None = None
    """The hash of the corrupt block, or of the block that refers to the corrupt object."""
    block_number: int | None = None
    """Its sequence number."""
    object: str | None = None
    """The key of the data file or index, or the name of the slice."""
    column: str | None = None
    """The column."""
    row: int | None = None
    """The offset of the record."""


class MemberEffect(Lenient):
    """The size of what a change of a cube did to one of its datasets."""

    name: str
    """The dataset, by its name in the cube."""
    version: int | None = None
    """Its version afterwards."""
    rows: int = 0
    """Number of rows that were added."""
    files: int = 0
    """Number of data files that were added."""
    bytes: int = 0
    """Size of the data files that were added."""
