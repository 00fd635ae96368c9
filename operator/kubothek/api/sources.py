"""Standing sources of a Dataset: files that land somewhere become commits by themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.files import Compression, Csv, FileFormat, file_rules
from kubothek.api.meta import Attempts, Lenient, Strict, Time
from kubothek.api.rules import Rule
from kubothek.api.values import NAME_PATTERN, Columns, Duration, Quantity, Reference, parse_duration, parse_quantity

LEAST_INTERVAL = timedelta(seconds=10)

_Place = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=r"^[^/\x00-\x1f][^\x00-\x1f]*$")]


class Batch(Strict):
    """How much one commit takes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="quantity(string(self.maxBytes)).compareTo(quantity('1Mi')) >= 0",
            message="batch.maxBytes must be at least 1Mi: every commit has a price",
            holds=lambda self: parse_quantity(self.max_bytes) >= parse_quantity("1Mi"),
        ),
    )

    max_files: Annotated[int, Field(ge=1, le=10000)] = 1000
    """Most files in one commit."""
    max_bytes: Quantity = "1Gi"
    """Most bytes in one commit; a larger file is a commit by itself."""


class StandingSource(Strict):
    """Files that land below a prefix of an ObjectStore, or match a glob, are taken from there: each version of a file
    (key and ETag) once, the oldest first.

    What begins with `.` or `_`, or ends like an unfinished upload (`.tmp`, `.part`), is left alone, and so are objects
    without bytes.
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
            message=".kubothek/ is Kubothek's own: let files land elsewhere",
            holds=lambda self: not (self.prefix or self.glob or "").startswith(".kubothek"),
        ),
        *file_rules(),
        Rule(
            cel="duration(self.interval) >= duration('10s')",
            message="interval is shorter than 10s: a look at a source starts a pod, so choose a longer one",
            holds=lambda self: parse_duration(self.interval) >= LEAST_INTERVAL,
        ),
    )

    name: Annotated[str, StringConstraints(min_length=1, max_length=40, pattern=NAME_PATTERN)]
    """The name, under which the bucket remembers what was taken: a source of another name starts from nothing, one
    that comes back under its name goes on where it was."""
    store_ref: Reference | None = None
    """The ObjectStore in which files land; default: the one of the Dataset."""
    prefix: _Place | None = None
    """All files whose key begins with this, such as `landing/flights/`."""
    glob: _Place | None = None
    """All files whose key matches: `*` and `?` stand for any part of a name, `**/` for any directories."""
    format: FileFormat
    """The format of the files."""
    compression: Compression = "Auto"
    """The compression of the files; Auto goes by the ending of the name."""
    csv: Csv | None = None
    """How to read CSV; the defaults read what spreadsheets and R write."""
    columns: Columns = None
    """The columns of the files and their types; default: those of the Dataset, else what the first files look like."""
    operation: Literal["Append", "Replace"] = "Append"
    """What to do with the rows. Append: add them. Replace: put them in the place of the partitions that they touch;
    each file is then a commit of its own, so what belongs to one partition has to land in one file."""
    interval: Duration = "1m"
    """How often to look for new files. A look starts a small pod."""
    batch: Batch = Batch()
    """How much one commit takes."""
    quarantine: bool = False
    """True: a file that cannot be read is recorded with its error and passed over, until it is replaced or the way of
    reading it (format, compression, csv, schema) is edited. False: the source stops at it, with the reason
    SourceStalled."""
    suspend: bool = False
    """Look for nothing new. What runs goes on."""


class Lag(Lenient):
    """What has landed and is not taken."""

    files: int = 0
    """Number of files."""
    bytes: int = 0
    """Their size."""
    oldest: Time | None = None
    """When the oldest of them landed."""


class StalledFile(Lenient):
    """The version of a file at which a source stopped."""

    key: str
    """Its key."""
    etag: str
    """Its ETag."""
    version: int
    """The version of the table for which it was read."""
    reading: str
    """A digest of the way in which it was read."""


class SourceState(Lenient):
    """How far one source is, as the last look at it found."""

    name: str
    """The source."""
    lag: Lag = Lag()
    """What has landed and is not taken."""
    current_until: Time | None = None
    """Everything that landed before this moment is in the table, or in quarantine."""
    files: int = 0
    """Number of files that were ever taken."""
    last_file: str | None = None
    """The newest file that was taken."""
    last_commit_time: Time | None = None
    """When it was taken."""
    quarantined: int = 0
    """Number of files in quarantine that are still there."""
    problem: str | None = None
    """Why files are not taken: `Reason: text`, with file, column and row if it is a file."""
    transient: bool = False
    """Whether the problem may pass by itself."""
    stalled: StalledFile | None = None
    """The file that has to be replaced, or the way of reading edited, before the source goes on."""
    failures: int = 0
    """How many jobs in a row have failed."""
    look_time: Time | None = None
    """When the last look ended."""
    next_look_time: Time | None = None
    """When the next look is due; absent: an interval after the last."""


class Intake(Attempts):
    """The last look at one of the sources. Its job is called `<name>-intake-<attempt>`."""

    source: str | None = None
    """The source that the attempt is about; absent when none is under way."""
    reading: str | None = None
    """A digest of the way in which its files are read."""
