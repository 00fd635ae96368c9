"""The table that every system holds, and what is asked of it.

It has one file of 1,000 rows in each partition. Most of the files are only named, and never written: none of
the systems opens a file to commit, to plan or to read another partition. The first ``READABLE`` partitions are real.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

NAME = "bench"
PART = "part"
ROWS = 1000
READABLE = 4
_TYPES: dict[str, pa.DataType] = {PART: pa.int64(), "amount": pa.float64(), "id": pa.int64()}
SCHEMA = pa.schema(_TYPES)


def rows(part: int) -> pa.Table:
    """The rows of one partition, or of one append to it."""
    ids = pa.array(range(part * ROWS, (part + 1) * ROWS), pa.int64())
    return pa.table([pa.array([part] * ROWS, pa.int64()), ids.cast(pa.float64()), ids], schema=SCHEMA)


@cache
def parquet(part: int, *, with_part: bool) -> bytes:
    """A data file of one partition; Hive-style tables leave the partition column out."""
    table = rows(part) if with_part else rows(part).drop_columns([PART])
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


class System(ABC):
    """One way to keep the table; an instance keeps whatever handles a long-running writer or reader would keep."""

    @abstractmethod
    def build(self, partitions: int) -> None:
        """Make the table, with this many partitions."""

    @abstractmethod
    def append(self) -> None:
        """Commit one file of ``ROWS`` rows to partition 0."""

    @abstractmethod
    def plan(self, part: int) -> int:
        """The number of files that a read of this partition opens."""

    @abstractmethod
    def read(self, part: int) -> int:
        """The number of rows in this partition, all columns read."""
