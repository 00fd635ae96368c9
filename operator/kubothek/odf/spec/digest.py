"""The logical hash: arrow-digest V0 with SHA3-256, over rows however they are stored and batched (HS-02).

Each leaf column has a hash of its own, of its type and its values in row order. The hash of a table is that of the
names and nesting of its fields and of the columns' hashes (ODF 0.34.1, RFC-002; arrow-digest). Nullability, metadata,
Parquet encodings and the boundaries of batches do not matter, with one exception of the reference: inside of nullable
structs its rule for nulls applies to whole batches, which are of 10,000 rows. Hence structs are cut to such batches.
Text columns may come as dictionaries, and hash the same. Several columns are hashed at a time
(``storage/sha3_multibuffer.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from functools import cached_property, lru_cache
from hashlib import sha3_256
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import InputError
from kubothek.odf.spec.digest_values import (
    Bytes,
    Mask,
    as_in_memory,
    encode,
    encoded_bytes,
    is_listed,
    is_text,
    joined,
    validity,
)
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.storage.sha3_multibuffer import AHEAD, Lanes, Stream

_BATCH: Final = 10_000
"""Rows of the reference's batches."""
_ROWS: Final = 1 << 15
"""Values that are converted to bytes at a time: they stay in the processor's caches, and memory stays small."""
_SHARE: Final = AHEAD // 8
"""The approximate bytes of one column before the next one is processed, so that there are as many columns as lanes."""
_LEAST_ROWS: Final = 1 << 12
_UNITS: Final = {"s": 0, "ms": 1, "us": 2, "ns": 3}


class LogicalHash:
    """The logical hash of rows that come in batches of any size.

    With an ``executor`` columns are hashed in parallel: nearly all of the work is done without Python's lock.
    """

    def __init__(self, schema: pa.Schema, executor: Executor | None = None) -> None:
        """Raises InputError for a column whose type has no logical hash."""
        self._schema = schema
        self._top, leaves = _beginnings(schema)
        self._lanes = Lanes()
        streams = [[self._lanes.stream(each) for each in beginnings] for beginnings in leaves]
        self._columns = [_Column(field.type, each) for field, each in zip(schema, streams, strict=True)]
        self._executor = executor
        self._fitting = schema

    def update(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add the next rows. Raises InputError if they have other columns."""
        if not rows.schema.equals(self._fitting) and not self._fits(rows.schema):
            raise InputError(
                f"rows with the columns {rows.schema.names} do not continue those with {self._schema.names}"
            )
        step = max(_LEAST_ROWS, rows.num_rows * _SHARE * len(self._columns) // max(1, rows.nbytes))
        for start in range(0, rows.num_rows, step):
            work = list(zip(self._columns, rows.slice(start, step).columns, strict=True))
            if self._executor is None:
                for column, values in work:
                    column.update(values)
            else:
                for future in [self._executor.submit(column.update, values) for column, values in work]:
                    future.result()

    def _fits(self, schema: pa.Schema) -> bool:
        wanted = [(field.name, field.type) for field in self._schema]
        fits = [(field.name, _plain(field.type)) for field in schema] == wanted
        self._fitting = schema if fits else self._fitting  # later rows nearly always have the same
        return fits

    def finish(self) -> Multihash:
        """Return the hash of all rows; no rows may follow."""
        streams = [stream for column in self._columns for stream in column.finish()]
        top = sha3_256(self._top + b"".join(self._lanes.digests(streams)))
        return Multihash(Codec.ARROW0_SHA3_256, top.digest())


def logical_hash(schema: pa.Schema, batches: Iterable[pa.RecordBatch], executor: Executor | None = None) -> Multihash:
    """Return the logical hash of these rows. Raises InputError for a column whose type has none."""
    hasher = LogicalHash(schema, executor)
    for batch in batches:
        hasher.update(batch)
    return hasher.finish()


@lru_cache(maxsize=256)
def _beginnings(schema: pa.Schema) -> tuple[bytes, list[list[bytes]]]:
    """Return the first bytes of a table's hash, and those of each column's leaves. Raises InputError."""
    names = [each for field in schema for each in _names(field, 0)]
    top = b"".join(struct.pack("<Q", len(name)) + name + struct.pack("<Q", level) for name, level in names)
    return top, [[_type_bytes(leaf.type, leaf.name) for leaf in _leaves(field)] for field in schema]


class _Column:
    """The hash of one column: a stream for each of its leaves."""

    def __init__(self, kind: Any, streams: list[Stream]) -> None:
        self._streams = streams
        self._rebatched = pa.types.is_struct(kind)
        self._entries: Entries | None = None
        self._pending: list[Any] = []
        self._rows = 0

    def update(self, values: Any) -> None:
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            if self._rebatched:
                self._gather(chunk)
            else:
                self._take(chunk)

    def finish(self) -> list[Stream]:
        if self._pending:
            self._take(pa.concat_arrays(self._pending))
            self._pending = []
        return self._streams

    def _gather(self, chunk: Any) -> None:
        while self._rows + len(chunk) >= _BATCH:
            missing = _BATCH - self._rows
            self._take(pa.concat_arrays([*self._pending, chunk.slice(0, missing)]))
            self._pending, self._rows, chunk = [], 0, chunk.slice(missing)
        if len(chunk):
            self._pending.append(chunk)
            self._rows += len(chunk)

    def _take(self, array: Any) -> None:
        if pa.types.is_dictionary(array.type):
            self._take_entries(array)
            return
        leaves = list(_flattened(array, None))
        for stream, (leaf, valid) in zip(self._streams, leaves, strict=True):
            _update(stream, leaf, valid)

    def _take_entries(self, array: Any) -> None:
        if array.dictionary.null_count:
            self._take(array.dictionary_decode())
            return
        if self._entries is None or not self._entries.are_of(array.dictionary):
            self._entries = Entries(array.dictionary)
        for start in range(0, len(array), _ROWS):
            self._streams[0].update(self._entries.take(array.indices.slice(start, _ROWS)).data)


def _update(stream: Stream, leaf: Any, valid: Mask | None) -> None:
    if valid is None and (memory := as_in_memory(leaf)) is not None:
        stream.update(memory)
        return
    for start in range(0, len(leaf), _ROWS):
        part = leaf.slice(start, _ROWS)
        stream.update(encoded_bytes(part, None if valid is None else valid[start : start + _ROWS]).data)


def _flattened(array: Any, above: Mask | None) -> Iterator[tuple[Any, Mask | None]]:
    """Yield the leaves, and which of their slots count as values.

    If both a struct and a field of it have nulls in a batch, the reference takes a slot for null only if both are.
    """
    own = validity(array)
    valid = own if above is None else above if own is None else own | above
    if not pa.types.is_struct(array.type):
        yield array, valid
        return
    for number in range(array.type.num_fields):
        yield from _flattened(array.field(number), valid)


def _leaves(field: Any) -> Iterator[Any]:
    if not pa.types.is_struct(field.type):
        yield field
        return
    for number in range(field.type.num_fields):
        yield from _leaves(field.type.field(number))


def _names(field: Any, level: int) -> Iterator[tuple[bytes, int]]:
    yield field.name.encode(), level
    if pa.types.is_struct(field.type):
        for number in range(field.type.num_fields):
            yield from _names(field.type.field(number), level + 1)


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) and is_text(kind.value_type) else kind


def _type_bytes(kind: Any, column: str) -> bytes:
    """Return the first bytes of a column's hash. Raises InputError for a type that has no logical hash."""
    is_ = pa.types
    if is_.is_integer(kind):
        return struct.pack("<HBQ", 1, is_.is_signed_integer(kind), kind.bit_width)
    if is_.is_floating(kind):
        return struct.pack("<HQ", 2, kind.bit_width)
    if is_text(kind):
        text = is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind)
        return struct.pack("<H", 4 if text else 3)
    if is_.is_boolean(kind):
        return struct.pack("<H", 5)
    if is_.is_decimal128(kind) or is_.is_decimal256(kind):
        return struct.pack("<HQQq", 6, kind.bit_width, kind.precision, kind.scale)
    if is_.is_date(kind):
        return struct.pack("<HQH", 7, kind.bit_width, is_.is_date64(kind))
    if is_.is_time(kind):
        return struct.pack("<HQH", 8, kind.bit_width, _UNITS[kind.unit])
    if is_.is_timestamp(kind):
        zone = b"\0" if kind.tz is None else struct.pack("<Q", len(kind.tz.encode())) + kind.tz.encode()
        return struct.pack("<HH", 9, _UNITS[kind.unit]) + zone
    if is_listed(kind):
        return struct.pack("<H", 11) + _type_bytes(kind.value_type, column)
    raise InputError(f"column {column!r} is of type {kind}, which has no logical hash; cast it to one that has")


