"""Translation of stored types and of predicates to Spark's types and conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, DecimalType, NullType, StructField, StructType, TimestampNTZType

from kubothek.errors import InputError
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.expressions.terms import PATTERNS, SETS
from kubothek.table.schema import type_name

_UINT64_DIGITS = 20
_DECIMAL = pa.decimal128(_UINT64_DIGITS, 0)


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema in Spark's types: times without zone are TIMESTAMP_NTZ, uint64 is DECIMAL(20, 0).

    Raises InputError for a type that Spark does not have.
    """
    return StructType([StructField(field.name, _spark_type(field)) for field in schema])


def storable(table: pa.Table) -> pa.Table:
    """Return the rows in Arrow types that Spark accepts."""
    fields = [f.with_type(_DECIMAL) if pa.types.is_uint64(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields))


def _spark_type(field: pa.Field[Any]) -> DataType:
    if pa.types.is_uint64(field.type):
        return DecimalType(_UINT64_DIGITS, 0)
    if pa.types.is_null(field.type):
        return NullType()
    try:
        return from_arrow_type(field.type)
    except PySparkException as error:
        raise InputError(
            f"column {field.name!r} is {type_name(field.type)}, which Spark does not have; leave it out (columns=...)"
        ) from error


def column(name: str) -> Column:
    """Return the column of exactly this name, whatever characters it has."""
    return field((name,))


def field(path: Sequence[str]) -> Column:
    """Return the column of this name, or the field of a struct."""
    return sf.col(".".join("`" + name.replace("`", "``") + "`" for name in path))


def condition(predicate: Predicate) -> Column:
    """Return a bound predicate as a Spark condition. It is TRUE for the same rows, as both compare like SQL."""
    conjunctions = [reduce(and_, map(_condition, terms), sf.lit(True)) for terms in predicate.conjunctions]
    return reduce(or_, conjunctions) if conjunctions else sf.lit(False)


def _condition(term: Term) -> Column:
    left = field(term.path)
    if term.never:
        return sf.lit(False)
    if term.op in (Op.IS_NULL, Op.IS_NOT_NULL):
        return left.isNull() if term.op is Op.IS_NULL else left.isNotNull()
    if term.op in SETS:
        inside = left.isin([_literal(value) for value in term.value])
        return inside if term.op is Op.IN else ~inside
    if term.op in PATTERNS:
        alike = left.like(term.value)
        return alike if term.op is Op.LIKE else ~alike
    compared: Column = _COMPARISONS[term.op](left, _literal(term.value))
    return compared


_COMPARISONS: Final[dict[Op, Callable[[Column, Column], Any]]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def _literal(value: Any) -> Column:
    if isinstance(value, datetime) and value.tzinfo is None:
        # A naive datetime would become a TIMESTAMP in the session's time zone.
        return sf.lit(value.isoformat(" ")).cast(TimestampNTZType())
    if isinstance(value, int) and not isinstance(value, bool):
        return sf.lit(Decimal(value))  # an unsigned value may exceed Spark's integers
    return sf.lit(value)
