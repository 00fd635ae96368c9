"""Where records and keys are cut. Pure."""

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
    """Records of one input, by its place among the inputs; both offsets are inclusive. A correction is one record: it
    is where its first half is (OP-02).

    ``first``  None: from the first one on that the run takes
    """

    input: int
    first: int | None
    last: int


def ranges_of(inputs: Sequence[TransformInput], records: int) -> list[Range]:
    """All new records, in parts of about so many; in the order of inputs and offsets."""
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
    """Of records from ``first`` to one after ``last`` those of the range."""
    for batch in batches:
        offsets: Any = batch.column(vocabulary.offset)
        second: Any = pc.equal(batch.column(vocabulary.op), pa.scalar(CORRECT_TO, pa.int32()))
        record: Any = pc.subtract(offsets, pc.cast(second, pa.int64()))
        inside: Any = pc.less_equal(record, pa.scalar(range_.last))
        if range_.first is not None:
            inside = pc.and_(inside, pc.greater_equal(record, pa.scalar(range_.first)))
        yield batch if pc.all(inside).as_py() else batch.filter(inside)


def spans_of(keys: Iterable[bytes], parts: int) -> list[Span]:
    """Ranges of keys, at most so many, that together are all.

    ``keys``  some that are evenly spread over the rows; a key with many rows is one part, however many it has
    """
    ordered = sorted(keys)
    cuts = sorted({ordered[len(ordered) * part // parts] for part in range(1, parts)} if ordered else ())
    return [Span(first, end) for first, end in pairwise([None, *cuts, None])]


def segments_of(span: Span, firsts: Sequence[bytes]) -> list[int]:
    """The numbers of the segments that can have rows of a range of keys; ``firsts`` is what each begins with. One goes
    up to where the next begins.
    """
    ends = [*firsts[1:], None] if firsts else []
    return [
        number
        for number, (begins, end) in enumerate(zip(firsts, ends, strict=True))
        if (span.end is None or begins < span.end) and (span.first is None or end is None or end >= span.first)
    ]


def of_span(span: Span, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with a key in a range of keys, each once: one that is sent under several is there under the first that
    is in it.
    """
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
