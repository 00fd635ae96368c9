"""Late records: what is late is decided by the blocks of the inputs, not by the runs in which they come."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid, TransformInvalid
from kubothek.odf.transform.late import _left_before
from tests.odf.transform.world import START, Row, Stream, added_up, at, plainly, run, sql, whole

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
SEEDS = range(50) if SOAK else range(2)
MS = pa.timestamp("ms", "UTC")
LATENESS = timedelta(hours=4)
HINT = "/*+ LATE({late}), LATENESS('4 hours'){emit} */"


def passing(name: str, seed: int, records: int = 60, column: str = "x") -> Stream:
    """Records in roughly the order of their times, some far behind; watermarks follow."""
    chance = random.Random(f"{name} {seed}")
    stream = Stream(name, [("event_time", MS), ("k", pa.string()), (column, pa.int64())])
    there: list[Row] = []
    newest = START
    while len(stream.records) < records:
        now = len(stream.records)
        row = (at(max(0, now // 2 + chance.choice([0, -1, -2, -3, -9, -20]))), chance.choice("ab"), chance.randrange(9))
        if there and chance.random() < 0.2:
            gone = there.pop(chance.randrange(len(there)))
            corrected = chance.random() < 0.5
            stream.records += [(2, gone), (3, row)] if corrected else [(1, gone)]
            there += [row] if corrected else []
        else:
            stream.records.append((0, row))
            there.append(row)
        newest = max(newest, row[0])
        if chance.random() < 0.3:
            stream.watermarks.append((len(stream.records), newest - timedelta(hours=chance.randrange(2))))
    stream.watermarks.append((len(stream.records) + 1, newest))
    stream.records.append((0, (newest, "a", 0)))
    highest = START
    for number, (position, mark) in enumerate(stream.watermarks):
        highest = max(highest, mark)
        stream.watermarks[number] = (position, highest)
    return stream


def horizons(streams: Sequence[Stream]) -> list[list[datetime | None]]:
    """For each record what is late: by the marks of all streams before the system time of its block."""
    found = []
    for stream in streams:
        own: list[datetime | None] = []
        for number in range(len(stream.records)):
            block = next(position for position, _ in stream.watermarks if position > number)
            own.append(horizon(streams, block - 1))
        found.append(own)
    return found


def horizon(streams: Sequence[Stream], until: int) -> datetime | None:
    marks = [[mark for position, mark in each.watermarks if position <= until] for each in streams]
    return min(max(each) for each in marks) - LATENESS if all(marks) else None


def parted(streams: Sequence[Stream], end: Callable[[datetime], datetime]) -> tuple[list[Stream], list[Stream]]:
    """The streams without what is late, and what is late."""
    in_time, late = [], []
    for stream, own in zip(streams, horizons(streams), strict=True):
        is_late = [
            limit is not None and end(row[0]) <= limit for (_, row), limit in zip(stream.records, own, strict=True)
        ]
        records = list(zip(stream.records, is_late, strict=True))
        in_time.append(replace(stream, records=[record for record, behind in records if not behind]))
        late.append(replace(stream, records=[record for record, behind in records if behind]))
    return in_time, late


def cuttings(streams: Sequence[Stream], seed: int) -> list[list[dict[str, int]]]:
    """Everything at once, and by blocks in the order of their system times."""
    chance = random.Random(seed)
    positions = sorted({position for each in streams for position, _ in each.watermarks})
    chosen = sorted(chance.sample(positions[:-1], min(6, len(positions) - 1)))
    ends = [*chosen, positions[-1]]
    cuts = [
        {
            each.name: max((position for position, _ in each.watermarks if position <= end), default=0)
            for each in streams
        }
        for end in ends
    ]
    return [whole(streams), cuts]


def day(moment: datetime) -> datetime:
    return START + ((moment - START) // timedelta(hours=6) + 1) * timedelta(hours=6)


WINDOWED = (
    "SELECT {hint} window.start AS event_time, k, count(*) AS n, sum(x) AS s, max(x) AS m FROM f "
    "GROUP BY window(event_time, '6 hours'), k"
)
PLAIN = (
    "SELECT time_bucket(INTERVAL '6 hours', event_time, TIMESTAMP '2026-01-01') AS event_time, k, count(*) AS n, "
    "sum(x) AS s, max(x) AS m FROM f GROUP BY ALL"
)


@pytest.mark.parametrize("seed", SEEDS)
def test_late_records_with_ignore_hint_are_dropped(seed: int) -> None:
    streams = [passing("f", seed)]
    in_time, late = parted(streams, day)
    assert SOAK or late[0].records, "the stream has late records"
    query = WINDOWED.format(hint=HINT.format(late="IGNORE", emit=""))
    for cuts in cuttings(streams, seed):
        assert added_up(run(sql(query), streams, cuts, threads=1)) == plainly(PLAIN, in_time)


@pytest.mark.parametrize("seed", SEEDS if SOAK else SEEDS[:1])
def test_late_records_with_side_hint_are_emitted_separately(seed: int) -> None:
    streams = [passing("f", seed)]
    _, late = parted(streams, day)
    query = WINDOWED.format(hint=HINT.format(late="SIDE", emit=""))
    wanted = {(op in (0, 3), *row) for op, row in late[0].records}
    for cuts in cuttings(streams, 3):
        found = pa.concat_tables(run(sql(query), streams, cuts, threads=1)).to_pylist()
        assert {(row.pop("op") in (0, 3), *row.values()) for row in found} == wanted
        assert len(found) == len(late[0].records)


@pytest.mark.parametrize("seed", SEEDS if SOAK else SEEDS[1:])
def test_final_window_results_are_emitted_once(seed: int) -> None:
    streams = [passing("f", seed)]
    in_time, _ = parted(streams, day)
    last = horizon(streams, streams[0].watermarks[-1][0])
    assert last is not None
    wanted = {row: count for row, count in plainly(PLAIN, in_time).items() if day(row[0]) <= last}
    query = WINDOWED.format(hint=HINT.format(late="IGNORE", emit=", EMIT(FINAL)"))
    for cuts in cuttings(streams, 4):
        outputs = run(sql(query), streams, cuts, threads=1)
        assert {op for output in outputs for op in output.column("op").to_pylist()} == {0}
        assert dict(added_up(outputs)) == wanted


OTHERS: dict[str, tuple[str, str, Any]] = {
    "newest of a day": (
        "SELECT {hint} * FROM f QUALIFY row_number() OVER (PARTITION BY time_bucket(INTERVAL '6 hours', event_time, "
        "TIMESTAMP '2026-01-01'), k ORDER BY event_time DESC, x DESC) = 1",
        "SELECT * FROM f QUALIFY row_number() OVER (PARTITION BY time_bucket(INTERVAL '6 hours', event_time, "
        "TIMESTAMP '2026-01-01'), k ORDER BY event_time DESC, x DESC) = 1",
        day,
    ),
    "sessions": (
        "SELECT {hint} session_window(event_time, '2 hours').start AS event_time, k, count(*) AS n FROM f "
        "GROUP BY session_window(event_time, '2 hours'), k",
        "SELECT min(event_time) AS event_time, k, count(*) AS n FROM (SELECT *, sum(new) OVER (PARTITION BY k "
        "ORDER BY event_time, id) AS s FROM (SELECT *, coalesce(event_time - lag(event_time) OVER (PARTITION BY k "
        "ORDER BY event_time, id) >= INTERVAL 2 HOUR, true)::INT AS new FROM (SELECT *, row_number() OVER () AS id "
        "FROM f))) GROUP BY k, s",
        lambda moment: moment,
    ),
    "join": (
        "SELECT {hint} f.event_time, f.k, x, y, g.event_time AS other FROM f LEFT JOIN g ON f.k = g.k "
        "AND f.event_time BETWEEN g.event_time - INTERVAL '2 hours' AND g.event_time + INTERVAL '1 hour'",
        "SELECT f.event_time, f.k, x, y, g.event_time AS other FROM f LEFT JOIN g ON f.k = g.k "
        "AND f.event_time BETWEEN g.event_time - INTERVAL '2 hours' AND g.event_time + INTERVAL '1 hour'",
        lambda moment: moment,
    ),
    "temporal": (
        "SELECT {hint} f.event_time, f.k, x, y FROM f LEFT JOIN g FOR SYSTEM_TIME AS OF f.event_time ON f.k = g.k",
        "SELECT f.event_time, f.k, x, y FROM f ASOF LEFT JOIN (SELECT * FROM g QUALIFY row_number() OVER "
        "(PARTITION BY k, event_time ORDER BY y DESC) = 1) g ON f.k = g.k AND f.event_time >= g.event_time",
        lambda moment: moment,
    ),
}


@pytest.mark.parametrize("seed", SEEDS if SOAK else [5])
@pytest.mark.parametrize("kind", OTHERS)
def test_late_records_of_other_query_kinds_are_ignored(kind: str, seed: int) -> None:
    query, plain, end = OTHERS[kind]
    streams = [passing("f", seed)] + ([passing("g", seed + 1, 40, "y")] if " g " in query else [])
    in_time, late = parted(streams, end)
    assert SOAK or all(each.records for each in late), "each stream has late records"
    transform = sql(query.format(hint=HINT.format(late="IGNORE", emit="")))
    for cuts in cuttings(streams, 7):
        assert added_up(run(transform, streams, cuts, threads=1)) == plainly(plain, in_time)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT /*+ LATE(IGNORE), LATENESS('1 day') */ * FROM f", "treats each record alone"),
        ("SELECT /*+ LATE(IGNORE), LATENESS('1 day') */ max(event_time) AS event_time FROM f GROUP BY k", "no key is"),
        ("SELECT /*+ LATENESS('1 day') */ * FROM f", "cannot be corrected"),
        ("SELECT /*+ LATE(IGNORE) */ * FROM f", "without LATENESS"),
        ("SELECT /*+ LATENESS('1 month') */ * FROM f", "no length of time"),
        ("SELECT * /*+ LATE(IGNORE) */ FROM f", "right after the last SELECT"),
        ("SELECT /*+ BROADCAST(f) */ * FROM f", "there is no hint BROADCAST"),
        ("SELECT /*+ LATE(MAYBE) */ * FROM f", "MAYBE"),
        ("SELECT /*+ LATE(SIDE), LATENESS('1 day'), EMIT(FINAL) */ * FROM f", "leave it out"),
    ],
)
def test_invalid_lateness_hints_are_refused(query: str, message: str) -> None:
    with pytest.raises(TransformInvalid, match=message):
        run(sql(query), [passing("f", 0)], [{"f": 0}])


@pytest.mark.parametrize(
    "inputs", [[], {"x": []}, {"x": {"marks": 7}}, {"x": {"marks": [[1]]}}, {"x": {"seen": "now"}}, {"x": {"seen": {}}}]
)
def test_checkpoint_with_invalid_watermarks_raises_format_invalid(inputs: object) -> None:
    with pytest.raises(FormatInvalid, match="the checkpoint cannot be read"):
        _left_before({"inputs": inputs}, "x")
