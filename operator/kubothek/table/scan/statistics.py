"""Pruning by Parquet footers: the ranges of columns per row group, without a read of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from math import nan
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept
from kubothek.table.expressions import Predicate, Range
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.log.records import parallel

KEPT_BYTES: Final = 64 << 20
"""Bytes of cached footers, over all stores; files never change."""
_PARSED: Final = 12
"""Memory of a parsed footer, as a multiple of its bytes in the file, measured."""
_UNKNOWN: Final = Range()
_ABSENT: Final = Range(nulls=True, values=False)
"""A column that a file does not have is NULL in it (Kartothek specification, "Data files of partitions")."""


_BYTES_OF_INDEX: Final = 4
"""A value takes fewer bytes than this in a column chunk that its dictionary makes smaller."""


def verdicts(
    store: Store, where: Predicate, schema: pa.Schema, files: list[tuple[str, Mapping[str, Range]]]
) -> list[bool | None]:
    """Return the bound predicate's verdict on each file, given its key and the known ranges of its columns.

    True, False or None as in :meth:`~kubothek.table.expressions.Predicate.verdict`. A file whose footer cannot be read
    may hold anything: the later read reports the error.
    """
    read = footers(store, [key for key, _ in files])
    return [
        None if footer is None else _of_file(where, footer, schema, known)
        for footer, (_, known) in zip(read, files, strict=True)
    ]


def footers(store: Store, files: list[str]) -> list[pq.FileMetaData | None]:
    """Return the footers of data files; None for one that cannot be read."""
    cached = [_FOOTERS.recall((store.url, key)) for key in files]
    missing = [key for key, found in zip(files, cached, strict=True) if found is None]
    read = iter(parallel(_footer_reader(store, missing), missing)) if missing else iter(())
    return [next(read) if found is None else found[0] for found in cached]


def worth_a_dictionary(footer: pq.FileMetaData) -> set[str] | None:
    """Return the paths of the columns whose values a file holds shorter in a dictionary; None if it has no rows.

    A column with too many values for its dictionary takes as long to encode as two, and is no smaller.
    """
    if not footer.num_row_groups:
        return None
    group = footer.row_group(0)
    chunks = [group.column(number) for number in range(footer.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if has_short_dictionary(chunk)}


def has_short_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    """Return whether a dictionary makes the column chunk smaller."""
    return chunk.has_dictionary_page and chunk.total_uncompressed_size < _BYTES_OF_INDEX * chunk.num_values


def keep_footer(store: Store, key: str, footer: pq.FileMetaData) -> None:
    """Cache the footer of a data file that this process writes."""
    _FOOTERS.keep((store.url, key), footer, _size(footer))


def _footer_reader(store: Store, files: Iterable[str]) -> Callable[[str], pq.FileMetaData | None]:
    filesystem = arrow_filesystem(store)
    store.check_no_links(files)

    def read(key: str) -> pq.FileMetaData | None:
        try:
            return _FOOTERS.get((store.url, key), partial(pq.read_metadata, key, filesystem=filesystem), _size)
        except (OSError, pa.ArrowException):
            return None

    return read


def _of_file(where: Predicate, footer: pq.FileMetaData, schema: pa.Schema, known: Mapping[str, Range]) -> bool | None:
    groups = {found for _, found in verdicts_of_row_groups(where, footer, schema, known)}
    if len(groups) == 1:
        return groups.pop()
    return None if groups else False


def verdicts_of_row_groups(
    where: Predicate, footer: pq.FileMetaData, schema: pa.Schema, known: Mapping[str, Range]
) -> Iterator[tuple[int, bool | None]]:
    """Yield the number of each row group with rows, and the bound predicate's verdict on it.

    ``known``  ranges of columns in all of the file
    """
    columns = {name: schema.field(name).type for name in where.columns - known.keys() if name in schema.names}
    leaves = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if group.num_rows:
            ranges = {name: _range(group, leaves, name, data_type) for name, data_type in columns.items()}
            yield number, where.verdict_within({**known, **ranges})


def _range(group: pq.RowGroupMetaData, leaves: Mapping[str, int], name: str, data_type: pa.DataType) -> Range:
    if "." in name or any(path.startswith(f"{name}.") for path in leaves):
        return _UNKNOWN  # nested, or named like a nested column
    if name not in leaves:
        return _ABSENT
    statistics = group.column(leaves[name]).statistics
    if statistics is None:
        return _UNKNOWN
    count = statistics.null_count
    nulls, values = (True, True) if count is None else (count > 0, count < group.num_rows)
    if not statistics.has_min_max or not values:
        return Range(nulls=nulls, values=values)
    low, high = bounds(statistics, data_type)
    return Range(low, high, nulls=nulls, values=values)


def bounds(statistics: pq.Statistics, data_type: pa.DataType) -> tuple[Any, Any]:
    """Return the bounds as Python values of the column's type; (None, None) if another writer's type prevents that.

    The upper bound of floats is NaN.
    """
    types = pa.types
    try:
        low, high = cast("tuple[Any, Any]", (statistics.min, statistics.max))
    except (ValueError, OverflowError):  # outside Python's range of years
        return None, None
    found = {type(low), type(high)}
    if types.is_floating(data_type) and found <= {int, float}:
        return float(low), nan  # NaN is not in statistics, may be in the data, and is above all numbers
    if types.is_timestamp(data_type) and isinstance(low, datetime):
        above = timedelta(microseconds=1) if getattr(high, "nanosecond", 0) else timedelta()
        return _moment(low, data_type), _moment(high, data_type) + above
    plain = next((kind for applies, kind in _PLAIN if applies(data_type)), None)
    return (low, high) if found == {plain} else (None, None)


_PLAIN: Final[tuple[tuple[Callable[[pa.DataType], bool], type], ...]] = (
    (pa.types.is_integer, int),
    (pa.types.is_boolean, bool),
    (pa.types.is_string, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_date, date),
)


def _moment(found: datetime, data_type: Any) -> datetime:
    """Return the time in microseconds and UTC, aware if the column is; a time without zone is in UTC."""
    utc = found.astimezone(UTC) if found.tzinfo else found
    return datetime.combine(utc.date(), utc.time(), UTC if data_type.tz else None)


def _size(footer: pq.FileMetaData) -> int:
    return _PARSED * footer.serialized_size


_FOOTERS: Final[Kept[tuple[str, str], pq.FileMetaData]] = Kept(KEPT_BYTES)
"""By store URL and key."""
