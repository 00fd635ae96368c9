"""Spans of the process: what is under way, and what has ended and is handed on."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from kubothek.tracing.ids import Place

Value = str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A span that is over: ``begin`` and ``end`` in nanoseconds since 1970.

    ``parent``  the span id of what it is a part of; None: of nothing
    ``error``   what went wrong in it
    """

    name: str
    place: Place
    parent: int | None
    begin: int
    end: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    error: str | None = None


@dataclass(slots=True)
class Span:
    """A span under way; of no place where nobody traces."""

    place: Place | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str | None = None

    def set(self, **attributes: Value) -> None:
        """Say more of it."""
        if self.place is not None:
            self.attributes.update(attributes)


Sink = Callable[[Ended], None]
_sink: Sink | None = None
_whole: Place | None = None
_stage: Place | None = None
_above: ContextVar[Place | None] = ContextVar("kubothek_span", default=None)


@contextmanager
def started(sink: Sink) -> Iterator[None]:
    """Hand spans to this, inside of the context. It may neither raise nor wait."""
    global _sink
    _sink = sink
    try:
        yield
    finally:
        _sink = None


def tell(ended: Ended) -> None:
    """Hand on what was observed, as a whole."""
    if _sink is not None:
        _sink(ended)


def current() -> Place | None:
    """What a span that begins now is a part of: the one around it, or, in another thread, the stage of the process."""
    return None if _sink is None else _above.get() or _stage


@contextmanager
def span(name: str, parent: Place | None = None, **attributes: Value) -> Iterator[Span]:
    """A span around what happens inside: a part of ``parent``, or of the current one. Without either there is none."""
    above = parent or current()
    if _sink is None or above is None:
        yield Span()
        return
    inside = Span(Place(above.trace, fresh()), dict(attributes))
    token = _above.set(inside.place)
    try:
        with _told(name, above, inside):
            yield inside
    finally:
        _above.reset(token)


@contextmanager
def process(name: str, parent: Place, **attributes: Value) -> Iterator[Span]:
    """The span of all that this process does; its threads and stages are parts of it."""
    global _whole, _stage
    inside = Span(Place(parent.trace, fresh()), dict(attributes))
    _whole = _stage = inside.place
    try:
        with _told(name, parent, inside):
            yield inside
    finally:
        _whole = _stage = None


class Stages:
    """What a process does one after the other: each stage lasts until the next one begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: tuple[str, Place, int] | None = None

    def enter(self, name: str) -> None:
        """Another stage, unless it is the same. Safe to call from any thread."""
        global _stage
        if _whole is None or (self._under_way is not None and self._under_way[0] == name):
            return
        with self._lock:
            self._leave()
            _stage = Place(_whole.trace, fresh())
            self._under_way = (name, _stage, time.time_ns())

    def leave(self) -> None:
        """The last one is over."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        global _stage
        if self._under_way is None or _whole is None:
            return
        (name, place, begin), self._under_way, _stage = self._under_way, None, _whole
        tell(Ended(name=name, place=place, parent=_whole.span, begin=begin, end=time.time_ns()))


@contextmanager
def _told(name: str, above: Place, inside: Span) -> Iterator[None]:
    """Hand on the span when what is inside has ended."""
    assert inside.place is not None, "it has one where it is told of"
    begin = time.time_ns()
    try:
        yield
    except BaseException as raised:
        inside.error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        tell(
            Ended(
                name=name,
                place=inside.place,
                parent=above.span,
                begin=begin,
                end=time.time_ns(),
                attributes=inside.attributes,
                error=inside.error,
            )
        )


def fresh() -> int:
    """The id of a span that nobody else speaks of."""
    return secrets.randbits(64) or 1
