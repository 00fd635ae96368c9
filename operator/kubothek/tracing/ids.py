"""Trace and span ids of a run, derived from its uid.

So a restarted operator, a second one, and processes in pods continue the same trace without exchanging ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

_HEADER: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_LOWER: Final = 1 << 64
VARIABLE: Final = "TRACEPARENT"
"""Environment variable of a job: its parent span, in the format of W3C Trace Context."""


@dataclass(frozen=True, slots=True)
class Place:
    """Ids of a span in a trace: numbers of 128 and 64 bits, neither of them 0."""

    trace: int
    span: int

    @property
    def header(self) -> str:
        """The header of W3C Trace Context; only sampled spans have one."""
        return f"00-{self.trace:032x}-{self.span:016x}-01"

    @classmethod
    def of_header(cls, text: str) -> Self | None:
        """Parse a header; None if it is not valid, or not sampled."""
        if (found := _HEADER.fullmatch(text.strip())) is None:
            return None
        trace, span, flags = (int(part, 16) for part in found.groups())
        return cls(trace, span) if trace and span and flags & 1 else None


@dataclass(frozen=True, slots=True)
class RunTrace:
    """Trace of a run. ``uid`` identifies the run permanently."""

    uid: str

    @property
    def id(self) -> int:
        """Id of the trace."""
        return _number(16, self.uid)

    @property
    def run(self) -> Place:
        """Span from the run's creation to its end."""
        return self._place("run")

    def attempt(self, number: int) -> Place:
        """Return the span of one of its jobs, from its launch to its end."""
        return self._place("attempt", str(number))

    def within(self, *names: str) -> Place:
        """Return the span of another part of the run, which occurs once and is identified by its names."""
        return self._place("within", *names)

    def sampled(self, ratio: float) -> bool:
        """Return whether the trace is in the sampled share, 0 to 1: all processes decide alike (TraceIdRatioBased)."""
        return self.id % _LOWER < round(ratio * _LOWER)

    def _place(self, *names: str) -> Place:
        return Place(self.id, _number(8, self.uid, *names))


def _number(size: int, *parts: str) -> int:
    digest = sha256("\0".join(("kubothek", *parts)).encode()).digest()
    return int.from_bytes(digest[:size], "big") or 1
