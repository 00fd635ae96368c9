"""The schema of a Kartothek table: stored types, ``_common_metadata``, and which schemas are compatible.

Kartothek stores widened types, whatever the narrower type in a data file (Kartothek specification, "Table schema";
"Type System"): integers as ``int64`` or ``uint64``, floats as ``double``, every kind of string as ``string``,
timestamps as naive microseconds. A *stored schema* has only these types, all columns nullable. Partition columns come
first in partition order, then the other columns sorted by name. :func:`normalise` makes one; all other functions here
except :func:`without_time_zones` take and return stored schemas.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import DataTypeMismatch, SchemaMismatch
from kubothek.table.name_lists import is_zone
from kubothek.table.untrusted_parquet import DAMAGED

_SIMPLE_NAMES: Final[dict[str, pa.DataType]] = {
    **{str(t): t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): t for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date32": pa.date32(),
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "time32[s]": pa.time32("s"),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "duration[us]": pa.duration("us"),
}
_DECIMAL: Final = re.compile(r"decimal(?:128)?\((\d+),\s*(\d+)\)")
Data = TypeVar("Data", pa.Table, pa.RecordBatch)

_ZONED: Final = re.compile(r"timestamp\[(s|ms|us|ns), *tz=([^\]]+)\]")
_LIST: Final = re.compile(r"list<(.+)>")
_DECIMAL_DIGITS: Final = 38
_SHOWN: Final = 20
"""How many different columns an error lists."""
_REMEDY: Final = "cast to the table's types, or write to a new dataset"
_EVOLVE: Final = "; or let the table evolve: schemaEvolution: Compatible (evolve=True in Python)"


# --- names of types -----------------------------------------------------------------------------------------


def parse_type(name: str) -> pa.DataType:
    """The Arrow type of a name in a manifest: ``int64``, ``timestamp[us]``, ``timestamp[us, tz=Europe/Berlin]``,
    ``decimal128(10,2)``, ``list<T>`` …

    Raises SchemaMismatch for an unknown name.
    """
    text = name.strip()
    if (simple := _SIMPLE_NAMES.get(text)) is not None:
        return simple
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= _DECIMAL_DIGITS or scale > precision:
            raise SchemaMismatch(
                f"type {name!r}: a decimal has 1 to {_DECIMAL_DIGITS} digits, of which at most that many are fractional"
            )
        return pa.decimal128(precision, scale)
    if match := _ZONED.fullmatch(text):
        if not is_zone(match[2]):
            raise SchemaMismatch(f"type {name!r}: unknown time zone; use UTC, a name as Europe/Berlin, or +01:00")
        return pa.timestamp(cast("Any", match[1]), match[2])
    if match := _LIST.fullmatch(text):
        return pa.list_(pa.field("item", parse_type(match[1])))
    raise SchemaMismatch(f"unknown type {name!r}; use one of {', '.join(_SIMPLE_NAMES)}, decimal128(p,s) or list<type>")


def type_name(data_type: pa.DataType) -> str:
    """Return the name under which users write the type; the inverse of :func:`parse_type`."""
    if pa.types.is_list(data_type):
        return f"list<{type_name(data_type.value_type)}>"
    if pa.types.is_decimal(data_type):
        return f"decimal128({data_type.precision},{data_type.scale})"
    return {"date32[day]": "date32"}.get(str(data_type), str(data_type))


# --- stored types -------------------------------------------------------------------------------------------


def normalise(schema: pa.Schema, partition_keys: Sequence[str] = ()) -> pa.Schema:
    """Return the stored schema for data of this schema: widened types, partition columns first, the others by name.

    Raises SchemaMismatch, naming the column: a duplicate name, a missing partition column, a type that a Kartothek
    table cannot hold, or a timestamp with time zone. A table with one can be written, but no library can update it;
    ingestion converts them with :func:`without_time_zones`.
    """
    require_distinct(schema.names)
    if missing := [key for key in partition_keys if key not in schema.names]:
        raise SchemaMismatch(f"no column {_names(missing)} to partition on; the columns are {_names(schema.names)}")
    payload = sorted(name for name in schema.names if name not in partition_keys)
    return pa.schema([pa.field(name, _stored(name, schema.field(name).type)) for name in (*partition_keys, *payload)])


def require_distinct(names: Iterable[str]) -> None:
    """Raise SchemaMismatch if a column name occurs twice."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise SchemaMismatch(f"column {_names(twice)} occurs more than once; rename or drop the duplicates")


