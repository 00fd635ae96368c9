"""Whether every retraction and correction carries the record that it retracts (OP-02).

A record is its columns without offset, operation and system time. For each retracted record, the number of additions
minus the number of retractions may at no offset be negative. Two passes over the slices, and only for chains that
retract: the first finds the retracted records, the second all additions and retractions of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.problems import Problem
from kubothek.odf.spec.digest_values import Encoded, encode, validity
from kubothek.odf.spec.layout import Layout
from kubothek.odf.validation.row_checks import CORRECT_FROM, RETRACT
from kubothek.odf.validation.slices import Expected, read_batches
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.storage.parallel import Spread

_BINARY: Final = pa.large_binary()
_NOTHING: Final = pa.scalar(b"", _BINARY)
_Numbers = npt.NDArray[np.int64]


def first_unmatched(
    layout: Layout, slices: Sequence[Expected], retracting: Sequence[bool], spread: Spread
) -> Problem | None:
    """Return the first retraction of a record that does not exist; ``retracting`` tells which slices have any.

    The slices must be sound. Memory: the retracted records. Raises StoreError.
    """
    schema = slices[-1].schema
    assert schema is not None, "a sound chain has one before it has slices"
    those = [each for each, has in zip(slices, retracting, strict=True) if has]
    taken = spread(partial(_taken, layout, schema), those, "retractions")
    known = pc.unique(pa.concat_arrays([pa.array([], _BINARY), *taken]))
    events = spread(partial(_events, layout, schema, known), slices, "records taken back")
    numbers, signs, offsets = (np.concatenate(column) for column in zip(*events, strict=True))
    if (offset := _first_negative(numbers, signs, offsets)) is None:
        return None
    where = next(each for each in slices if each.data.offset_interval.end >= offset)
    return Problem(
        "DataRetract",
        "OP-02",
        "it retracts a record that does not exist",
        block=where.block,
        number=where.number,
        object=f"slice {where.data.physical_hash.short}",
        column=where.vocabulary.op,
        row=offset,
    )


def _taken(layout: Layout, schema: pa.Schema, store: Store, expected: Expected) -> Any:
    """Return the records that a slice retracts, each once."""
    parts = [pa.array([], _BINARY)]
    for batch in read_batches(store, layout, expected):
        back = _taken_back(batch.column(expected.vocabulary.op))
        parts.append(pc.unique(record_keys(batch.filter(pa.array(back)), schema, expected.vocabulary)))
    return pc.unique(pa.concat_arrays(parts))


def record_keys(batch: pa.RecordBatch, schema: pa.Schema, names: Vocabulary) -> Any:
    """Return bytes for each record, which are equal if the records are. Columns that were added later are null."""
    parts, marks = [], []
    for field in schema:
        if field.name in (names.offset, names.op, names.system_time):
            continue
        there = field.name in batch.schema.names
        column: Any = batch.column(field.name) if there else pa.nulls(batch.num_rows, field.type)
        for leaf, valid in _leaves(column, None):
            parts.append(encode(leaf, valid).binary(len(leaf)))
            marks.append(np.ones(len(leaf), np.uint8) if valid is None else valid.astype(np.uint8))
    present = np.ascontiguousarray(np.stack(marks, axis=1))  # a null's byte alone could be that of a value
    parts.append(Encoded(present.reshape(-1), len(marks)).binary(batch.num_rows))
    return pc.binary_join_element_wise(*parts, _NOTHING)


def _events(
    layout: Layout, schema: pa.Schema, known: Any, store: Store, expected: Expected
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return, for a slice's records that are retracted anywhere: which, added (1) or retracted (-1), and the offset."""
    offset = expected.data.offset_interval.start
    nothing = np.zeros(0, np.int64)
    found = [(nothing, nothing, nothing)]
    for batch in read_batches(store, layout, expected):
        places = pc.fill_null(pc.index_in(record_keys(batch, schema, expected.vocabulary), known), -1)
        numbers = places.to_numpy(zero_copy_only=False).astype(np.int64)
        rows = np.flatnonzero(numbers >= 0)
        signs = np.where(_taken_back(batch.column(expected.vocabulary.op)), -1, 1)
        found.append((numbers[rows], signs[rows], rows + offset))
        offset += batch.num_rows
    numbers, signs, offsets = (np.concatenate(column) for column in zip(*found, strict=True))
    return numbers, signs, offsets


def _first_negative(numbers: _Numbers, signs: _Numbers, offsets: _Numbers) -> int | None:
    order = np.argsort(numbers, kind="stable")  # keeps events of one record in the order of their offsets
    numbers, sums = numbers[order], np.cumsum(signs[order])
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    before = np.where(starts > 0, sums[starts - 1], 0)
    counts = sums - np.repeat(before, np.diff(starts, append=len(numbers)))
    wrong = offsets[order][counts < 0]
    return int(wrong.min()) if len(wrong) else None


def _taken_back(column: Any) -> npt.NDArray[np.bool_]:
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray((values == RETRACT) | (values == CORRECT_FROM))


def _leaves(array: Any, above: npt.NDArray[np.bool_] | None) -> Iterator[tuple[Any, npt.NDArray[np.bool_] | None]]:
    own = validity(array)
    valid = own if above is None else above if own is None else own & above
    if not pa.types.is_struct(array.type):
        yield array, valid
        return
    for number in range(array.type.num_fields):
        yield from _leaves(array.field(number), valid)
