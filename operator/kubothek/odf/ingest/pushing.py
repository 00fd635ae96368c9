"""Files for a push source: read and preprocessed as its event says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import InputError, SchemaMismatch
from kubothek.odf.dataset import Ingested, Root
from kubothek.odf.sources.readers import Content, preprocess, read
from kubothek.odf.spec.events import AddPushSource
from kubothek.odf.spec.sources import (
    ReadStep,
    ReadStepCsv,
    ReadStepEsriShapefile,
    ReadStepGeoJson,
    ReadStepJson,
    ReadStepNdGeoJson,
    ReadStepNdJson,
    ReadStepParquet,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.sql import Limits


class InputFormat(StrEnum):
    """Format of a pushed file, if it differs from that of the push source."""

    CSV = "csv"
    JSON = "json"
    ND_JSON = "ndjson"
    GEO_JSON = "geojson"
    ND_GEO_JSON = "ndgeojson"
    PARQUET = "parquet"
    SHAPEFILE = "shapefile"


_STEPS: Final[dict[InputFormat, type[Any]]] = {
    InputFormat.CSV: ReadStepCsv,
    InputFormat.JSON: ReadStepJson,
    InputFormat.ND_JSON: ReadStepNdJson,
    InputFormat.GEO_JSON: ReadStepGeoJson,
    InputFormat.ND_GEO_JSON: ReadStepNdGeoJson,
    InputFormat.PARQUET: ReadStepParquet,
    InputFormat.SHAPEFILE: ReadStepEsriShapefile,
}


def step_for(read_step: ReadStep, wanted: InputFormat | None) -> ReadStep:
    """Return the read step of the push source, or one for another format with all options that both formats have."""
    if wanted is None or isinstance(read_step, (Unknown, _STEPS[wanted])):  # read() rejects unknown steps
        return read_step
    known = {field.name for field in fields(_STEPS[wanted])}
    kept = {field.name: getattr(read_step, field.name) for field in fields(read_step) if field.name in known}
    step: ReadStep = _STEPS[wanted](**kept)
    return step


def push_files(
    root: Root,
    files: Sequence[Content],
    source: str = "default",
    *,
    wanted: InputFormat | None = None,
    event_time: Timestamp | None = None,
    limits: Limits | None = None,
    commit_id: str | None = None,
    digest: str = "",
    told: Callable[[int], None] = lambda rows: None,
) -> Ingested:
    """Ingest the rows of the files, in this order, as one push: all of them or none.

    ``wanted``      format of the files; None: that of the push source
    ``event_time``  of rows without one; None: the time of the commit
    ``told``        called with the number of rows read so far

    Raises InputError for an unknown source, and what reading and :meth:`Root.push` raise.
    """

    def rows() -> pa.RecordBatchReader:
        event = push_source(root, source)
        return preprocess(
            event.preprocess, _counted(_joined(step_for(event.read, wanted), files), told), limits or Limits()
        )

    push_source(root, source)
    return root.push(rows, source, event_time=event_time, commit_id=commit_id, digest=digest)


def push_source(root: Root, name: str) -> AddPushSource:
    """Return the push source of this name. Raises InputError, UnsupportedVersion after an event of a later version."""
    root.state.require_known()
    if (event := root.state.push_sources.get(name)) is None:
        names = ", ".join(map(repr, root.state.push_sources)) or "none"
        raise InputError(f"dataset {root.uuid!r} has no push source {name!r}; its push sources are: {names}")
    return event


def _joined(step: ReadStep, files: Sequence[Content]) -> pa.RecordBatchReader:
    """Return the rows of all files, in order. Raises SchemaMismatch for files of different columns."""
    opened = ((content, rows) for content in files if (rows := read(step, content)) is not None)
    first = next(opened, None)
    if first is None:
        raise InputError("there is not one row to push: all files are empty")
    schema = first[1].schema

    def batches() -> Iterator[pa.RecordBatch]:
        yield from first[1]
        for content, rows in opened:
            if not rows.schema.equals(schema):
                raise SchemaMismatch(
                    f"{content.name!r} has other columns than {first[0].name!r}: push them apart, or give the push "
                    "source a read.schema"
                )
            yield from rows

    return pa.RecordBatchReader.from_batches(schema, batches())


def _counted(rows: pa.RecordBatchReader, told: Callable[[int], None]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        count = 0
        for batch in rows:
            count += batch.num_rows
            told(count)
            yield batch

    return pa.RecordBatchReader.from_batches(rows.schema, batches())
