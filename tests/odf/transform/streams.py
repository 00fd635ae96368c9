"""Random ledgers: late, duplicate, retracted and corrected records, in any order of their times."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.odf.transform.world import Row, Stream, at

MS = pa.timestamp("ms", "UTC")
FLIGHTS: list[tuple[str, pa.DataType]] = [
    ("event_time", MS),
    ("carrier", pa.string()),
    ("delay", pa.int64()),
    ("ratio", pa.float64()),
    ("fare", pa.decimal128(9, 2)),
]
WEATHER: list[tuple[str, pa.DataType]] = [("event_time", MS), ("carrier", pa.string()), ("wind", pa.int32())]


def flights(chance: random.Random, records: int) -> Stream:
    """Doubles are such that plain SQL adds them exactly, too."""

    def one() -> Row:
        return (
            at(chance.choice([chance.randrange(60), chance.randrange(6)])) if chance.random() < 0.95 else None,
            chance.choice(["UA", "AA", "B6", None]),
            chance.choice([chance.randrange(-3, 9), None]),
            chance.choice([0.5, 0.25, -1.75, -0.0, None]),
            chance.choice([Decimal("1.25"), Decimal("-300.10"), None]),
        )

    return Stream("flights", FLIGHTS, _records(chance, records, one))


def weather(chance: random.Random, records: int) -> Stream:
    """Measurements of the same times and carriers."""

    def one() -> Row:
        return (at(chance.randrange(60)), chance.choice(["UA", "AA", None]), chance.randrange(4))

    return Stream("weather", WEATHER, _records(chance, records, one))


def _records(chance: random.Random, records: int, one: Any) -> list[tuple[int, Row]]:
    there: Counter[Row] = Counter()
    found: list[tuple[int, Row]] = []
    while len(found) < records:
        now = list(there.elements())
        kind = chance.random()
        if not now or kind < 0.7:
            row = chance.choice(now) if now and kind < 0.1 else one()
            found.append((0, row))
            there[row] += 1
            continue
        gone = chance.choice(now)
        there[gone] -= 1
        if kind < 0.82:
            found.append((1, gone))
        else:
            row = one()
            found += [(2, gone), (3, row)]
            there[row] += 1
    return found


def random_cuts(chance: random.Random, streams: Sequence[Stream], runs: int) -> list[dict[str, int]]:
    """Each input is cut somewhere else; some runs have nothing of one, and halves of a correction stay together."""
    ends = {stream.name: sorted(chance.randrange(len(stream.records)) for _ in range(runs - 1)) for stream in streams}
    for stream in streams:
        ends[stream.name] = [end + (stream.records[end][0] == 3) for end in ends[stream.name]] + [len(stream.records)]
    return [{stream.name: ends[stream.name][number] for stream in streams} for number in range(runs)]