def without_time_zones(schema: pa.Schema) -> pa.Schema:
    """Return the schema with naive timestamps instead of those with a time zone: ingestion converts them to UTC."""
    return pa.schema([f.with_type(pa.timestamp(f.type.unit)) if _has_time_zone(f.type) else f for f in schema])


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table's columns in order and types of a stored schema; timestamps with time zone become naive UTC.

    Raises SchemaMismatch for a missing column, and for a value that the column's type cannot hold exactly (see
    :func:`fitted`); the message names the value. Raises DataTypeMismatch for a value that the stored form of its own
    type cannot hold: a nanosecond, an unsigned integer beyond 64 bits. Columns outside the schema are dropped.
    """
    columns = []
    for field in schema:
        if (position := table.schema.get_field_index(field.name)) < 0:
            raise SchemaMismatch(f"column {field.name!r} ({type_name(field.type)}) is missing or occurs twice")
        column = table.column(position)
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if _widened(column.type) != field.type and _may_be_cast(_widened(column.type), field.type):
                raise _lossy(column, field) from error
            raise DataTypeMismatch(
                f"column {field.name!r}: cannot store {column.type} as {type_name(field.type)}: {error}"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def fitted(table: pa.Schema, new: pa.Schema, *, evolve: bool = False) -> pa.Schema:
    """Return the stored schema ``new`` with the table's type for each column that may convert to it without loss.

    Whether values convert is decided later: :func:`conform` casts them, and rejects those that lose something. Decimals
    of any digits, integers and whole floats convert to each other, also within structs and lists. Numbers and texts,
    times and dates do not. With ``evolve``, a column keeps its type if both have a common wider one (:func:`widened`).
    """
    fields = []
    for field in new:
        wanted = _type_in(table, field.name)
        if wanted is not None and wanted != field.type and _may_be_cast(field.type, wanted):
            fields.append(field.with_type(wanted) if not evolve or widened(wanted, field.type) is None else field)
        else:
            fields.append(field)
    return pa.schema(fields)


def _may_be_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if found == wanted or types.is_null(found):
        return True
    if types.is_integer(found):
        return types.is_integer(wanted) or types.is_floating(wanted) or types.is_decimal(wanted)
    if types.is_floating(found):
        return types.is_integer(wanted) or types.is_floating(wanted)
    if types.is_decimal(found):
        return types.is_decimal(wanted) or types.is_integer(wanted)
    if types.is_struct(found) and types.is_struct(wanted):
        if sorted(field.name for field in found) != sorted(field.name for field in wanted):
            return False
        return all(_may_be_cast(found.field(field.name).type, field.type) for field in wanted)
    if _is_any_list(found) and types.is_list(wanted):
        return _may_be_cast(_element(found), _element(wanted))
    return _widened(found) == wanted


def _cast(column: Any, wanted: pa.DataType) -> Any:
    """Cast the values to another type. Raise ArrowInvalid if one is lost, also where Arrow's casts permit the loss."""
    types = pa.types
    found = column.type
    if types.is_integer(found) and types.is_decimal(wanted):
        digits = 20 if types.is_unsigned_integer(found) else 19
        return column.cast(pa.decimal128(digits, 0)).cast(wanted)
    if types.is_floating(found) and types.is_floating(wanted) and wanted.bit_width < found.bit_width:
        narrow = column.cast(wanted)
        kept = pc.or_kleene(pc.equal(narrow.cast(found), column), pc.is_nan(column))
        if not pc.all(kept, min_count=0).as_py():
            raise pa.ArrowInvalid(f"a value is no {wanted}")
        return narrow
    if types.is_struct(found) and types.is_struct(wanted):
        if isinstance(column, pa.ChunkedArray):
            chunks: list[Any] = [_cast(chunk, wanted) for chunk in column.chunks]
            return pa.chunked_array(chunks, cast("Any", wanted))
        inner = [_cast(pc.struct_field(column, field.name), field.type) for field in wanted]
        return pa.StructArray.from_arrays(inner, fields=list(wanted), mask=column.is_null())
    return column.cast(wanted)


