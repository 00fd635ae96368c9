"""Files, URLs and standard input as streams of rows, read as Commits read their sources."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    import pyarrow as pa

    from kubothek.ingest import Format
    from kubothek.table.log import Snapshot

STDIN = "-"
FORMATS = {"csv": "CSV", "jsonl": "JSONLines", "parquet": "Parquet"}
"""Values of ``--format``, with those of manifests."""
_ENDINGS = {".csv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_COMPRESSED = (".gz", ".gzip", ".zip")


@dataclass(frozen=True, slots=True)
class Target:
    """What the table that gets the rows already has; by default nothing.

    ``schema``  its stored schema
    ``zones``   time zones by column
    ``evolve``  whether it may get new columns and wider types
    """

    schema: pa.Schema | None = None
    partition_on: tuple[str, ...] = ()
    zones: dict[str, str] = field(default_factory=dict)
    evolve: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, *, evolve: bool = False) -> Self:
        """Return what the table of a snapshot has."""
        from kubothek.table.time_zones import zones_of

        head = snapshot.head
        return cls(snapshot.schema, head.partition_keys, zones_of(head.metadata), evolve)


def rows_of(
    sources: Sequence[str], target: Target, held: ExitStack, what: str = "", form: str | None = None
) -> pa.RecordBatchReader:
    """Return the rows of files, URLs or ``-``, read lazily in the types of the table.

    ``what``  begins messages about the arguments
    ``form``  a key of ``FORMATS``; None = what the names say

    Raises UsageError for a name without a known format or a missing file, InputError for unreadable files.
    """
    from kubothek.ingest import Source, SourceReader, UrlPolicy, decide_schemas

    if STDIN in sources and len(sources) > 1:
        raise click.UsageError(f"{what}{STDIN} (standard input) goes alone: name it without files")
    urls, formats = [], set[str]()
    for name in sources:
        url, found = _located(name, held, what, form)
        urls.append(url)
        formats.add(found)
    if len(formats) > 1:
        raise click.UsageError(f"{what}the files have several formats ({', '.join(sorted(formats))}): add them apart")
    source = Source(format=_format(formats.pop()), urls=tuple(urls), policy=UrlPolicy(("*",), allow_local=True))
    reader = held.enter_context(SourceReader(source))
    plan = reader.plan()
    reading, _ = decide_schemas(
        declared=None,
        table=target.schema,
        contract=None,
        partition_on=target.partition_on,
        infer=lambda: reader.infer_schema(plan),
        evolve=target.evolve,
        zones=target.zones,
    )
    return reader.read_all(plan, reading)


def _located(source: str, held: ExitStack, what: str, form: str | None) -> tuple[str, str]:
    """Return the URL and the format of one source."""
    if source == STDIN:
        if form is None:
            raise click.UsageError(f"{what}standard input has no name that says its format: give --format")
        return _spooled(held).as_uri(), form
    parts = urlsplit(source)
    if parts.scheme in ("http", "https"):
        return source, form or _named(parts.path, what)
    path = Path(parts.path if parts.scheme == "file" else source)
    if not path.is_file():
        raise click.UsageError(f"{what}there is no file {path}")
    return path.resolve().as_uri(), form or _named(path.name, what)


def _spooled(held: ExitStack) -> Path:
    """Write standard input to a file that exists while ``held`` does: readers need the size, and read it twice."""
    path = Path(held.enter_context(TemporaryDirectory(prefix="kubothek-"))) / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def _named(name: str, what: str) -> str:
    path = Path(name)
    bare = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    if (found := _ENDINGS.get(bare.suffix.lower())) is None:
        raise click.UsageError(f"{what}{path.name!r} does not say its format: name it .parquet, .csv or .jsonl")
    return found


def _format(name: str) -> Format:
    from kubothek.ingest import Format

    return Format(FORMATS[name])
