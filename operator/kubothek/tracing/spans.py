"""Spans of the process: open ones, and ended ones that are passed to a sink."""

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
    """Ended span: ``begin`` and ``end`` in nanoseconds since 1970.

    ``parent``  id of the parent span; None: a root span
    ``error``   error message of the span
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
    """Open span; without ``place`` if it is not traced."""

    place: Place | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str | None = None

    def set(self, **attributes: Value) -> None:
        """Add attributes."""
        if self.place is not None:
            self.attributes.update(attributes)


Sink = Callable[[Ended], None]
_sink: Sink | None = None
_root: Place | None = None
_stage: Place | None = None
_above: ContextVar[Place | None] = ContextVar("kubothek_span", default=None)


@contextmanager
def started(sink: Sink) -> Iterator[None]:
    """Pass spans to ``sink`` inside the context. The sink must neither raise nor block."""
    global _sink
    _sink = sink
    try:
        yield
    finally:
        _sink = None


def emit(ended: Ended) -> None:
    """Pass an ended span to the sink."""
    if _sink is not None:
        _sink(ended)


def current() -> Place | None:
    """Return the parent of a new span: the surrounding one or, in another thread, the present stage of the process."""
    return None if _sink is None else _above.get() or _stage


@contextmanager
def span(name: str, parent: Place | None = None, **attributes: Value) -> Iterator[Span]:
    """Return a span around the context, below ``parent`` or the current span. Without either, nothing is traced."""
    above = parent or current()
    if _sink is None or above is None:
        yield Span()
        return
    inside = Span(Place(above.trace, fresh()), dict(attributes))
    token = _above.set(inside.place)
    try:
        with _emitted(name, above, inside):
            yield inside
    finally:
        _above.reset(token)


@contextmanager
def process(name: str, parent: Place, **attributes: Value) -> Iterator[Span]:
    """Return the span of the whole process; its threads and stages are below it."""
    global _root, _stage
    inside = Span(Place(parent.trace, fresh()), dict(attributes))
    _root = _stage = inside.place
    try:
        with _emitted(name, parent, inside):
            yield inside
    finally:
        _root = _stage = None


class Stages:
    """Consecutive stages of a process: each lasts until the next one begins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: tuple[str, Place, int] | None = None

    def enter(self, name: str) -> None:
        """Begin another stage, unless it is the same. Safe to call from any thread."""
        global _stage
        if _root is None or (self._under_way is not None and self._under_way[0] == name):
            return
        with self._lock:
            self._leave()
            _stage = Place(_root.trace, fresh())
            self._under_way = (name, _stage, time.time_ns())

    def leave(self) -> None:
        """End the last stage."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        global _stage
        if self._under_way is None or _root is None:
            return
        (name, place, begin), self._under_way, _stage = self._under_way, None, _root
        emit(Ended(name=name, place=place, parent=_root.span, begin=begin, end=time.time_ns()))


@contextmanager
def _emitted(name: str, above: Place, inside: Span) -> Iterator[None]:
    """Pass the span to the sink at the end of the context."""
    assert inside.place is not None, "it has one where it is emitted"
    begin = time.time_ns()
    try:
        yield
    except BaseException as raised:
        inside.error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        emit(
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
    """Return the id of a new span."""
    return secrets.randbits(64) or 1
