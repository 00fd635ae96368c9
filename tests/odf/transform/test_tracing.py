"""Of which records a row was made: these, and no others, give it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kubothek.odf.lineage.trace import Asked, Readable, origins
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.validation.retractions import record_keys
from tests.odf.transform.streams import FLIGHTS, WEATHER, flights, weather
from tests.odf.transform.test_kinds import KINDS, queries
from tests.odf.transform.world import NAMES, Row, Stream, added_up, at, given, run, sql, whole
from tests.sampling import SOAK

pytestmark = pytest.mark.slow

MORE = {
    "steps": (
        ("windy", "SELECT f.event_time, f.carrier, delay, wind FROM flights f JOIN weather w ON f.carrier = w.carrier"),
        ("days", "SELECT date_trunc('day', event_time) AS event_time, carrier, max(wind) AS w FROM windy GROUP BY ALL"),
        "SELECT * FROM days QUALIFY row_number() OVER (PARTITION BY carrier ORDER BY event_time DESC) <= 2",
    ),
    "neighbours": (
        "SELECT event_time, carrier, delay, lag(delay, 2) OVER p AS l, lead(delay) OVER p AS n, "
        "sum(delay) OVER (PARTITION BY carrier ORDER BY event_time ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s "
        "FROM flights WINDOW p AS (PARTITION BY carrier ORDER BY event_time)",
    ),
    "union": ("SELECT event_time, carrier FROM flights UNION SELECT event_time, carrier FROM weather",),
    "whole": ("SELECT max(event_time) AS event_time, count(*) AS n, sum(ratio) AS r FROM flights",),
    "top": (
        "SELECT event_time, carrier, delay FROM (SELECT *, rank() OVER (PARTITION BY carrier ORDER BY delay DESC) AS r "
        "FROM flights WHERE delay IS NOT NULL) WHERE r <= 3",
    ),
}
SHARED = {"map", "filter", "flatten", "interval join", "left join", "temporal join", "newest", "top"}
"""Kinds where each record that is named, and has no twin, has to be there for the row. Of a temporal join it is the
left one: an older version may say the same.
"""


def traced(
    transform: TransformSql,
    streams: Sequence[Stream],
    rows: pa.Table,
    row: int,
    read: dict[str, dict[str, object]] | None = None,
) -> list[list[int]]:
    """The numbers of the records, of each stream, that a row of an answer is made of; ``read`` gets the ranges of what
    was looked at.
    """
    (batch,) = rows.combine_chunks().to_batches()
    keys = record_keys(batch, batch.schema, NAMES)
    earlier = pc.sum(pc.equal(keys[:row], keys[row])).as_py() or 0
    asked = Asked(
        rows=batch.slice(row, 1),
        first=[earlier],
        count=[1],
        place=lambda made: pc.index_in(record_keys(made, batch.schema, NAMES), keys[row : row + 1]),
    )

    def reader(stream: Stream, where: pc.Expression | None) -> pa.RecordBatchReader:
        table = stream.table(0, len(stream.records))
        if read is not None:
            read[stream.name] = ranges(where)
        return (table if where is None else table.filter(where)).to_reader()

    inputs = [Readable(about, partial(reader, stream)) for about, stream in zip(given(streams), streams, strict=True)]
    return [found.tolist() for found in origins(transform, inputs, asked, NAMES, Path("/nonexistent"))]


def standing(stream: Stream) -> Stream:
    """The same with what stands alone, each an addition."""
    return replace(stream, records=[(0, values) for values in stream.standing()])


def of(stream: Stream, numbers: Sequence[int]) -> Stream:
    return replace(stream, records=[stream.records[number] for number in numbers])


def answer(transform: TransformSql, streams: Sequence[Stream]) -> Counter[Row]:
    return added_up(run(transform, streams, whole(streams), threads=1))


@pytest.mark.requirement("PV-01")
@pytest.mark.parametrize("seed", range(20) if SOAK else (1,))
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_row_lineage_names_exactly_contributing_records(kind: str, seed: int) -> None:
    """Without all others it is still there; without one of them there is one less, where it has to be."""
    chance = random.Random(f"{kind} {seed}")
    steps = MORE.get(kind) or (queries(kind)[0],)
    text = str(steps)
    made = [make(chance, 24) for name, make in (("flights", flights), ("weather", weather)) if name in text]
    streams = [standing(stream) for stream in made]
    transform = sql(*steps)
    (output,) = run(transform, streams, whole(streams), threads=1)
    rows, there = output.drop_columns(["op"]), answer(transform, streams)
    for number in chance.sample(range(rows.num_rows), min(rows.num_rows, 40 if SOAK else 2)):
        (row,) = added_up([output.slice(number, 1)])
        named = traced(transform, streams, rows, number)
        alone = [of(stream, numbers) for stream, numbers in zip(streams, named, strict=True)]
        assert answer(transform, alone)[row] >= 1, (kind, row, named)
        needed = named[:1] if kind == "temporal join" else named
        for position, numbers in enumerate(needed if kind in SHARED else []):
            records = streams[position].records
            alone_of_its_kind = [n for n in numbers if records.count(records[n]) == 1]
            for gone in alone_of_its_kind if SOAK else alone_of_its_kind[:1]:
                less = [*streams]
                less[position] = of(streams[position], [n for n in range(len(records)) if n != gone])
                assert answer(transform, less)[row] < there[row], (kind, row, named, gone)


SIX, NOON = "2026-01-01 06:00:00.000Z", "2026-01-01 12:00:00.000Z"


@pytest.mark.parametrize(
    ("steps", "flights_read", "weather_read"),
    [
        ((KINDS["tumbling"][0],), {"event_time": (SIX, NOON), "carrier": "UA"}, {}),
        (("SELECT event_time, delay AS d FROM flights WHERE delay > 2",), {"event_time": SIX, "delay": "7"}, {}),
        (
            (
                (
                    "days",
                    "SELECT date_trunc('day', event_time) AS t, carrier, max(delay) AS d FROM flights GROUP BY ALL",
                ),
                "SELECT t AS event_time, carrier, row_number() OVER (PARTITION BY carrier ORDER BY t) AS r FROM days",
            ),
            {"carrier": "UA"},
            {},
        ),
        (
            ("SELECT f.event_time, w.carrier, delay AS d, wind FROM flights f JOIN weather w USING (carrier)",),
            {"event_time": SIX, "carrier": "UA", "delay": "7"},
            {"carrier": "UA", "wind": "3"},
        ),
        ((KINDS["temporal join"][0],), {"event_time": SIX, "carrier": "UA", "delay": "7"}, {"carrier": "UA"}),
        (("SELECT max(event_time) AS event_time, min(carrier) AS carrier FROM flights",), {}, {}),
        (
            ("SELECT event_time, delay AS d FROM flights UNION ALL SELECT event_time, delay + 1 FROM flights",),
            {"event_time": SIX},
            {},
        ),
    ],
)
def test_row_lineage_reads_only_rows_that_can_contribute(
    steps: Sequence[str | tuple[str, str]], flights_read: dict[str, object], weather_read: dict[str, object]
) -> None:
    """By what a row shows: 6 o'clock, UA, a delay of 7, a wind of 3."""
    streams = [Stream("flights", FLIGHTS, [(0, (at(6), "UA", 7, 0.5, None))])]
    if "weather" in str(steps):
        streams.append(Stream("weather", WEATHER, [(0, (at(5), "UA", 3))]))
    transform, read = sql(*steps), dict[str, dict[str, object]]()
    (output,) = run(transform, streams, whole(streams), threads=1)
    traced(transform, streams, output.drop_columns(["op"]), 0, read)
    assert read == {"flights": flights_read} | ({"weather": weather_read} if len(streams) > 1 else {})


