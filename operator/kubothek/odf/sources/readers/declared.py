"""The columns that a read step declares: an ODF schema, or DDL (specification before 0.38)."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

from kubothek.errors import UnsupportedVersion
from kubothek.odf.sources.readers.ddl import parse_ddl
from kubothek.odf.spec.sources import (
    ReadStepCsv,
    ReadStepEsriShapefile,
    ReadStepGeoJson,
    ReadStepJson,
    ReadStepNdGeoJson,
    ReadStepNdJson,
    ReadStepParquet,
)

KnownReadStep: TypeAlias = (
    ReadStepCsv
    | ReadStepGeoJson
    | ReadStepEsriShapefile
    | ReadStepParquet
    | ReadStepJson
    | ReadStepNdJson
    | ReadStepNdGeoJson
)


def declared_schema(step: KnownReadStep) -> pa.Schema | None:
    """Return the declared columns, or None if the file's own are read. Raises FormatInvalid."""
    if step.schema is not None:
        raise UnsupportedVersion("read.schema is a schema of logical types")
    return None if step.ddl_schema is None else parse_ddl(step.ddl_schema)
