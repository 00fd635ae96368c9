"""The columns that a read step declares: an ODF schema, or DDL (specification before 0.38)."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from kubothek.errors import EventInvalid, FormatInvalid
from kubothek.odf.sources.readers.ddl import parse_ddl
from kubothek.odf.spec.events import AddPushSource, MetadataEvent, SetPollingSource
from kubothek.odf.spec.logical_types import to_arrow
from kubothek.odf.spec.sources import (
    ReadStepCsv,
    ReadStepEsriShapefile,
    ReadStepGeoJson,
    ReadStepJson,
    ReadStepNdGeoJson,
    ReadStepNdJson,
    ReadStepParquet,
)
from kubothek.odf.spec.unknown import Unknown

KnownReadStep: TypeAlias = (
    ReadStepCsv
    | ReadStepGeoJson
    | ReadStepEsriShapefile
    | ReadStepParquet
    | ReadStepJson
    | ReadStepNdJson
    | ReadStepNdGeoJson
)


def require_declared(event: MetadataEvent) -> None:
    """Raise EventInvalid for a source whose declared columns cannot be read: no event can be removed from a chain."""
    if not isinstance(event, SetPollingSource | AddPushSource) or isinstance(event.read, Unknown):
        return
    name = f" {event.source_name!r}" if isinstance(event, AddPushSource) else ""
    try:
        declared_schema(event.read)
    except FormatInvalid as error:
        raise EventInvalid(f"{event.kind}{name}: {event.read.kind}: {error}") from None


def declared_schema(step: KnownReadStep) -> pa.Schema | None:
    """Return the declared columns, or None if the file's own are read; the ODF schema counts, if there are both.

    Raises FormatInvalid, UnsupportedVersion.
    """
    if step.schema is not None:
        schema = to_arrow(step.schema)
        if not schema.names or len(set(schema.names)) < len(schema.names):
            raise FormatInvalid(f"read.schema must name columns, each once, not {', '.join(schema.names) or 'none'}")
        return schema
    return None if step.ddl_schema is None else parse_ddl(step.ddl_schema)
