"""Choose indices from a sample of the table's values and from the filters of queries.

The rule (docs/skipping.md explains it to users). In a sample of files, a column is *clustered* if a value lies within
the bounds of at most half of them. It is *told apart* if a value is, on average, in at most half of them.

* MinMax: clustered columns of numbers, dates and times, and of strings if their values are short. Also columns that
  queries compare by ranges and, with a single file, all numbers, dates and times: 16 bytes a file.
* ValueList: columns with few values in each file that are told apart; with more values if queries ask for single ones.
* BloomFilter: columns of strings or whole numbers with many values, if queries ask for single values, the values are
  told apart, and MinMax does not suffice.
* Prefix, Suffix, TokenList: columns of strings for which queries have LIKE 'x%', '%x', '%x%'; Prefix only where MinMax
  does not suffice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.filters_seen import CONTAINS, EQUAL, PREFIX, RANGE, SUFFIX

SAMPLE_FILES: Final = 16
SAMPLE_ROWS: Final = 65_536
MOST_CHOSEN: Final = 32
FEW_VALUES: Final = 64
RATHER_FEW_VALUES: Final = 256
_HALF: Final = 0.5
_SHARP: Final = 0.1
_SHORT_BYTES: Final = 64

Seen = Collection[tuple[str, str]]
"""Columns, each with a kind of comparison that is frequent in queries (:mod:`.filters_seen`)."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """The statistics of a column in a sample of files.

    ``range_share``  share of files whose bounds contain a file's least value, on average; 1 = not clustered
    ``value_share``  share of files that hold a given value, on average
    ``values``       distinct values of the file that has most of them
    ``width``        bytes of a value, on average
    """

    name: str
    type: pa.DataType
    files: int
    range_share: float
    value_share: float
    values: int
    width: float = 8.0


def sampled(keys: Sequence[str]) -> list[str]:
    """Return a sample of files, evenly spread, with the first and the last."""
    if len(keys) <= SAMPLE_FILES:
        return list(keys)
    return [keys[round(number * (len(keys) - 1) / (SAMPLE_FILES - 1))] for number in range(SAMPLE_FILES)]


def profile(files: Sequence[pa.Table], schema: pa.Schema, partition_keys: Sequence[str] = ()) -> list[ColumnProfile]:
    """Return the statistics of each column that may have an index, from the first rows of some files."""
    candidates = [each for each in schema if each.name not in partition_keys and _is_plain(each.type)]
    return [found for each in candidates if (found := _profile(each, files)) is not None]


def choose(
    columns: Sequence[ColumnProfile], seen: Seen, given: Sequence[IndexDefinition], schema: pa.Schema
) -> tuple[IndexDefinition, ...]:
    """Return the given indices and those that the rule adds; columns in query filters first, up to the limit."""
    chosen = [
        (column, kind)
        for column in columns
        for kind in _kinds(column, {how for name, how in seen if name == column.name})
    ]
    asked = {name for name, _ in seen}
    chosen.sort(key=lambda each: each[0].name not in asked)
    found = list(given)
    there = {(each.type, tuple(column.lower() for column in each.columns)) for each in given}
    for column, kind in chosen:
        definition = IndexDefinition(kind, (column.name,), {"length": "8"} if kind in ("Prefix", "Suffix") else {})
        if (kind, (column.name.lower(),)) in there or len(found) - len(given) >= MOST_CHOSEN:
            continue
        try:
            check([definition], schema)
        except SkippingInvalid:
            continue
        found.append(definition)
    return tuple(found)


def _kinds(column: ColumnProfile, how: Collection[str]) -> Iterable[str]:
    types = pa.types
    is_text = types.is_string(column.type) or types.is_large_string(column.type)
    alone, clustered = column.files < 2, column.range_share <= _HALF
    is_selective = column.value_share <= _HALF
    wanted = RANGE in how or (not is_text if alone else clustered)
    if wanted and _is_ordered(column.type, is_text=is_text) and (not is_text or column.width <= _SHORT_BYTES):
        yield "MinMax"
    few = column.values <= (RATHER_FEW_VALUES if EQUAL in how else FEW_VALUES)
    if few and not alone and (is_selective or EQUAL in how) and column.width <= _SHORT_BYTES:
        yield "ValueList"
    hashed = is_text or types.is_integer(column.type)
    sharp = clustered and column.range_share <= _SHARP and not alone
    if EQUAL in how and not few and hashed and not sharp and (is_selective or alone):
        yield "BloomFilter"
    if is_text and PREFIX in how and (alone or not clustered):
        yield "Prefix"
    if is_text and SUFFIX in how:
        yield "Suffix"
    if is_text and CONTAINS in how:
        yield "TokenList"


def _is_plain(data_type: Any) -> bool:
    return not (pa.types.is_nested(data_type) or pa.types.is_null(data_type) or pa.types.is_dictionary(data_type))


def _is_ordered(data_type: Any, *, is_text: bool) -> bool:
    types = pa.types
    number = types.is_integer(data_type) or types.is_floating(data_type) or types.is_decimal(data_type)
    return number or is_text or types.is_date(data_type) or types.is_timestamp(data_type)


def _profile(field: pa.Field[Any], files: Sequence[pa.Table]) -> ColumnProfile | None:
    """Return the statistics of a column; None if the sample has no values of it."""
    uniques = [file.column(field.name).drop_null().unique() for file in files if field.name in file.column_names]
    uniques = [each for each in uniques if len(each)]
    if not uniques:
        return None
    everything = pa.chunked_array([chunk for each in uniques for chunk in [each]], uniques[0].type)
    counts = everything.value_counts().field("counts")
    # The average share of files that hold a value, over the values in the sample.
    value_share = float(pc.mean(counts).as_py() or 0) / len(uniques)
    width = everything.nbytes / len(everything)
    shares = [1.0]
    if _is_ordered(field.type, is_text=pa.types.is_string(field.type)):
        bounds: list[Any] = [pc.min_max(each).as_py() for each in uniques]
        inside = [sum(_holds(other, each["min"]) for other in bounds) for each in bounds]
        shares = [count / len(bounds) for count in inside]
    most = max(len(each) for each in uniques)
    return ColumnProfile(field.name, field.type, len(uniques), mean(shares), value_share, most, width)


def _holds(bounds: dict[str, Any], value: Any) -> bool:
    low, high = bounds["min"], bounds["max"]
    return value is not None and low is not None and bool(low <= value <= high)
