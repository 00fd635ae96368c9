"""Which records are late, and which state is closed.

A record is judged by the watermarks of the blocks before its own, in the order of their system times. So the run in
which it comes does not matter. State is dropped when no later record can need it: by the watermarks as of the last
block of the input that is furthest behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubothek.errors import FormatInvalid, TransformInvalid
from kubothek.odf.transform.contract import TransformInput
from kubothek.odf.transform.hints import Emit, Hints, Late

_MICROSECOND: Final = 1000
_Mark = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Horizon:
    """Horizons of the inputs in one run.

    ``blocks``  for each input (first offset, horizon) of its blocks; a horizon is in microseconds, or None
    ``closed``  what ends at or before this is closed, None: nothing is
    ``header``  what the next run needs to know
    """

    hints: Hints
    blocks: Sequence[Sequence[tuple[int, int | None]]]
    closed: int | None
    header: Mapping[str, Any]

    @property
    def on(self) -> bool:
        """Whether records can be late."""
        return self.hints.lateness is not None

    @property
    def final(self) -> bool:
        """Whether each answer comes once, when it is closed."""
        return self.hints.emit is Emit.FINAL

    @property
    def side(self) -> bool:
        """Whether the answer is the late records."""
        return self.hints.late is Late.SIDE

    def require(self, *, sound: bool, where: str, what: str) -> None:
        """Raise TransformInvalid if records can be late in a query that is not ``sound`` for it."""
        if self.on and not sound:
            raise TransformInvalid(f"{where}: LATENESS {what}")


def horizon_of(hints: Hints, inputs: Sequence[TransformInput], header: Mapping[str, Any]) -> Horizon:
    """Return the horizons by the hints of the query, the timelines of its inputs and the header of the state."""
    if hints.lateness is None:
        return Horizon(hints, [[] for _ in inputs], None, {})
    marks, seen = [], []
    for each in inputs:
        kept, last_seen = _left_before(header, str(each.id))
        given = [(moment.nanoseconds, mark.nanoseconds) for moment, mark in each.watermarks]
        marks.append([*kept, *given])
        moments = [moment for moment, _ in given] + [block[0].nanoseconds for block in each.blocks]
        seen.append(max([*moments, *([] if last_seen is None else [last_seen])], default=None))
    blocks = [
        [(first, _horizon(marks, moment.nanoseconds - 1, hints.lateness)) for moment, first, _ in each.blocks]
        for each in inputs
    ]
    there = [moment for moment in seen if moment is not None]
    least = min(there) if len(there) == len(seen) and there else None
    closed = None if least is None else _horizon(marks, least, hints.lateness)
    left = {
        str(each.id): {"marks": _still(own, least), "seen": last}
        for each, own, last in zip(inputs, marks, seen, strict=True)
    }
    return Horizon(hints, blocks, closed, {"inputs": left})


def _left_before(header: Mapping[str, Any], name: str) -> tuple[list[_Mark], int | None]:
    """Return the marks of an input and its last system time, as the previous run left them. Raises FormatInvalid."""
    try:
        told = header.get("inputs", {}).get(name, {})
        marks = [(int(moment), int(mark)) for moment, mark in told.get("marks", ())]
        return marks, None if told.get("seen") is None else int(told["seen"])
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatInvalid(f"the checkpoint cannot be read: {error}; rebuild the derivative") from error


def nothing_late(hints: Hints, inputs: int) -> Horizon:
    """Return the horizons before the first run."""
    return Horizon(hints, [[] for _ in range(inputs)], None, {})


def _horizon(marks: Sequence[Sequence[_Mark]], until: int, lateness: int) -> int | None:
    """Return the least watermark of all inputs as of ``until``, less the lateness; in microseconds."""
    found = []
    for own in marks:
        known = [mark for moment, mark in own if moment <= until]
        if not known:
            return None
        found.append(max(known))
    return min(found) // _MICROSECOND - lateness


def _still(own: Sequence[_Mark], least: int | None) -> list[_Mark]:
    """Return the marks that later blocks can need."""
    if least is None:
        return list(own)
    past = [mark for mark in own if mark[0] <= least]
    highest = [(least, max(mark for _, mark in past))] if past else []
    return [*highest, *(mark for mark in own if mark[0] > least)]
