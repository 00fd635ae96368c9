"""Which trace a run is, and its spans that several processes speak of: decided by its uid alone.

So an operator that starts anew, a second one, and whatever runs in a pod go on with one trace, and none of them has to
be told of it by another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

_HEADER: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LOWER: Final = 1 << 64
VARIABLE: Final = "TRACEPARENT"
"""In the environment of a job: the span that it is a part of, as W3C's Trace Context writes it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A span in a trace, by their ids: numbers of 128 and 64 bits, neither of them 0."""

    trace: int
    span: int

    @property
    def header(self) -> str:
        """As W3C's Trace Context writes it; only what is sampled has one."""
        return f"00-{self.trace:032x}-{self.span:016x}-01"

    @classmethod
    def of_header(cls, text: str) -> Self | None:
        """None if it is no such header, or says that nobody wants to know."""
        if (found := _HEADER.fullmatch(text.strip())) is None:
            return None
        trace, span, flags = (int(part, 16) for part in found.groups())
        return cls(trace, span) if trace and span and flags & 1 else None


@dataclass(frozen=True, slots=True)
class RunTrace:
    """The trace of a run. ``uid`` names the run for ever."""

    uid: str

    @property
    def id(self) -> int:
        """Of the trace."""
        return _number(16, self.uid)

    @property
    def run(self) -> Place:
        """From the run's creation to its end."""
        return self._place("run")

    def attempt(self, number: int) -> Place:
        """One of its jobs, from its launch to its end."""
        return self._place("attempt", str(number))

    def within(self, *names: str) -> Place:
        """Something else that has one place in a run, told by its names."""
        return self._place("within", *names)

    def sampled(self, ratio: float) -> bool:
        """Whether the trace is one of so many, 0 to 1: all processes decide alike (TraceIdRatioBased)."""
        return self.id % _LOWER < round(ratio * _LOWER)

    def _place(self, *names: str) -> Place:
        return Place(self.id, _number(8, self.uid, *names))


def _number(size: int, *parts: str) -> int:
    digest = sha256("\0".join(("kubothek", *parts)).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1
