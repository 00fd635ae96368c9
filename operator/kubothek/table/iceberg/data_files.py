"""Data files as manifests list them: partition values from the path, counts and bounds from the Parquet footer.

Iceberg specification, "Manifests", ``data_file``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, DateType, DoubleType, IcebergType, PrimitiveType, StringType, TimestampType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

from kubothek.table.log.model.changes import PartitionFile
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.scan.statistics import bounds

_BOUND_LENGTH: Final = 16
"""Characters or bytes of a bound, as Iceberg's writers keep by default."""


def data_file(
    location: str,
    file: PartitionFile,
    footer: pq.FileMetaData | None,
    stored: pa.Schema,
    schema: Schema,
    spec: PartitionSpec,
) -> DataFile:
    """Return the entry of a file for a manifest; without a footer, it has no statistics of columns.

    Raises PartitionInvalid for a path with a value that is not of its column's type.
    """
    values = partition_values(file.key, stored, schema)
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for field_id, rows, null_count, low, high in _columns(footer, stored, schema):
        counts[field_id] = rows
        if null_count is not None:
            nulls[field_id] = null_count
        if low is not None:
            lower[field_id] = low
        if high is not None:
            upper[field_id] = high
    entry = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*(values.get(field.name) for field in spec.fields)),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        value_counts=counts,
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    entry.spec_id = spec.spec_id  # not part of the stored form
    return entry


def partition_values(key: str, stored: pa.Schema, schema: Schema) -> dict[str, Any]:
    """Return the values in the path of a file as manifests hold them, e.g. days since 1970.

    Raises PartitionInvalid for a value that is not of its column's type.
    """
    values = parse_path(partition_path(key), stored)
    return {name: _stored_value(values[name], schema.find_type(name)) for name in values if name in schema.column_names}


def partition_types(spec: PartitionSpec, schema: Schema) -> list[tuple[str, IcebergType | None]]:
    """Return name and type of the columns of a spec; None for one that the schema lacks."""
    types = {field.name: field.field_type for field in schema.fields}
    return [(field.name, types.get(field.name)) for field in spec.fields]


def may_list(
    manifest: ManifestFile,
    columns: Sequence[tuple[str, IcebergType | None]],
    partitions: Sequence[Mapping[str, Any]],
) -> bool:
    """Return whether the summaries of a manifest admit one of these partitions, given their values by column.

    The answer can be wrong where a column changed its type.
    """
    ranges = [
        (name, _range(summary, field_type))
        for (name, field_type), summary in zip(columns, manifest.partitions or (), strict=False)
        if field_type is not None
    ]
    return any(all(admits(values.get(name)) for name, admits in ranges) for values in partitions)


def _range(summary: PartitionFieldSummary, field_type: IcebergType) -> Callable[[Any], bool]:
    """Return whether a summary admits a value."""
    nulls = bool(summary.contains_null)
    stored = [bound for bound in (summary.lower_bound, summary.upper_bound) if bound is not None]
    low: Any = None
    high: Any = None
    if len(stored) == 2 and isinstance(field_type, PrimitiveType) and not isinstance(field_type, DoubleType):
        # pyiceberg reads doubles as floats
        with suppress(ValueError, struct.error):
            low, high = (from_bytes(field_type, bound) for bound in stored)

    def admits(value: Any) -> bool:
        if value is None:
            return nulls
        return bool(stored) if low is None else type(value) is not type(low) or bool(low <= value <= high)

    return admits


def _stored_value(value: Any, field_type: IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(field_type, DateType):
        return date_to_days(value)
    return datetime_to_micros(value) if isinstance(field_type, TimestampType) else value


def _columns(
    footer: pq.FileMetaData | None, stored: pa.Schema, schema: Schema
) -> Iterator[tuple[int, int, int | None, bytes | None, bytes | None]]:
    """Yield field id, number of values, number of nulls and bounds of each column that is not nested."""
    if footer is None:
        return
    leaves = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    groups = [group for n in range(footer.num_row_groups) if (group := footer.row_group(n)).num_rows]
    for field in schema.fields:
        if not isinstance(field.field_type, PrimitiveType) or field.name not in leaves or "." in field.name:
            continue
        chunks = [group.column(leaves[field.name]).statistics for group in groups]
        null_count, low, high = _summary(chunks, stored.field(field.name).type)
        yield (
            field.field_id,
            footer.num_rows,
            null_count,
            *_bounds(field.field_type, low, high),
        )


def _summary(chunks: list[Any], data_type: pa.DataType) -> tuple[int | None, Any, Any]:
    if any(each is None or each.null_count is None for each in chunks):
        return None, None, None
    null_count = sum(each.null_count for each in chunks)
    found = [_extremes(each, data_type) for each in chunks if each.num_values]
    if not found or any(low is None or high is None for low, high in found):
        return null_count, None, None
    return null_count, min(low for low, _ in found), max(high for _, high in found)


def _extremes(statistics: pq.Statistics, data_type: pa.DataType) -> tuple[Any, Any]:
    low, high = bounds(statistics, data_type)
    # Iceberg's bounds, like Parquet's, do not cover NaN.
    return (low, float(cast("float", statistics.max))) if isinstance(high, float) else (low, high)


def _bounds(field_type: PrimitiveType, low: Any, high: Any) -> tuple[bytes | None, bytes | None]:
    if low is None:
        return None, None
    if isinstance(field_type, StringType):
        low, high = low[:_BOUND_LENGTH], truncate_upper_bound_text_string(high, _BOUND_LENGTH)
        if high is not None and any("\ud800" <= letter <= "\udfff" for letter in high):
            high = None  # incremented to half of a surrogate pair, which is no text
    elif isinstance(field_type, BinaryType):
        low, high = low[:_BOUND_LENGTH], truncate_upper_bound_binary_string(high, _BOUND_LENGTH)
    return to_bytes(field_type, low), None if high is None else to_bytes(field_type, high)
