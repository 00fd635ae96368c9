"""The layout of a table: how its rows are divided into files, and the properties of the files.

The head stores it (``metadata.kubothek_layout``), where foreign writers leave it alone, so that every later writer lays
files out in the same way. It omits the partition columns, because the head names them itself. A table without a stored
layout, such as one of kartothek or plateau, has the defaults.

Only the partition columns can never change. The rest applies from the next write on. Each file states its own order (in
its Parquet footer) and its bucket (in its name), so files of several layouts coexist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from kubothek.errors import LayoutInvalid, PartitionInvalid
from kubothek.table.checked_types import checked
from kubothek.table.log.model.head import LAYOUT, OWN_PREFIX, Head
from kubothek.table.name_lists import names_in
from kubothek.table.schema import type_name

MIB: Final = 1 << 20
TARGET_FILE_BYTES: Final = 128 * MIB
ROW_GROUP_ROWS: Final = 1 << 20
MAX_BUCKETS: Final = 1 << 16

Codec = Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"]
CODECS: Final[Mapping[str, Codec]] = {
    "NONE": "none",
    "SNAPPY": "snappy",
    "GZIP": "gzip",
    "BROTLI": "brotli",
    "LZ4": "lz4",
    "ZSTD": "zstd",
}
"""The codecs that kartothek and plateau read (Kartothek specification, "Data files of partitions")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table's files are made. Raises LayoutInvalid for values that no columns can make valid.

    ``partition_on``        columns that go into the path instead of the file, outermost first
    ``sort_by``             columns by which the rows inside each file ascend; nulls come last
    ``bucket_by``           columns whose hash decides the bucket of a row; each file has rows of one bucket
    ``num_buckets``         number of buckets, 0 without ``bucket_by``
    ``target_file_bytes``   a file is closed when it reaches this size
    ``row_group_rows``      maximum number of rows of a row group
    ``compression``         NONE, SNAPPY, GZIP, BROTLI, LZ4 or ZSTD
    ``dictionary_columns``  columns that are dictionary-encoded; None = all, where it saves space
    """

    partition_on: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    bucket_by: tuple[str, ...] = ()
    num_buckets: int = 0
    target_file_bytes: int = TARGET_FILE_BYTES
    row_group_rows: int = ROW_GROUP_ROWS
    compression: str = "ZSTD"
    dictionary_columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("partition_on", "sort_by", "bucket_by", "dictionary_columns"):
            columns = getattr(self, name)
            if columns is not None and type(columns) is not tuple:  # a string is one name
                object.__setattr__(self, name, names_in(name, columns))
        if self.target_file_bytes < 1:
            raise LayoutInvalid(f"target file size {self.target_file_bytes}: it must be at least 1 byte")
        if self.row_group_rows < 1:
            raise LayoutInvalid(f"{self.row_group_rows} rows in a row group: there must be at least 1")
        if self.compression not in CODECS:
            raise LayoutInvalid(f"compression {self.compression!r}: use one of {', '.join(CODECS)}")
        if self.bucket_by and not 1 <= self.num_buckets <= MAX_BUCKETS:
            raise LayoutInvalid(f"{self.num_buckets} buckets: with bucketBy, numBuckets must be 1 to {MAX_BUCKETS}")
        if self.num_buckets and not self.bucket_by:
            raise LayoutInvalid(f"{self.num_buckets} buckets of nothing: name the columns in bucketBy")

    @classmethod
    def of(cls, head: Head, wanted: Layout | None = None) -> Layout:
        """Return the layout for the next write: the wanted one, else the stored one, else the defaults.

        Raises PartitionInvalid if the wanted one has other partition columns than the table, LayoutInvalid if the
        stored one is invalid.
        """
        if wanted is None:
            return cls._stored(head)
        if wanted.partition_on != head.partition_keys and not _is_blank(head):
            raise PartitionInvalid(
                f"dataset {head.uuid!r} is partitioned on {list(head.partition_keys)}, not on "
                f"{list(wanted.partition_on)}; that cannot be changed, correct table.partitionOn"
            )
        return wanted

    @classmethod
    def _stored(cls, head: Head) -> Layout:
        found = head.metadata.get(LAYOUT, {})
        defaults = cls(partition_on=head.partition_keys)
        try:
            dictionary = found.get("dictionaryColumns")
            layout = cls(
                partition_on=head.partition_keys,
                sort_by=tuple(found.get("sortBy", ())),
                bucket_by=tuple(found.get("bucketBy", ())),
                num_buckets=int(found.get("numBuckets", 0)),
                target_file_bytes=int(found.get("targetFileSize", defaults.target_file_bytes)),
                row_group_rows=int(found.get("rowGroupRows", defaults.row_group_rows)),
                compression=found.get("compression", defaults.compression),
                dictionary_columns=None if dictionary is None else tuple(dictionary),
            )
            return checked(layout)
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise LayoutInvalid(
                f"dataset {head.uuid!r}: metadata.{LAYOUT} is not a layout: {error}; write with a layout of your own"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return the form in the head: everything but the partition columns, with the field names of a manifest."""
        return {
            "sortBy": list(self.sort_by),
            "bucketBy": list(self.bucket_by),
            "numBuckets": self.num_buckets,
            "targetFileSize": self.target_file_bytes,
            "rowGroupRows": self.row_group_rows,
            "compression": self.compression,
            "dictionaryColumns": None if self.dictionary_columns is None else list(self.dictionary_columns),
        }

    def check(self, schema: pa.Schema) -> None:
        """Raise LayoutInvalid unless a table of this stored schema can have this layout.

        The partition columns are checked by :func:`~kubothek.table.partitioning.check_partition_keys`.
        """
        for field, columns in (
            ("sortBy", self.sort_by),
            ("bucketBy", self.bucket_by),
            ("dictionaryColumns", self.dictionary_columns or ()),
        ):
            check_columns(field, columns, schema, self.partition_on)


def check_columns(field: str, columns: Sequence[str], schema: pa.Schema, partition_on: Sequence[str]) -> None:
    """Raise LayoutInvalid unless these are columns of plain values in the files of a table of this stored schema.

    ``field`` is the name of the manifest field, for messages.
    """
    for column in columns:
        if columns.count(column) > 1:
            raise LayoutInvalid(f"{field} names column {column!r} twice; remove one")
        if column in partition_on:
            raise LayoutInvalid(f"{field} names partition column {column!r}, which no file contains; remove it")
        if column not in schema.names:
            raise LayoutInvalid(f"{field} names column {column!r}; the columns are {', '.join(schema.names)}")
        if pa.types.is_nested(found := schema.field(column).type):
            raise LayoutInvalid(f"{field} names column {column!r} ({type_name(found)}); only plain values can be used")


def _is_blank(head: Head) -> bool:
    """Return whether there is no table yet: the dataset is new, or empty again after a deletion."""
    return not (head.partitions or head.partition_keys or any(not k.startswith(OWN_PREFIX) for k in head.metadata))
