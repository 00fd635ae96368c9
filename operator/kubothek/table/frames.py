"""Rows for people and their programs: pandas and polars frames, text of values, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kubothek.errors import InputError
from kubothek.table.schema import footer_metadata, require_distinct, type_name

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

SHOWN_ROWS: Final = 10
"""Rows that ``head`` returns and that a notebook shows."""
_LONGEST_CELL: Final = 200
_SINGLE_DIGITS: Final = 7
_DOUBLE_DIGITS: Final = 10
_ALL_DIGITS: Final = 15
_LARGE: Final = 1e9


def first_rows(rows: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> pa.Table:
    """Return the first ``most`` rows of a stream; it reads no further batch. Raises InputError for a negative number.

    Rows of ``rows`` that were read but not returned are lost.
    """
    require_row_count(most)
    batches, left = list[pa.RecordBatch](), most
    for batch in rows if left else ():
        batches.append(batch.slice(0, left))
        left -= batches[-1].num_rows
        if not left:
            break
    return pa.Table.from_batches(batches, schema)


def require_row_count(rows: int) -> None:
    """Raise InputError unless it is a number of rows."""
    if rows < 0:
        raise InputError(f"head of {rows} rows: the number must not be negative")


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return the rows as a DataFrame in plateau's types: times in nanoseconds, integers with nulls as Int64.

    If a time is outside of the range of nanoseconds (years 1678 to 2261), times are in microseconds. Raises
    SchemaMismatch if two columns have one name, InputError without pandas.
    """
    require_distinct(table.column_names)
    nulls = [name for name in table.column_names if table.column(name).null_count]
    table = table.replace_schema_metadata({"pandas": footer_metadata(table.schema, nulls)["pandas"]})
    try:
        return table.to_pandas(coerce_temporal_nanoseconds=True)
    except pa.ArrowInvalid:
        return table.to_pandas()
    except ModuleNotFoundError as error:
        raise _not_installed("pandas", error) from error


def to_polars(table: pa.Table) -> pl.DataFrame:
    """Return the rows as a polars DataFrame.

    Raises SchemaMismatch if two columns have one name, InputError without polars.
    """
    require_distinct(table.column_names)
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise _not_installed("polars", error) from error
    return pl.DataFrame(table)


def _not_installed(library: str, error: ModuleNotFoundError) -> InputError:
    return InputError(f"cannot make a {library} DataFrame: {error.name} is not installed; pip install {library}")


# --- text and HTML ----------------------------------------------------------------------------------------------------


def digits_of(kind: pa.DataType) -> int:
    """Return the number of significant digits of floating-point numbers of this type."""
    return _SINGLE_DIGITS if pa.types.is_float32(kind) or pa.types.is_float16(kind) else _DOUBLE_DIGITS


def text_of(value: object, digits: int = _DOUBLE_DIGITS) -> str:
    """Return a value for users: ``14.96014`` for 14.960139999999999, times in ISO 8601.

    Control characters are escaped.
    """
    if value is None:
        return "NULL"
    if isinstance(value, float):
        significant = _ALL_DIGITS if abs(value) >= _LARGE else digits
        return repr(float(f"{value:.{significant}g}"))
    if isinstance(value, list):
        return f"[{', '.join(text_of(each, digits) for each in value)}]"
    text = str(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def html_table(rows: pa.Table) -> str:
    """Return the rows as an HTML table with names and types of the columns; names and values are escaped."""
    digits = [digits_of(field.type) for field in rows.schema]
    lines = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    cells = ([_cell(value, number) for value, number in zip(line, digits, strict=True)] for line in lines)
    header = "".join(
        f"<th>{escape(field.name)}<br><small>{escape(type_name(field.type))}</small></th>" for field in rows.schema
    )
    return f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(map(_row, cells))}</tbody></table>"


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _cell(value: object, digits: int) -> str:
    text = text_of(value, digits)
    return escape(text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…")
