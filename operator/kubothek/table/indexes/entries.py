"""Index entries in memory: tables of ``value`` and ``label``, a row for each label of each value.

``label`` is dictionary-encoded: a label has many values. *Sorted* entries are ordered by value and hold no pair twice.
Arrow and NumPy do all the work; no Python code handles single values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.indexes.types import bound_of

VALUE: Final = "value"
LABEL: Final = "label"
LABEL_TYPE: Final = pa.dictionary(pa.int32(), pa.string())

_Integers: TypeAlias = "npt.NDArray[np.int64]"

Stream: TypeAlias = Callable[[], Iterator[pa.Table]]
"""Opens sorted entries as non-empty pieces; each begins at the last value of the one before, or above it."""


def entries(values: pa.Array[Any] | pa.ChunkedArray[Any], label: str) -> pa.Table:
    """Return the entries of one label."""
    labels = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(values)), pa.array([label]))
    columns: dict[str, Any] = {VALUE: values, LABEL: labels}
    return pa.table(columns)


def no_entries(value_type: pa.DataType) -> pa.Table:
    """Return an empty table of entries."""
    return pa.schema([(VALUE, value_type), (LABEL, LABEL_TYPE)]).empty_table()


def sort_distinct(tables: Sequence[pa.Table]) -> pa.Table:
    """Return all of these entries (of one value type; at least one table), sorted."""
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    if not table.num_rows:
        return table
    labels: Any = _one(table.column(LABEL))
    return _sorted(_one(table.column(VALUE)), labels.indices.to_numpy(), labels.dictionary)


def sort_labelled(values: Sequence[tuple[str, pa.Array[Any]]]) -> pa.Table:
    """Return sorted entries of values with their labels (at least one, and none empty)."""
    codes = {label: code for code, label in enumerate(dict.fromkeys(label for label, _ in values))}
    of_values = np.repeat([codes[label] for label, _ in values], [len(some) for _, some in values])
    return _sorted(pa.concat_arrays([some for _, some in values]), of_values, pa.array(codes, pa.string()))


def _sorted(values: pa.Array[Any], codes: npt.NDArray[Any], labels: pa.Array[Any]) -> pa.Table:
    """Return the sorted entries of values with the positions of their labels.

    Each entry becomes one integer, the rank of its value above the code of its label: NumPy sorts integers several
    times as fast as Arrow sorts the indices of two columns.
    """
    bits = (len(labels) - 1).bit_length()
    ranks, value_of = _ranked(values, 1 << (63 - bits))
    packed = ranks << bits
    packed |= codes
    packed.sort()
    packed = packed[np.append(True, packed[1:] != packed[:-1])]
    of_values = pa.array((packed & ((1 << bits) - 1)).astype(np.int32))
    columns: dict[str, Any] = {
        VALUE: value_of(packed >> bits),
        LABEL: pa.DictionaryArray.from_arrays(of_values, labels),
    }
    return pa.table(columns)


def _ranked(values: pa.Array[Any], limit: int) -> tuple[_Integers, Callable[[_Integers], pa.Array[Any]]]:
    """Return numbers from 0 to below ``limit`` that are ordered as the values, and what makes values of them again."""
    of = values.type
    if pa.types.is_integer(of) or pa.types.is_timestamp(of):
        ints = values.to_numpy() if pa.types.is_integer(of) else values.view(pa.int64()).to_numpy()
        low, high = ints.min(), ints.max()
        if int(high) - int(low) < limit:
            return (ints - low).astype(np.int64), lambda ranks: pa.array(ranks.astype(ints.dtype) + low).view(of)
    found = values.dictionary_encode()
    order: Any = pc.sort_indices(found.dictionary)
    ranks = np.empty(len(order), np.int64)
    ranks[order.to_numpy()] = np.arange(len(order))
    return ranks[found.indices.to_numpy()], lambda ranks: found.dictionary.take(order.take(pa.array(ranks)))


def with_labels(table: pa.Table, labels: Container[str]) -> pa.Table:
    """Return the entries whose label is one of these."""
    table = table.unify_dictionaries()
    if not table.num_rows:
        return table
    chunks = _labels(table)
    kept = pa.array([label in labels for label in chunks[0].dictionary.to_pylist()], pa.bool_())
    if pc.all(kept).as_py():
        return table
    return table.filter(pa.chunked_array([kept.take(chunk.indices) for chunk in chunks]))


def labels_in(table: pa.Table) -> frozenset[str]:
    """Return the labels that have an entry."""
    return texts(table.column(LABEL)) if table.num_rows else frozenset()


def texts(labels: pa.ChunkedArray[Any]) -> frozenset[str]:
    """Return these labels as a set; none of them is NULL."""
    return frozenset(cast("list[str]", pc.unique(labels.cast(pa.string())).to_pylist()))


def merge(streams: Sequence[Stream]) -> Iterator[pa.Table]:
    """Yield all entries of sorted streams, sorted, piece by piece; no value is divided between two pieces.

    Memory holds one piece of each stream, and all entries of the value at which a piece ends.
    """
    heads = [head for head in map(_Head, streams) if head.piece is not None]
    while heads:
        bound = min((head.last for head in heads), key=bound_of)
        yield sort_distinct([part for head in heads for part in head.take(bound)])
        heads = [head for head in heads if head.piece is not None]


class _Head:
    """The position in one stream of a merge; ``piece`` is the next piece, None at the end."""

    def __init__(self, stream: Stream) -> None:
        self._pieces = stream()
        self.piece: pa.Table | None = next(self._pieces, None)

    @property
    def last(self) -> Any:
        """The last value of the piece."""
        assert self.piece is not None, "asked only before the end"
        return self.piece.column(VALUE)[-1]

    def take(self, bound: Any) -> Iterator[pa.Table]:
        """Remove and yield all entries up to this value."""
        while self.piece is not None:
            count: int = pc.sum(pc.less_equal(self.piece.column(VALUE), bound).cast(pa.int64())).as_py() or 0
            if count:
                yield self.piece.slice(0, count)
            if count < self.piece.num_rows:
                self.piece = self.piece.slice(count)
                return
            self.piece = next(self._pieces, None)


def _labels(table: pa.Table) -> list[Any]:
    """Return the labels, in chunks with one dictionary."""
    return table.column(LABEL).chunks


def _one(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return the column as one array."""
    return pa.concat_arrays(column.chunks)