@pytest.mark.parametrize("stretch", ["date_trunc('day', event_time)", "window.start", "window.end"])
def test_row_lineage_on_last_representable_day_finds_records(stretch: str) -> None:
    """For many it means "without an end"; the end of that stretch is no moment that Python has."""
    last = datetime(9999, 12, 31, 8, tzinfo=UTC)
    streams = [Stream("flights", FLIGHTS, [(0, (at(6), "UA", 7, 0.5, None)), (0, (last, "UA", 7, 0.5, None))])]
    key = "window(event_time, '1 day')" if "window" in stretch else stretch
    transform = sql(f"SELECT {stretch} AS event_time, count(*) AS n FROM flights GROUP BY {key}")
    (output,) = run(transform, streams, whole(streams), threads=1)
    assert traced(transform, streams, output.drop_columns(["op"]), 1) == [[1]]


def ranges(where: pc.Expression | None) -> dict[str, object]:
    """From the least to the greatest value of each column that a condition is about; one if they are the same."""
    ends: dict[str, list[str]] = {}
    for column, value in re.findall(r"\((\w+) [<>]= ([^()]+)\)", str(where)):
        ends.setdefault(column, []).append(value.strip('"'))
    return {column: least if least == most else (least, most) for column, (least, most) in ends.items()}
