"""Time zones of a table's columns: files hold naive UTC, which all libraries can read; the head stores the zones.

``metadata.kubothek_zones`` maps each timestamp column to its zone, ``""`` for naive times. A column without an entry
belongs to a table that an older Kubothek or another program made: its times are naive, and times of any zone are stored
there as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import SchemaMismatch
from kubothek.table.name_lists import is_zone

ZONES: Final = "kubothek_zones"
NAIVE: Final = ""
_NAIVE_ONLY: Final[dict[bytes | str, bytes | str]] = {b"kubothek_zone": b""}


def zones_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the zones in the metadata of a head; invalid entries are ignored."""
    found = metadata.get(ZONES)
    if not isinstance(found, Mapping):
        return {}
    return {name: zone for name, zone in found.items() if isinstance(zone, str) and (zone == NAIVE or is_zone(zone))}


def zones_in(given: pa.Schema) -> dict[str, str]:
    """Return the zones of input data."""
    return {field.name: field.type.tz or NAIVE for field in given if pa.types.is_timestamp(field.type)}


def declared_zones(*declared: pa.Schema | None) -> dict[str, str]:
    """The zones that declared types name; a type without one says nothing, and a later schema goes first."""
    return {name: zone for schema in declared if schema for name, zone in zones_in(schema).items() if zone}


def zones_after(table: pa.Schema | None, known: Mapping[str, str], data: Mapping[str, str]) -> dict[str, str]:
    """Return the zones of a table's columns after data with the zones ``data`` is added.

    ``table`` is the schema before, None if the table has none. Raises SchemaMismatch for data that has a zone in a
    column that has none, and the other way round.
    """
    there = {} if table is None else dict(zip(table.names, table.types, strict=True))
    after = {name: zone for name, zone in known.items() if name in there}
    for name, zone in data.items():
        if name not in there or pa.types.is_null(there[name]):
            after[name] = zone
        elif name in after and (after[name] == NAIVE) != (zone == NAIVE):
            raise _apart(name, after[name], zone)
    return after


def zoned(schema: pa.Schema, zones: Mapping[str, str]) -> pa.Schema:
    """Return the stored schema with the zones of its columns, as readers see it."""
    return pa.schema(_with_zones(schema, zones))


def expecting(schema: pa.Schema, zones: Mapping[str, str]) -> pa.Schema:
    """Return the schema to read a source in: times of a column with a zone must have one, of one with ``""`` must not.

    The times of a column without an entry in ``zones`` may have one.
    """
    fields = []
    for field in _with_zones(schema, zones):
        is_naive = zones.get(field.name) == NAIVE and pa.types.is_timestamp(field.type)
        fields.append(field.with_metadata(_NAIVE_ONLY) if is_naive else field)
    return pa.schema(fields)


def expected_zones(schema: pa.Schema) -> dict[str, str]:
    """Return the zones of rows that were read in an :func:`expecting` schema."""
    return {name: zone for name, zone in zones_in(schema).items() if zone or _is_naive_only(schema.field(name))}


def in_zones(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of a stored schema as those of a :func:`zoned` one: the same moments, without a copy."""
    columns = [
        column if column.type == field.type else column.view(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def mixed(where: str, zone: str) -> SchemaMismatch:
    """Return the error for times of the source ``where`` that have a zone where their column has none, or lack one."""
    if zone == NAIVE:
        return SchemaMismatch(
            f"{where} has a time zone, and the times of the column have none; convert the column to UTC without zone, "
            "or write to a new dataset"
        )
    return SchemaMismatch(
        f"{where} has no time zone, and the times of the column are in {zone!r}; state their zone (in text: an offset, "
        "as in 2025-01-31T12:00:00+01:00), or write to a new dataset"
    )


def _with_zones(schema: pa.Schema, zones: Mapping[str, str]) -> list[pa.Field[Any]]:
    return [_with_zone(field, zones.get(field.name, NAIVE)) for field in schema]


def _with_zone(field: pa.Field[Any], zone: str) -> pa.Field[Any]:
    if zone == NAIVE or not pa.types.is_timestamp(field.type):
        return field
    return field.with_type(pa.timestamp(field.type.unit, zone))


def _is_naive_only(field: pa.Field[Any]) -> bool:
    return field.metadata == _NAIVE_ONLY


def _apart(column: str, table: str, data: str) -> SchemaMismatch:
    if table == NAIVE:
        return SchemaMismatch(
            f"column {column!r}: the times of the rows are in the zone {data!r}, those of the table have no zone; "
            "convert them (pandas: .dt.tz_convert('UTC').dt.tz_localize(None)), or write to a new dataset"
        )
    return SchemaMismatch(
        f"column {column!r}: the times of the rows have no zone, those of the table are in {table!r}; state their zone "
        f"(pandas: .dt.tz_localize({table!r}), Arrow: pyarrow.compute.assume_timezone), or write to a new dataset"
    )
