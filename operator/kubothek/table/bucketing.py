"""Buckets: which rows share files, by a hash that every version computes alike on every platform.

docs/layout.md specifies the hash and has test vectors: Murmur3 (x86, 32 bit), chained over the columns from seed 42.
For the types that Spark has, it equals Spark's own ``hash(…)``, and the bucket is ``pmod(hash(…), numBuckets)``.

A file's name states its bucket and its *bucketing*: columns, their types and the number of buckets. A table whose
bucketing changed has files of several; :meth:`Bucketing.read` recognizes only its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Protocol, cast

import pyarrow as pa
import pyarrow.compute

from kubothek.table.layout import Layout
from kubothek.table.murmur3 import Hashes, hash_bytes, hash_int, hash_long
from kubothek.table.schema import type_name

_SEED: Final = 42
_LONG_DECIMAL: Final = 18
"""Decimals of more digits do not fit 64 bits."""

_TEXT_BYTES: Final = 1024
"""The prefix of a text or binary value that is hashed: one huge value must not slow down all others."""


class _Kernels(Protocol):
    """Arrow's functions on arrays; the stubs restrict some to fewer number types than they support."""

    def __getattr__(self, name: str) -> Callable[..., pa.Array[Any]]: ...


pc: Final = cast("_Kernels", pyarrow.compute)


@dataclass(frozen=True)
class Bucketing:
    """Bucket columns with their stored types, and the number of buckets."""

    columns: tuple[tuple[str, pa.DataType], ...]
    count: int

    @classmethod
    def of(cls, layout: Layout, schema: pa.Schema) -> Bucketing | None:
        """Return the bucketing of a table with this stored schema; None if it has none, or lacks the columns."""
        if not layout.bucket_by or not set(layout.bucket_by) <= set(schema.names):
            return None
        return cls(tuple((name, schema.field(name).type) for name in layout.bucket_by), layout.num_buckets)

    def buckets(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Return the bucket of each row: 0 to ``count`` - 1. The batch has the columns in their stored types."""
        hashes: Hashes = pa.repeat(pa.scalar(_SEED, pa.uint32()), batch.num_rows)
        for name, _ in self.columns:
            hashes = _chained(hashes, batch.column(name))
        signed = hashes.view(pa.int32()).cast(pa.int64())
        remainder = pc.subtract(signed, pc.multiply(pc.divide(signed, self.count), self.count))
        positive = pc.if_else(pc.less(remainder, 0), pc.add(remainder, self.count), remainder)
        return positive.cast(pa.int32())

    def bucket_of(self, values: Mapping[str, Any]) -> int:
        """Return the bucket of rows that have these values in all of the bucket columns; None is a value, too.

        Raises pyarrow's errors for a value of another type than its column: bind a filter before.
        """
        arrays = [pa.array([values[name]], data_type) for name, data_type in self.columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in self.columns])
        bucket: int = self.buckets(batch)[0].as_py()
        return bucket

    def mark(self, bucket: int) -> str:
        """Return the suffix of the names of this bucket's files."""
        return f"-{self._fingerprint}-{bucket}"

    def read(self, labels: pa.StringArray) -> pa.Array[Any]:
        """Return the bucket of each file by its label; null for a file that was not written with this bucketing."""
        found = pc.extract_regex(labels, f"-{self._fingerprint}-(?P<bucket>[0-9]+)$")
        return pc.struct_field(found, "bucket").cast(pa.int32())

    @cached_property
    def _fingerprint(self) -> str:
        facts = [self.count, [[name, type_name(data_type)] for name, data_type in self.columns]]
        return sha256(json.dumps(facts, separators=(",", ":")).encode()).hexdigest()[:12]


# --- the hash -----------------------------------------------------------------------------------------------


def _chained(hashes: Hashes, column: pa.Array[Any]) -> Hashes:
    """Return the hash of each row after one more column; a null leaves the hash unchanged."""
    if pa.types.is_null(column.type):
        return hashes
    return pc.if_else(column.is_valid(), _values(hashes, column), hashes)


def _values(hashes: Hashes, column: pa.Array[Any]) -> Hashes:
    types, data_type = pa.types, column.type
    if types.is_string(data_type) or types.is_binary(data_type):
        return hash_bytes(hashes, pc.binary_slice(column.cast(pa.binary()), 0, _TEXT_BYTES))
    if types.is_boolean(data_type):
        return hash_int(hashes, column.cast(pa.uint32()))
    if types.is_floating(data_type):
        return hash_long(hashes, _canonical(column).view(pa.uint64()))
    if types.is_decimal(data_type):
        halves = column.view(pa.binary(16)).cast(pa.binary())
        low, high = (pc.binary_slice(halves, at, at + 8).cast(pa.binary(8)).view(pa.uint64()) for at in (0, 8))
        hashes = hash_long(hashes, low)
        return hashes if data_type.precision <= _LONG_DECIMAL else hash_long(hashes, high)
    if data_type.bit_width == 32:
        return hash_int(hashes, column.view(pa.uint32()))
    return hash_long(hashes, column.view(pa.uint64()))


def _canonical(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the numbers with equal bits for equal values: one zero, one NaN."""
    column = pc.if_else(pc.equal(column, 0.0), 0.0, column)
    return pc.if_else(pc.is_nan(column), float("nan"), column)
