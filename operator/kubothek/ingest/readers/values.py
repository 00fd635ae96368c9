"""Convert values of files to the types of columns, and name the cell that does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import DataTypeMismatch, InputError, PartitionInvalid, SchemaMismatch
from kubothek.table.schema import type_name, without_time_zones
from kubothek.table.time_zones import NAIVE, expected_zones, mixed

Convert = Callable[["pa.Array[Any]"], "pa.Array[Any]"]
Failure = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Errors of Arrow for a value that does not convert."""

_SHOWN: Final = 60
_LISTED: Final = 100
"""Maximum columns that an error lists."""
_TRUE: Final = pa.array(["1", "True", "TRUE", "true"])
_FALSE: Final = pa.array(["0", "False", "FALSE", "false"])
_ZONED: Final = r"\d[Tt ]\d{2}:?\d{2}.*(Z|z|[+-]\d{2}:?(\d{2})?)$"


class _Mixed(pa.ArrowInvalid):
    """Times with a zone in a column without one, or the reverse; ``zone`` is the column's."""

    def __init__(self, zone: str) -> None:
        super().__init__(zone)
        self.zone = zone


def parse_column(texts: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """Parse strings into values of a column, see :func:`kubothek.table.time_zones.expecting`. Raises a ``Failure``."""
    zone = expected_zones(pa.schema([field])).get(field.name)
    if zone is None:
        return parse_text(texts, field.type)
    values = parse_text(texts, without_time_zones(pa.schema([field])).field(0).type)
    zoned = _zoned(texts)
    if pc.any(zoned if zone == NAIVE else pc.invert(zoned)).as_py():
        raise _Mixed(zone)
    return values.view(field.type)


def any_zone(texts: pa.Array[Any] | pa.ChunkedArray[Any]) -> bool:
    """Return whether one of these texts is a time with a zone."""
    return bool(pc.any(_zoned(texts)).as_py())


def _zoned(texts: Any) -> Any:
    return pc.match_substring_regex(pc.utf8_trim_whitespace(texts), _ZONED)


def parse_text(texts: pa.Array[Any], to: pa.DataType) -> pa.Array[Any]:
    """Parse strings into values of another type; timestamps with a zone become naive UTC. Raises a ``Failure``."""
    if pa.types.is_string(to):
        return texts
    if pa.types.is_timestamp(to):
        return _parse_times(texts, to)
    trimmed = pc.utf8_trim_whitespace(texts)
    if pa.types.is_boolean(to):
        return _parse_bools(trimmed)
    if pa.types.is_time(to):
        return pc.replace_substring_regex(trimmed, "^", "1970-01-01T").cast(pa.timestamp("us")).cast(to)
    if pa.types.is_null(to):
        if texts.null_count < len(texts):
            raise pa.ArrowInvalid("not null")
        return pa.nulls(len(texts))
    return trimmed.cast(to)


def _parse_times(texts: pa.Array[Any], to: pa.TimestampType[Any, None]) -> pa.Array[Any]:
    trimmed = pc.utf8_trim_whitespace(texts)
    zoned = pc.match_substring_regex(trimmed, _ZONED)
    if not pc.any(zoned).as_py():
        return trimmed.cast(to)
    nothing = pa.scalar(None, pa.string())
    utc = pc.if_else(zoned, trimmed, nothing).cast(pa.timestamp(to.unit, "UTC")).cast(to)
    return pc.coalesce(utc, pc.if_else(zoned, nothing, trimmed).cast(to))


def _parse_bools(texts: pa.Array[Any]) -> pa.Array[Any]:
    true, false = pc.is_in(texts, value_set=_TRUE), pc.is_in(texts, value_set=_FALSE)
    if not pc.all(pc.or_(pc.or_(true, false), texts.is_null())).as_py():
        raise pa.ArrowInvalid("not a boolean")
    parsed: pa.Array[Any] = pc.if_else(texts.is_null(), pa.scalar(None, pa.bool_()), true)
    return parsed


def first_failure(values: pa.Array[Any], convert: Convert) -> int:
    """Return the position of the first value that does not convert; there must be one. Takes log2(n) conversions."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values.slice(low, middle - low))
        except Failure:
            high = middle
        else:
            low = middle
    return low


def convert_column(
    values: pa.Array[Any], to: pa.DataType, convert: Convert, *, file: str, column: str, first_row: int
) -> pa.Array[Any]:
    """Return ``convert(values)``; an error names the cell. ``first_row`` is 1-based.

    Raises DataTypeMismatch, or SchemaMismatch for a time whose zone does not suit the column.
    """
    try:
        return convert(values)
    except Failure:
        at = first_failure(values, convert)
        raise _wrong(values.slice(at, 1), to, convert, file, column, first_row + at) from None


def _wrong(value: pa.Array[Any], to: pa.DataType, convert: Convert, file: str, column: str, row: int) -> InputError:
    try:
        convert(value)
    except _Mixed as error:
        return mixed(f"{file!r}, column {column!r}, row {row}: {_show(value[0])}", error.zone)
    except Failure:
        pass
    return mismatch(file, column, row, _show(value[0]), to)


def mismatch(file: str, column: str, row: int, shown: str, to: pa.DataType) -> DataTypeMismatch:
    """Return the error for one cell that is not of its column's type."""
    if pa.types.is_null(to):
        text = f"{shown} in a column that had no values so far; declare its type in source.schema"
    else:
        text = f"{shown} is no {type_name(to)}; correct the value, or the type of the column in source.schema"
    return DataTypeMismatch(f"{file!r}, column {column!r}, row {row}: {text}")


def _show(value: pa.Scalar[Any]) -> str:
    try:
        python = value.as_py()
    except (ValueError, OverflowError):  # a time that Python cannot hold
        return show(str(value))
    if isinstance(python, bytes):
        with suppress(UnicodeDecodeError):
            python = python.decode()
    return show(python)


def show(value: object) -> str:
    """Return a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def check_names(file: str, found: list[str], wanted: list[str]) -> None:
    """Raise SchemaMismatch listing missing, unknown, duplicate and unnamed columns of a file."""
    problems = []
    if "" in found:
        problems.append(f"its column {found.index('') + 1} has no name")
    if repeated := sorted(name for name, count in Counter(found).items() if count > 1):
        problems.append(f"more than once: {_names(repeated)}")
    if missing := _without(wanted, found):
        problems.append(f"missing: {_names(missing)}")
    if unknown := [name for name in _without(found, wanted) if name]:
        problems.append(f"not in the table: {_names(unknown)}")
    if problems:
        raise SchemaMismatch(
            f"the columns of {file!r} do not match: {'; '.join(problems)}. The table has {_names(wanted)}; "
            "correct the file, name the columns in source.schema, or let the table evolve: schemaEvolution: Compatible"
        )


def check_required(batch: pa.RecordBatch, partition_on: tuple[str, ...], file: str, first_row: int) -> None:
    """Raise for the first null in a column that may have none.

    PartitionInvalid for a partition column, where NaN counts as null as in kartothek; DataTypeMismatch for a column
    that its schema declares not nullable.
    """
    for field, values in zip(batch.schema, batch.columns, strict=True):
        partitions = field.name in partition_on
        if field.nullable and not partitions:
            continue
        absent = pc.is_null(values, nan_is_null=partitions)
        if (at := pc.index(absent, True).as_py()) >= 0:
            where = f"{file!r}, column {field.name!r}, row {first_row + at}"
            if partitions:
                raise PartitionInvalid(
                    f"{where}: no value in a partition column; fill or remove such rows, or partition on another column"
                )
            raise DataTypeMismatch(f"{where}: no value, but the column is not nullable; fill it, or make it nullable")


def _without(names: list[str], others: list[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name not in known]


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(repr(name) for name in names[:_LISTED]) + more