# The bytes that arrow-digest hashes for texts of a dictionary, as in Parquet: those of each text are made once.


class Entries:
    """The bytes of a dictionary's texts, for all arrays that share it."""

    def __init__(self, dictionary: Any) -> None:
        """``dictionary`` has no nulls."""
        self._dictionary = dictionary
        self._count = len(dictionary)
        self._encoded = encode(dictionary, None)
        self._width = self._encoded.offsets if isinstance(self._encoded.offsets, int) else 0

    def are_of(self, dictionary: Any) -> bool:
        """Return whether these are the texts of this dictionary."""
        return bool(self._dictionary.equals(dictionary))

    def take(self, indices: Any) -> Bytes:
        """Return the bytes of these texts. Raises InputError for an index that the dictionary does not have."""
        if not indices.null_count:
            numbers = indices.to_numpy()
            self._check(numbers.min(initial=0), numbers.max(initial=-1))
            if self._width:
                return np.asarray(self._alike.take(numbers).view(np.uint8))
            return joined(pc.take(self._texts, indices, boundscheck=False))[0]
        ends: Any = pc.min_max(indices).as_py()
        self._check(ends["min"] or 0, -1 if ends["max"] is None else ends["max"])
        return joined(pc.take(self._texts, pc.fill_null(indices, self._count), boundscheck=False))[0]

    def _check(self, least: int, greatest: int) -> None:
        if least < 0 or greatest >= self._count:
            raise InputError(f"a dictionary of {self._count} texts has no number {least} or {greatest}")

    @cached_property
    def _alike(self) -> Any:
        return self._encoded.data.view(f"V{self._width}")

    @cached_property
    def _texts(self) -> Any:
        """The texts, with a null after the last."""
        return pa.concat_arrays([self._encoded.binary(self._count), pa.array([b"\0"], pa.large_binary())])
