"""One schema for several files that were inferred separately."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kubothek.errors import SchemaMismatch, SourceCorrupt
from kubothek.ingest.model import Format
from kubothek.table.schema import normalise, type_name, without_time_zones
from kubothek.table.time_zones import zoned, zones_in


def unify(found: list[tuple[str, pa.Schema]], file_format: Format) -> pa.Schema:
    """Return the stored schema that holds the rows of all files, each given with its name; times keep their zones.

    Columns without values take the other file's type, integers become floats and dates timestamps where a file needs
    it. In CSV, other differences become text, as they would within one file. Raises SchemaMismatch naming two files
    with incompatible types or with other columns; in JSON lines other columns are accepted, because a missing key is
    null.
    """
    first_name, first = found[0][0], _stored(*found[0])
    types = {field.name: field.type for field in first}
    for name, schema in found[1:]:
        stored = _stored(name, schema)
        if file_format is not Format.JSON_LINES and set(stored.names) != set(first.names):
            odd = sorted(set(stored.names) ^ set(first.names))
            raise SchemaMismatch(
                f"{first_name!r} and {name!r} have different columns: {', '.join(map(repr, odd))} "
                "is in one of them only"
            )
        for field in stored:
            types[field.name] = _unified(field, types.get(field.name), file_format, name, first_name)
    return pa.schema([pa.field(name, types[name]) for name in sorted(types)])


def _stored(name: str, schema: pa.Schema) -> pa.Schema:
    try:
        return zoned(normalise(without_time_zones(schema)), zones_in(schema))
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{name!r}: {error}") from None
    except UnicodeDecodeError as error:
        raise SourceCorrupt(f"{name!r}: the name of a field is not UTF-8 ({error}); upload it again") from None


def _unified(
    field: pa.Field[Any], other: pa.DataType | None, file_format: Format, name: str, first: str
) -> pa.DataType:
    mine: pa.DataType = field.type
    if other is None or other == mine or pa.types.is_null(other):
        return mine
    if pa.types.is_null(mine):
        return other
    types = pa.types
    pair = (mine, other)
    if all(types.is_integer(t) or types.is_floating(t) for t in pair):
        return pa.float64() if any(types.is_floating(t) for t in pair) else pa.int64()
    times = [t for t in pair if types.is_timestamp(t)]
    if times and all(types.is_date(t) or types.is_timestamp(t) for t in pair):
        with_zone = [t.tz is not None for t in times]
        if all(with_zone) and len(times) == len(pair):
            return other
        if not any(with_zone):
            return pa.timestamp("us")
    elif file_format is Format.CSV:
        return pa.string()
    raise SchemaMismatch(
        f"column {field.name!r} is {type_name(other)} in {first!r} and {type_name(mine)} in {name!r}; "
        "convert one of them, or declare the type in source.schema"
    )
