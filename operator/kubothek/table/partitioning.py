"""Partition values: which columns may partition a table, their text in keys and labels, and the split of rows by them.

A *partition path* is ``<column>=<value>/…`` in the order of the partition keys, empty for a table without partitions. A
*label* is the path and the name of one file (Kartothek specification, "Data files of partitions" and "Attributes").
Each part is percent-encoded except for letters, digits and ``-._~``. kartothek also leaves ``/`` unencoded, which
corrupts values that contain one; it decodes Kubothek's form correctly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import PartitionInvalid, SchemaMismatch
from kubothek.table.bucketing import Bucketing
from kubothek.table.log.model.paths import PartitionValue
from kubothek.table.schema import require_distinct, type_name

MAX_SEGMENT_BYTES: Final = 255
"""The longest file name of common file systems."""
MAX_PATH_BYTES: Final = 768
"""Leaves 256 of the 1024 bytes of an S3 key for the store's prefix, the uuid and the name of the file."""

# bool is absent: both libraries read every value of a bool partition column back as True.
_PARTITIONABLE: Final = (pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"))


# --- rules for tables ---------------------------------------------------------------------------------------


def check_new_table(schema: pa.Schema, partition_keys: Sequence[str]) -> None:
    """Raise PartitionInvalid or SchemaMismatch if a new table cannot have this stored schema and these keys.

    Only new tables have their names checked: tables that another library stored can be read and appended to.
    """
    require_distinct(partition_keys)
    for key in partition_keys:
        if not key or "/" in key:
            raise PartitionInvalid(f"partition column {key!r}: the name must not be empty or contain '/'; rename it")
    check_new_columns(pa.schema([]), schema)
    check_partition_keys(schema, partition_keys)


def check_new_columns(before: pa.Schema, schema: pa.Schema) -> None:
    """Raise SchemaMismatch if a new column has a name that no table can have."""
    for name in schema.names:
        if name in before.names:
            continue
        if "/" in name:
            raise SchemaMismatch(
                f"column {name!r}: the key of a secondary index has its column's name, which therefore must not "
                "contain '/'; rename the column"
            )
        if name == "partition" or name.startswith("__"):
            raise SchemaMismatch(
                f"column {name!r}: Kartothek reserves this name "
                "(its indices use 'partition', its cubes '__…'); rename the column"
            )


def check_partition_keys(schema: pa.Schema, partition_keys: Sequence[str]) -> None:
    """Raise PartitionInvalid unless each key is a column of a type that a path preserves."""
    for key in partition_keys:
        if key not in schema.names:
            raise PartitionInvalid(f"no column {key!r} to partition on; the columns are {', '.join(schema.names)}")
        if (found := schema.field(key).type) not in _PARTITIONABLE:
            raise PartitionInvalid(
                f"partition column {key!r} is {type_name(found)}; use one of "
                + ", ".join(type_name(allowed) for allowed in _PARTITIONABLE)
            )
    if schema.names and not set(schema.names) - set(partition_keys):
        raise PartitionInvalid("every column is a partition column; at least one must remain to be stored in files")


def check_without_time_zones(given: pa.Schema, partition_keys: Sequence[str], *, of: str = "") -> None:
    """Raise PartitionInvalid if a partition column of the given data has a time zone; ``of`` begins the message.

    Other columns are converted (:func:`~kubothek.table.schema.without_time_zones`). A partition column decides in which
    directory a row lies, and other libraries cannot read such a table (facts 1.1): the user must choose.
    """
    for key in partition_keys:
        if key in given.names and pa.types.is_timestamp(found := given.field(key).type) and found.tz is not None:
            raise PartitionInvalid(
                f"{of}partition column {key!r} is {type_name(found)}: a partition has no time zone; convert the column "
                "to UTC without one"
            )


# --- text ---------------------------------------------------------------------------------------------------


def render_path(values: Mapping[str, PartitionValue]) -> str:
    """Return the partition path of these values, in their order: ``region=New%20York/year=2019``.

    Raises PartitionInvalid for a value that is null, or too long for a key.
    """
    return _join([_segment(column, value) for column, value in values.items()])


def _segment(column: str, value: PartitionValue | None) -> str:
    # Arrow compares NaN as a value, kartothek drops it like a null.
    if value is None or value != value:
        raise PartitionInvalid(
            f"partition column {column!r} has nulls (or NaN), which have no place in a path; "
            "fill or filter them, or partition on another column"
        )
    segment = f"{quote(column, safe='')}={quote(str(value), safe='')}"
    if len(segment) > MAX_SEGMENT_BYTES:
        raise PartitionInvalid(
            f"partition column {column!r}: value {str(value)[:40]!r}… is too long for a key "
            f"({len(segment)} bytes encoded, at most {MAX_SEGMENT_BYTES}); partition on a shorter column"
        )
    return segment


def _join(segments: Sequence[str]) -> str:
    path = "/".join(segments)
    if len(path) > MAX_PATH_BYTES:
        raise PartitionInvalid(
            f"partition {path[:80]}… is too long for a key ({len(path)} bytes encoded, at most "
            f"{MAX_PATH_BYTES}); partition on fewer or shorter columns"
        )
    return path


# --- splitting ----------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Rows that go into the same files: of one partition path and, if the table has buckets, one bucket.

    ``mark``  further suffix of the names of these files: the order of their rows
    """

    path: str
    bucket: int | None = None
    mark: str = ""


def joined(batches: Iterable[pa.RecordBatch], least_bytes: int) -> Iterator[pa.Table]:
    """Join small batches to tables of this size or more, but for the last: :func:`split` costs as much for few rows."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= least_bytes:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def split(
    batch: pa.RecordBatch, partition_keys: Sequence[str], bucketing: Bucketing | None = None
) -> Iterator[tuple[Group, pa.RecordBatch]]:
    """Yield the rows of each group in the batch, without the partition columns.

    Rows keep their order. The cost in Python is per distinct value and per group, not per row. The groups are slices of
    one batch: a group keeps the memory of all of them alive, until it is :func:`copied`. Raises PartitionInvalid before
    the first group.
    """
    payload = batch.select([name for name in batch.schema.names if name not in partition_keys])
    if batch.num_rows == 0:
        return
    codes, paths = _encode(batch, partition_keys)
    groups = [Group(path) for path in paths]
    if bucketing:
        codes, numbers = _combined(codes, bucketing.buckets(batch), bucketing.count)
        groups = [Group(paths[n // bucketing.count], n % bucketing.count) for n in numbers]
    if len(groups) == 1:
        yield groups[0], payload
        return
    if not _ascends(codes):
        order = pc.array_sort_indices(codes)
        codes = codes.take(order)
        # One gather a column: one for each group and column took 12 times as long, measured with 80 rows a group.
        payload = pa.RecordBatch.from_arrays([each.take(order) for each in payload.columns], schema=payload.schema)
    runs = pc.run_end_encode(codes)  # type: ignore[attr-defined]
    ends = [0, *runs.run_ends.to_pylist()]
    for (start, end), code in zip(pairwise(ends), runs.values.to_pylist(), strict=True):
        yield groups[code], payload.slice(start, end - start)


def copied(rows: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return these rows, at least one batch, as a batch that has its memory to itself."""
    one: pa.RecordBatch = pa.concat_batches(rows)  # type: ignore[attr-defined]  # the stubs lack it
    return one


def _ascends(codes: pa.Array[Any]) -> bool:
    numbers = codes.to_numpy()
    return bool((numbers[1:] >= numbers[:-1]).all())


def _encode(batch: pa.RecordBatch, partition_keys: Sequence[str]) -> tuple[pa.Array[Any], list[str]]:
    """Return a number per row, and the path for each number."""
    codes: pa.Array[Any] = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    segments: list[tuple[str, ...]] = [()]
    for key in partition_keys:
        encoded = batch.column(key).dictionary_encode("encode")
        texts = [_segment(key, value) for value in _values(key, encoded.dictionary)]
        if len(segments) == 1:
            codes, numbers = encoded.indices.cast(pa.int64()), list(range(len(texts)))
        else:
            codes, numbers = _combined(codes, encoded.indices, len(texts))
        segments = [(*segments[n // len(texts)], texts[n % len(texts)]) for n in numbers]
    return codes, [_join(parts) for parts in segments]


def _combined(codes: pa.Array[Any], more: pa.Array[Any], count: int) -> tuple[pa.Array[Any], list[int]]:
    """Return a number for each pair that occurs, and the pair for each number, as ``code * count + more``.

    Each call numbers the pairs again, so numbers stay below the batch's row count and cannot overflow.
    """
    both = pc.add(pc.multiply(codes, count), more.cast(pa.int64()))
    renumbered = both.dictionary_encode()
    numbers: list[Any] = renumbered.dictionary.to_pylist()
    return renumbered.indices.cast(pa.int64()), numbers


def _values(column: str, distinct: pa.Array[Any]) -> list[PartitionValue | None]:
    try:
        return distinct.to_pylist()
    except (ValueError, OverflowError) as error:  # text that is not UTF-8, a time beyond the year 9999
        raise PartitionInvalid(f"partition column {column!r} has a value without a text form: {error}") from error
