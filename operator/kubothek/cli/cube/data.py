"""``--data NAME=FILE``: local files as streams of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.cube.common import pairs

if TYPE_CHECKING:
    import pyarrow as pa

    from kubothek.cube.state import Member
    from kubothek.ingest import Format, SourcePlan, SourceReader

_ENDINGS = (".gz", ".gzip", ".zip")


def streams(
    data: Collection[tuple[str, str]], members: Mapping[str, Member], held: ExitStack
) -> dict[str, pa.RecordBatchReader]:
    """Return the rows of each file, read lazily; ``members`` are the existing datasets that get rows.

    Raises UsageError for file names without a known format, InputError for unreadable files.
    """
    return {name: _stream(Path(path), members.get(name), held) for name, path in pairs(data, "--data").items()}


def _stream(path: Path, member: Member | None, held: ExitStack) -> pa.RecordBatchReader:
    import pyarrow as pa

    from kubothek.ingest import Source, SourceReader, UrlPolicy, decide_schemas
    from kubothek.table.time_zones import zones_of

    source = Source(format=_format(path), urls=(path.resolve().as_uri(),), policy=UrlPolicy((), allow_local=True))
    reader = held.enter_context(SourceReader(source))
    plan = reader.plan()
    reading, _ = decide_schemas(
        declared=None,
        table=member.schema if member is not None else None,
        contract=None,
        partition_on=member.partition_on if member is not None else (),
        infer=lambda: reader.infer_schema(plan),
        zones=zones_of(member.snapshot.head.metadata) if member is not None else {},
    )
    return pa.RecordBatchReader.from_batches(reading, _batches(reader, plan, reading))


def _batches(reader: SourceReader, plan: SourcePlan, reading: pa.Schema) -> Iterator[pa.RecordBatch]:
    for split in plan.with_whole_files([file.name for file in plan.files]).splits:
        yield from reader.read(split, reading)


def _format(path: Path) -> Format:
    from kubothek.ingest import Format

    if not path.is_file():
        raise click.UsageError(f"--data: there is no file {path}")
    bare = path.with_suffix("") if path.suffix.lower() in _ENDINGS else path
    formats = {
        ".csv": Format.CSV,
        ".parquet": Format.PARQUET,
        ".jsonl": Format.JSON_LINES,
        ".ndjson": Format.JSON_LINES,
        ".json": Format.JSON_LINES,
    }
    found = formats.get(bare.suffix.lower())
    if found is None:
        raise click.UsageError(f"--data: {path.name!r} does not say its format: name it .parquet, .csv or .jsonl")
    return found
