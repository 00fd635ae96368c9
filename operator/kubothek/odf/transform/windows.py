"""Time windows as keys of groups: window(), TUMBLE, HOP, and their parts as Spark and Flink name them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from kubothek.errors import TransformInvalid
from kubothek.odf.transform.allowed import function_of
from kubothek.odf.transform.hints import span
from kubothek.sql.statement import Node

_ENDS: Final = {"_start": "start", "_end": "end", "_rowtime": "end"}
_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Window:
    """A time window. Lengths are in microseconds; windows begin at multiples of ``slide`` from 1970, plus ``shift``.

    ``gap``  of a session window, which has no size
    """

    time: Node
    size: int = 0
    slide: int = 0
    shift: int = 0
    gap: int = 0

    @property
    def sliding(self) -> bool:
        """Whether a row is in several windows."""
        return self.slide < self.size

    def sql(self, time: str) -> str:
        """Return the window of a time as a struct, in SQL; a sliding window gives one row for each of its windows."""
        moment = f"epoch_us(CAST({time} AS TIMESTAMP))"
        start = f"({moment} - ((({moment} - {self.shift}) % {self.slide}) + {self.slide}) % {self.slide})"
        if not self.sliding:
            return f"CASE WHEN {time} IS NOT NULL THEN {_struct(start, self.size)} END"
        number = -(-self.size // self.slide)
        if number > _MOST:
            raise TransformInvalid(f"a moment would be in {number} windows; the most is {_MOST}")
        each = _struct(f"({start} - __i * {self.slide})", self.size)
        inside = f"lambda __i: {start} - __i * {self.slide} + {self.size} > {moment}"
        return f"unnest(list_transform(list_filter(range({number}), {inside}), lambda __i: {each}))"


def _struct(start: str, size: int) -> str:
    return f'struct_pack("start" := make_timestamp({start}), "end" := make_timestamp({start} + {size}))'


def window_of(node: Node, constant: Callable[[Node], Any], where: str) -> Window | None:
    """Return the window that a call defines; None for other calls. Raises TransformInvalid."""
    name = function_of(node)
    if name not in ("window", "tumble", "hop", "session", "session_window"):
        return None
    arguments = [each["expression"] for each in node.get("arguments", ())]
    if len(arguments) < 2:
        raise TransformInvalid(f"{where}: {name}(event_time, '1 day') names a time and a length")
    time, *rest = arguments
    lengths = [_length(each, constant, f"{where}: {name}()") for each in rest]
    if any(length <= 0 for length in lengths[:2]):
        raise TransformInvalid(f"{where}: {name}(): a length of time is more than nothing")
    match name, lengths:
        case (("session" | "session_window"), [gap]):
            return Window(time, gap=gap)
        case (("window" | "tumble"), [size]):
            return Window(time, size, size)
        case "window", [size, slide, *shift] if len(shift) < 2 and slide <= size:
            return Window(time, size, slide, sum(shift))
        case "hop", [slide, size] if slide <= size:
            return Window(time, size, slide)
    raise TransformInvalid(
        f"{where}: {name}(): there are window(time, size[, slide[, shift]]), TUMBLE(time, size), "
        "HOP(time, slide, size), SESSION(time, gap), with slide no more than size"
    )


def part_of(node: Node) -> tuple[Node, str, bool] | None:
    """Read Flink's TUMBLE_START(…) and the like: the window's call, its part, and whether its last moment is meant."""
    name = function_of(node)
    for ending, part in _ENDS.items():
        if name.endswith(ending) and name.removesuffix(ending) in ("tumble", "hop", "session"):
            call = name.removesuffix(ending)
            return node | {"function_name": call, "qualified_name": {"path": [call]}}, part, ending == "_rowtime"
    return None


def _length(node: Node, constant: Callable[[Node], Any], where: str) -> int:
    value = constant(node)
    if isinstance(value, str):
        return span(value, where)
    if isinstance(value, timedelta):
        return int(value // timedelta(microseconds=1))
    raise TransformInvalid(f"{where}: {value!r} is no length of time: '1 day', INTERVAL '1' HOUR")
