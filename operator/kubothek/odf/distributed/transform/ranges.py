"""Cuts of records and of keys: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.odf.distributed.transform.stages import BEFORE, SORT
from kubothek.odf.transform.contract import TransformInput
from kubothek.odf.transform.state import Span
from kubothek.odf.validation.row_checks import CORRECT_TO
from kubothek.odf.validation.state import Vocabulary


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one input, by its position among the inputs; both offsets are inclusive.

    A correction is one record, at the offset of its first half (OP-02).

    ``first``  None: from the first record of the run
    """

    input: int
    first: int | None
    last: int


def ranges_of(inputs: Sequence[TransformInput], records: int) -> list[Range]:
    """Divide all new records into ranges of about ``records`` each, in the order of inputs and offsets."""
    found = []
    for number, each in enumerate(inputs):
        if not each.blocks or each.rows is None:
            continue
        first, end = each.blocks[0][1], each.blocks[-1][2] + 1
        parts = -(-(end - first) // records)
        cuts = [first + (end - first) * part // parts for part in range(parts + 1)]
        found += [Range(number, start if start > first else None, stop - 1) for start, stop in pairwise(cuts)]
    return found


def within(range_: Range, batches: Iterable[pa.RecordBatch], vocabulary: Vocabulary) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range, given those from ``first`` to one after ``last``."""
    for batch in batches:
        offsets: Any = batch.column(vocabulary.offset)
        second: Any = pc.equal(batch.column(vocabulary.op), pa.scalar(CORRECT_TO, pa.int32()))
        record: Any = pc.subtract(offsets, pc.cast(second, pa.int64()))
        inside: Any = pc.less_equal(record, pa.scalar(range_.last))
        if range_.first is not None:
            inside = pc.and_(inside, pc.greater_equal(record, pa.scalar(range_.first)))
        yield batch if pc.all(inside).as_py() else batch.filter(inside)


def spans_of(keys: Iterable[bytes], parts: int) -> list[Span]:
    """Divide all keys into at most ``parts`` ranges.

    ``keys``  a sample that is evenly spread over the rows; a key is in one part, however many rows it has
    """
    ordered = sorted(keys)
    cuts = sorted({ordered[len(ordered) * part // parts] for part in range(1, parts)} if ordered else ())
    return [Span(first, end) for first, end in pairwise([None, *cuts, None])]


def segments_of(span: Span, firsts: Sequence[bytes]) -> list[int]:
    """Return the numbers of the segments that can have rows of a range of keys; ``firsts`` has the first key of each.

    A segment reaches up to the first key of the next one.
    """
    ends = [*firsts[1:], None] if firsts else []
    return [
        number
        for number, (begins, end) in enumerate(zip(firsts, ends, strict=True))
        if (span.end is None or begins < span.end) and (span.first is None or end is None or end >= span.first)
    ]


def of_span(span: Span, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with a key in a range, each once: a row with several keys is under the first of these in it."""
    for cut, holds in ((span.first, pc.greater_equal), (span.end, pc.less)):
        if cut is not None:
            keys: Any = batch.column(SORT)
            inside: Any = holds(keys, pa.scalar(cut, keys.type))
            batch = batch.filter(inside)
    if BEFORE not in batch.schema.names:
        return batch
    before: Any = batch.column(BEFORE)
    first: Any = pc.is_null(before)
    if span.first is not None:
        first = pc.or_kleene(first, pc.less(before, pa.scalar(span.first, before.type)))
    return batch.filter(first)
