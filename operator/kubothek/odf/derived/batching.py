"""The part of each input that one run reads (DT-02 … DT-05): pure functions of chains.

The blocks of all inputs have one order: by system time, then by position of the input, then by number. A run reads the
next blocks up to a limit, so it is always a prefix of that order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Final

from kubothek.odf.derived.links import Link, Shape
from kubothek.odf.spec.events import ExecuteTransformInput
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.validation.state import Consumed
from kubothek.odf.view import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A run ends with the block that reaches this number of input records, or bytes of input slices."""

    records: int = 5_000_000
    bytes: int = 512 << 20


USUAL: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An input, and its blocks that were not consumed.

    ``consumed``            the last consumed block and offset
    ``shape``               its columns there
    ``last_offset``         of its last record, None if it has none
    ``previous_watermark``  at the last consumed block
    """

    id: DatasetId
    alias: str
    consumed: Consumed
    links: Sequence[Link]
    shape: Shape
    last_offset: int | None
    previous_watermark: Timestamp | None

    @property
    def records(self) -> int:
        """Return the number of records not consumed."""
        return sum(link.records for link in self.links)

    @property
    def watermark(self) -> Timestamp | None:
        """Return its current watermark."""
        marks = (link.watermark for link in reversed(self.links) if link.watermark is not None)
        return next(marks, self.previous_watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBatch:
    """The part of one input that a run reads; plain data, serialisable.

    ``block``   its last block, None if there is none; ``offset``, of the last record, None if there is none
    ``bytes``   of its slices
    """

    id: DatasetId
    alias: str
    consumed: Consumed
    shape: Shape
    parts: tuple[Part, ...] = ()
    watermarks: tuple[tuple[Timestamp, Timestamp], ...] = ()
    blocks: tuple[tuple[Timestamp, int, int], ...] = ()
    previous_watermark: Timestamp | None = None
    block: Multihash | None = None
    offset: int | None = None
    system_time: Timestamp | None = None
    bytes: int = 0

    @property
    def event(self) -> ExecuteTransformInput:
        """Return the input as in ExecuteTransform (ET-02, ET-03)."""
        return ExecuteTransformInput(
            dataset_id=self.id,
            prev_block_hash=self.consumed.block,
            new_block_hash=self.block,
            prev_offset=self.consumed.offset,
            new_offset=self.offset,
        )

    @property
    def records(self) -> int:
        """Return the number of records in it."""
        return sum(last - first + 1 for _, first, last in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The input of one run, in the order of the inputs of SetTransform (ET-05). ``more``: blocks remain after it."""

    inputs: tuple[InputBatch, ...]
    more: bool = False

    @property
    def records(self) -> int:
        """Return the number of records of all inputs."""
        return sum(each.records for each in self.inputs)

    @property
    def bytes(self) -> int:
        """Return the size of the slices of all inputs."""
        return sum(each.bytes for each in self.inputs)

    @property
    def latest(self) -> Timestamp | None:
        """Return the system time of its last block: the output is not earlier (TIM-02)."""
        return max((each.system_time for each in self.inputs if each.system_time is not None), default=None)


def is_moved(waiting: Sequence[Waiting], watermark: Timestamp | None) -> bool:
    """Return whether there are records, or a run would raise ``watermark``, that of the output (DT-05)."""
    if any(each.records for each in waiting):
        return True
    marks = [each.watermark for each in waiting]
    least = min((mark for mark in marks if mark is not None), default=None)
    return None not in marks and least is not None and (watermark is None or least > watermark)


def next_batch(waiting: Sequence[Waiting], watermark: Timestamp | None, limits: Limits = USUAL) -> Batch | None:
    """Return the input of the next run; None if there is nothing to do, or an input never had data (DT-05).

    ``watermark``  of the output
    """
    if any(each.last_offset is None for each in waiting) or not is_moved(waiting, watermark):
        return None
    taken: list[list[Link]] = [[] for _ in waiting]
    records = size = 0
    more = False
    for position, link in _in_order(waiting):
        if _is_special(waiting[position], taken[position], link) or records >= limits.records or size >= limits.bytes:
            more = True
            break
        taken[position].append(link)
        records += link.records
        size += link.bytes
    return Batch(inputs=tuple(map(batch_of, waiting, taken)), more=more)


def _in_order(waiting: Sequence[Waiting]) -> Iterable[tuple[int, Link]]:
    streams = ([(position, link) for link in each.links] for position, each in enumerate(waiting))
    return merge(*streams, key=lambda one: (one[1].system_time, one[0], one[1].number))


def _is_special(source: Waiting, taken: Sequence[Link], link: Link) -> bool:
    """Return whether the columns of the next records differ from those already taken (DT-02)."""
    with_data = next((each for each in taken if each.part is not None), None)
    return with_data is not None and link.shape != with_data.shape


def batch_of(source: Waiting, taken: Sequence[Link]) -> InputBatch:
    """Return the part of one input with these blocks, the next ones not consumed."""
    parts = [(link, link.part) for link in taken if link.part is not None]
    shape = parts[0][0].shape if parts else taken[-1].shape if taken else source.shape
    if shape.schema is None:  # no record was read yet: use the columns of the first record
        shape = next((link.shape for link in source.links if link.part is not None), shape)
    return InputBatch(
        id=source.id,
        alias=source.alias,
        consumed=source.consumed,
        shape=shape,
        parts=tuple(part for _, part in parts),
        watermarks=tuple((link.system_time, link.watermark) for link in taken if link.watermark is not None),
        blocks=tuple((link.system_time, part.start, part.end) for link, part in parts),
        previous_watermark=source.previous_watermark,
        block=taken[-1].block if taken else None,
        offset=parts[-1][1].end if parts else None,
        system_time=taken[-1].system_time if taken else None,
        bytes=sum(link.bytes for link in taken),
    )