def _lossy(column: Any, field: pa.Field[Any]) -> SchemaMismatch:
    """Return the error that names the first lost value, found by bisection."""
    first, count = 0, len(column)
    while count > 1:
        half = count // 2
        if _is_exact(column.slice(first, half), field.type):
            first, count = first + half, count - half
        else:
            count = half
    value = column[first].as_py() if count else None
    remedy = _REMEDY if widened(field.type, _widened(column.type)) is None else f"{_REMEDY}{_EVOLVE}"
    return SchemaMismatch(
        f"column {field.name!r}: {value} in row {first + 1} cannot be stored without loss as {type_name(field.type)}, "
        f"the type of the table; {remedy}"
    )


def _is_exact(column: Any, wanted: pa.DataType) -> bool:
    try:
        _cast(column, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _stored(column: str, data_type: pa.DataType) -> pa.DataType:
    widened = _widened(data_type)
    if _has_time_zone(widened) or (pa.types.is_list(widened) and _has_time_zone(widened.value_type)):
        raise SchemaMismatch(
            f"column {column!r}: timestamps with time zone cannot be stored; convert them to naive UTC"
        )
    if pa.types.is_map(widened) or pa.types.is_union(widened) or isinstance(widened, pa.BaseExtensionType):
        raise SchemaMismatch(
            f"column {column!r}: type {widened} cannot be stored in a Kartothek table; convert or drop it"
        )
    return widened


def _widened(data_type: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_signed_integer(data_type):
        return pa.int64()
    if types.is_unsigned_integer(data_type):
        return pa.uint64()
    if types.is_floating(data_type):
        return pa.float64()
    if types.is_string(data_type) or types.is_large_string(data_type) or types.is_string_view(data_type):
        return pa.string()
    if _is_any_binary(data_type):
        return pa.binary()
    if types.is_dictionary(data_type) or types.is_run_end_encoded(data_type):
        return _widened(data_type.value_type)
    if types.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    if types.is_date(data_type):
        return pa.date32()
    if types.is_decimal32(data_type) or types.is_decimal64(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    if _is_any_list(data_type):
        return pa.list_(pa.field("item", _widened(_element(data_type))))
    return data_type


def _element(data_type: Any) -> pa.DataType:
    found: pa.DataType = data_type.value_type
    return found


def _is_any_list(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(data_type) or types.is_large_list(data_type) or types.is_fixed_size_list(data_type)


def _is_any_binary(data_type: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_binary(data_type)
        or types.is_large_binary(data_type)
        or types.is_binary_view(data_type)
        or types.is_fixed_size_binary(data_type)
    )


def _has_time_zone(data_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(data_type) and data_type.tz is not None


# --- compatibility ------------------------------------------------------------------------------------------


def merge(stored: pa.Schema, new: pa.Schema, *, evolve: bool = False) -> pa.Schema:
    """Return the table's schema after data of schema ``new`` is added: columns of type null get the other's type.

    Both are stored schemas; the order is that of ``stored``. Nothing else may differ (kartothek's
    ``validate_compatible``, Kartothek specification, "Table schema"; "Type System"): SchemaMismatch shows the
    differences, column by column.

    ``evolve``  also accept what old files and old readers tolerate: columns that the table lacks, columns that the data
                lacks (null then), and types that widen (see :func:`widened`)
    """
    together = {name: _together(_type_in(stored, name), _type_in(new, name)) for name in (*stored.names, *new.names)}
    if any(not each.accepted(evolve=evolve) for each in together.values()):
        raise SchemaMismatch(_explained(together, evolve=evolve))
    types = {name: each.type for name, each in together.items() if each.type is not None}
    return pa.schema([pa.field(name, types[name]) for name in _order(stored.names, new.names)])


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the stored type that holds both types' values exactly, also in files of the narrower one; None if none.

    That is a decimal with more digits, or a list whose elements were all null; number and text types are already the
    widest. An int64 does not widen to double: that would change large values, and plateau cannot filter both.
    """
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_decimal(one) and types.is_decimal(other):
        scale = max(one.scale, other.scale)
        digits = max(one.precision - one.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= _DECIMAL_DIGITS else None
    if types.is_list(one) and types.is_list(other):
        element = widened(one.value_type, other.value_type)
        return None if element is None else pa.list_(pa.field("item", element))
    return None


def carried_over(new: pa.Schema, base: pa.Schema, live: pa.Schema) -> pa.Schema:
    """Return the schema of data that was made for ``base``, in terms of the table's present schema ``live``.

    Where the data agreed with ``base``, it agrees with ``live``: columns added since are null in it, and types widened
    since are widened for it.
    """
    types = dict(zip(new.names, new.types, strict=True))
    for name, data_type in zip(live.names, live.types, strict=True):
        if name not in base.names or types.get(name) == base.field(name).type:
            types[name] = data_type
    return pa.schema([pa.field(name, types[name]) for name in _order(live.names, list(types)) if name in types])


def with_nulls(data: Data, schema: pa.Schema) -> Data:
    """Return the data with a column of nulls at the end for each column of the schema that it lacks."""
    for field in schema:
        if field.name not in data.schema.names:
            data = data.append_column(field, pa.nulls(data.num_rows, field.type))
    return data


@dataclass(frozen=True, slots=True)
class _Together:
    """One column of the table and of the data, None where missing; ``type`` is the table's type after the merge."""

    table: pa.DataType | None
    data: pa.DataType | None
    type: pa.DataType | None
    verdict: str

    def accepted(self, *, evolve: bool) -> bool:
        return not self.verdict or (evolve and self.type is not None)


def _together(table: pa.DataType | None, data: pa.DataType | None) -> _Together:
    if table is None:
        return _Together(table, data, data, "not in the table")
    if data is None:
        return _Together(table, data, table, "missing")
    result = widened(table, data)
    if result is None:
        return _Together(table, data, None, "another type")
    if table == data or pa.types.is_null(table) or pa.types.is_null(data):
        return _Together(table, data, result, "")
    return _Together(table, data, result, "a narrower type" if result == table else "needs a wider type")


def _type_in(schema: pa.Schema, name: str) -> pa.DataType | None:
    position = schema.get_field_index(name)
    return None if position < 0 else schema.field(position).type


def _order(stored: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the columns of both: the common prefix of partition columns first, then the others by name.

    If the table gets no new column, its order stays, whichever library made it.
    """
    if set(new) <= set(stored):
        return list(stored)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(stored, new, strict=False)))
    return [*stored[:common], *sorted({*stored[common:], *new[common:]})]


def _explained(together: Mapping[str, _Together], *, evolve: bool) -> str:
    """Return the differences as a text table for users, and the remedy."""
    different = {name: each for name, each in together.items() if each.verdict}
    lines = [("column", "the table", "the rows", "")]
    for name, each in [*different.items()][:_SHOWN]:
        ours, theirs = ("-" if t is None else type_name(t) for t in (each.table, each.data))
        lines.append((name, ours, theirs, each.verdict))
    widths = [max(len(line[at]) for line in lines) for at in range(3)]
    shown = ["  ".join(text.ljust(width) for text, width in zip(line, [*widths, 0], strict=True)) for line in lines]
    if len(different) > _SHOWN:
        shown.append(f"and {len(different) - _SHOWN} more columns")
    evolvable = not evolve and all(each.type is not None for each in different.values())
    remedy = _REMEDY
    if evolvable:
        remedy += _EVOLVE
    return "\n".join(["the columns do not match the table:", *(line.rstrip() for line in shown), remedy])


# --- _common_metadata ---------------------------------------------------------------------------------------


def render_common_metadata(schema: pa.Schema) -> bytes:
    """Return the bytes of ``_common_metadata`` for a stored schema: a Parquet footer without rows.

    It has the dialect that kartothek 5.3 and plateau 4.6 both read and update (verified with both), with the pandas
    metadata that both need.
    """
    pandas = json.dumps(_pandas_metadata(schema), sort_keys=True)
    sink = pa.BufferOutputStream()
    pq.write_metadata(
        schema.with_metadata({"pandas": pandas}),
        sink,
        version="2.4",
        coerce_timestamps="us",
        use_compliant_nested_type=False,  # kartothek 5.3 compares the name of a list's child: "item"
    )
    return sink.getvalue().to_pybytes()


def footer_metadata(schema: pa.Schema, with_nulls: Collection[str]) -> dict[str, str]:
    """Return the footer's metadata of a data file of this schema, as pyarrow writes it for pandas data.

    ``with_nulls``  columns with a null. Integer columns among them become pandas' nullable integers, because floats
                    cannot hold 2**53 + 1; booleans stay objects, which plateau's filters need

    The Arrow schema is part of it, because pyarrow reads the metadata from there: write with ``store_schema=False``.
    """
    described = _pandas_metadata(schema)
    for column in described["columns"]:
        if column["name"] in with_nulls and (nullable := _NULLABLE.get(column["numpy_type"])):
            column["numpy_type"] = nullable
    pandas = json.dumps(described, separators=(",", ":"))
    stored = schema.with_metadata({"pandas": pandas})
    return {"pandas": pandas, "ARROW:schema": b64encode(stored.serialize()).decode()}


def parse_common_metadata(data: bytes) -> pa.Schema:
    """Return the stored schema in a ``_common_metadata`` of any writer, in its own column order.

    Types are converted to Kubothek's dialect (``large_string`` is ``string``). A type that only a foreign writer can
    have stored, such as a timestamp with time zone, stays, so that it can be read. Raises SchemaMismatch if the bytes
    are not a Parquet footer.
    """
    try:
        schema = pq.read_schema(pa.BufferReader(data))
    except DAMAGED as error:
        raise SchemaMismatch(f"_common_metadata is not a Parquet file: {error}") from error
    return pa.schema([pa.field(field.name, _widened(field.type)) for field in schema])


_NULLABLE: Final = {"int64": "Int64", "uint64": "UInt64"}


def _pandas_metadata(schema: pa.Schema) -> dict[str, Any]:
    name_of_columns = {
        "field_name": None,
        "metadata": {"encoding": "UTF-8"},
        "name": None,
        "numpy_type": "object",
        "pandas_type": "unicode",
    }
    return {
        "column_indexes": [name_of_columns],
        "columns": [_pandas_column(field) for field in schema],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "index_columns": [],
        "pandas_version": "2.2.0",
    }


def _pandas_column(field: pa.Field[Any]) -> dict[str, Any]:
    pandas_type, numpy_type = _pandas_types(field.type)
    metadata: dict[str, Any] | None = None
    if pa.types.is_decimal(field.type):
        metadata = {"precision": field.type.precision, "scale": field.type.scale}
    elif _has_time_zone(field.type):
        metadata = {"timezone": field.type.tz}
    return {
        "field_name": field.name,
        "metadata": metadata,
        "name": field.name,
        "numpy_type": numpy_type,
        "pandas_type": pandas_type,
    }


def _pandas_types(data_type: pa.DataType) -> tuple[str, str]:
    """``pandas_type`` and ``numpy_type`` of a stored type (Kartothek documentation, "Type System")."""
    types = pa.types
    if types.is_list(data_type):
        return f"list[{_pandas_types(data_type.value_type)[0]}]", "object"
    if types.is_timestamp(data_type):
        return ("datetimetz" if data_type.tz else "datetime"), "datetime64[ns]"
    if types.is_decimal(data_type):
        return "decimal", "object"
    if types.is_duration(data_type):
        return "timedelta", "timedelta64[ns]"
    return {
        "int64": ("int64", "int64"),
        "uint64": ("uint64", "uint64"),
        "double": ("float64", "float64"),
        "bool": ("bool", "bool"),
        "string": ("unicode", "object"),
        "binary": ("bytes", "object"),
        "date32[day]": ("date", "object"),
        "null": ("empty", "object"),
    }.get(str(data_type), (str(data_type), "object"))


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
