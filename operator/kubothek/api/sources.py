"""Standing sources of a Dataset: continuous ingestion of files from a prefix or glob of an ObjectStore."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.files import Compression, Csv, FileFormat, Path, file_rules
from kubothek.api.meta import Attempts, Lenient, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.values import NAME_PATTERN, Columns, Duration, Quantity, Reference, parse_duration, parse_quantity

LEAST_INTERVAL = timedelta(seconds=10)


class Batch(Strict):
    """Limits of one commit."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="quantity(string(self.maxBytes)).compareTo(quantity('1Mi')) >= 0",
            message="batch.maxBytes must be at least 1Mi: every commit has a price",
            holds=lambda self: parse_quantity(self.max_bytes) >= parse_quantity("1Mi"),
        ),
    )

    max_files: Annotated[int, Field(ge=1, le=10000)] = 1000
    """Maximum files in one commit."""
    max_bytes: Quantity = "1Gi"
    """Maximum bytes in one commit; a larger file gets a commit of its own."""


class StandingSource(Strict):
    """Continuous ingestion of files below a prefix of an ObjectStore, or matching a glob: each version of a file (key
    and ETag) once, the oldest first.

    Names that begin with `.` or `_`, or end like an unfinished upload (`.tmp`, `.part`), and empty objects are ignored.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.prefix) != has(self.glob)",
            message="a source has either a prefix or a glob: set exactly one of them",
            holds=lambda self: (self.prefix is None) != (self.glob is None),
        ),
        Rule(
            cel="(!has(self.prefix) || !('..' in self.prefix.split('/'))) && "
            "(!has(self.glob) || !('..' in self.glob.split('/')))",
            message="prefix or glob has a '..': name a place below the url of the store",
            holds=lambda self: ".." not in (self.prefix or self.glob or "").split("/"),
        ),
        Rule(
            cel="(!has(self.prefix) || !self.prefix.startsWith('.kubothek')) && "
            "(!has(self.glob) || !self.glob.startsWith('.kubothek'))",
            message=".kubothek/ belongs to Kubothek: let files land elsewhere",
            holds=lambda self: not (self.prefix or self.glob or "").startswith(".kubothek"),
        ),
        *file_rules(),
        Rule(
            cel="duration(self.interval) >= duration('10s')",
            message="interval is shorter than 10s: each inspection of a source starts a pod; choose a longer one",
            holds=lambda self: parse_duration(self.interval) >= LEAST_INTERVAL,
        ),
    )

    name: Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=NAME_PATTERN)]
    """The name, under which the bucket records ingested files: a source with a new name starts from nothing, a re-added
    source continues where it was."""
    store_ref: Reference | None = None
    """The ObjectStore of the files; default: that of the Dataset."""
    prefix: Path | None = None
    """Ingest all files whose key begins with this, such as `landing/flights/`."""
    glob: Path | None = None
    """Ingest all files whose key matches: `*` and `?` stand for any part of a name, `**/` for any directories."""
    format: FileFormat
    """The format of the files."""
    compression: Compression = "Auto"
    """The compression of the files; Auto: by the suffix of the name."""
    csv: Csv | None = None
    """How to read CSV; the defaults suit spreadsheets and R."""
    columns: Columns = None
    """The columns of the files and their types; default: those of the Dataset, else inferred from the first files."""
    operation: Literal["Append", "Replace"] = "Append"
    """What to do with the rows. Append: add them. Replace: replace the partitions of the rows; each file is then a
    commit of its own, so all rows of a partition must be in one file."""
    interval: Duration = "1m"
    """Time between checks for new files. A check starts a small pod."""
    batch: Batch = Batch()
    """Limits of one commit."""
    quarantine: bool = False
    """True: an unreadable file is recorded with its error and skipped, until it is replaced or format, compression, csv
    or schema of the source is edited. False: the source stops at it, with the reason SourceStalled."""
    suspend: bool = False
    """True: ingest no new files; running jobs continue."""


class Lag(Lenient):
    """Files that were not ingested yet."""

    files: int = 0
    """Number of files."""
    bytes: int = 0
    """Their size."""
    oldest: Time | None = None
    """When the oldest of them was written."""


class StalledFile(Lenient):
    """The version of a file at which a source stopped."""

    key: str
    """Its key."""
    etag: str
    """Its ETag."""
    version: int
    """The version of the table at that time."""
    reading: str
    """A digest of the settings with which it was read."""


class SourceState(Lenient):
    """The ingestion state of one source, as the last job found it."""

    name: str
    """The source."""
    lag: Lag = Lag()
    """Files that were not ingested yet."""
    current_until: Time | None = None
    """All files written before this time are in the table, or in quarantine."""
    files: int = 0
    """Number of files ingested ever."""
    last_file: str | None = None
    """The newest ingested file."""
    last_commit_time: Time | None = None
    """When it was committed."""
    quarantined: int = 0
    """Number of files in quarantine that still exist."""
    problem: str | None = None
    """Why files are not ingested: `Reason: text`, with file, column and row if a file is the cause."""
    transient: bool = False
    """Whether the problem is transient."""
    stalled: StalledFile | None = None
    """The file at which the source stopped, until the file is replaced or the source is edited."""
    failures: int = 0
    """Number of failed jobs in a row."""
    look_time: Time | None = None
    """When the last job ended."""
    next_look_time: Time | None = None
    """When the next job is due; absent: an interval after the last."""


class Intake(Attempts):
    """The last ingestion job of one of the sources. It is called `<name>-intake-<attempt>`."""

    source: str | None = None
    """The source of the attempt; absent when no job is active."""
    reading: str | None = None
    """A digest of the settings with which its files are read."""
