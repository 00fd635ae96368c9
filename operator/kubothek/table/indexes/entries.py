"""Index entries in memory: tables of ``value`` and ``label``, a row for each label of each value.

``label`` is dictionary-encoded: a label has many values. *Sorted* entries are ordered by value and hold no pair twice.
Arrow does all the work; no Python code handles single values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.indexes.types import bound_of

VALUE: Final = "value"
LABEL: Final = "label"
LABEL_TYPE: Final = pa.dictionary(pa.int32(), pa.string())

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
    chunks, values = _labels(table), table.column(VALUE)
    codes = pa.chunked_array([chunk.indices for chunk in chunks])
    order = pc.sort_indices(codes)
    order = order.take(pc.sort_indices(values.take(order)))  # both sorts are stable
    values, codes = values.take(order), codes.take(order)
    labels = pa.DictionaryArray.from_arrays(_one(codes), chunks[0].dictionary)
    differs: Any = pc.or_(*(pc.not_equal(each.slice(1), each.slice(0, len(each) - 1)) for each in (values, codes)))
    firsts = pa.chunked_array([pa.array([True]), *differs.chunks])
    return pa.Table.from_arrays([values, pa.chunked_array([labels])], names=[VALUE, LABEL]).filter(firsts)


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
