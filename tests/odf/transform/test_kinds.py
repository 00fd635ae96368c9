"""However its inputs are cut, the state of each kind of derivative is what plain SQL makes of the states of these."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from kubothek.odf.transform import checkpoint
from tests.odf.transform.streams import FLIGHTS, flights, random_cuts, weather
from tests.odf.transform.world import Stream, added_up, at, batches, plainly, run, sql, whole

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
_VERSIONS = (
    "(SELECT * FROM weather QUALIFY row_number() OVER (PARTITION BY carrier, event_time ORDER BY wind DESC) = 1)"
)

KINDS: dict[str, str | tuple[str, str]] = {
    "map": "SELECT event_time, upper(carrier) AS carrier, delay % 3 AS delay FROM flights",
    "filter": "SELECT * FROM flights WHERE delay > 2 AND ratio IS NOT NULL",
    "flatten": "SELECT event_time, unnest([delay, 0, delay]) AS delay FROM flights WHERE delay > 2",
    "sums": (
        "SELECT max(event_time) AS event_time, carrier, count(*) AS n, count(delay) AS c, sum(delay) AS s, "
        "avg(delay) AS a, sum(ratio) AS r, avg(ratio) AS ar, sum(fare) AS f, count(*) FILTER (delay > 2) AS late, "
        "bool_and(delay > 0) AS every, bool_or(delay > 5) AS some, round(var_pop(delay), 6) AS v "
        "FROM flights GROUP BY carrier"
    ),
    "values": (
        "SELECT min(event_time) AS event_time, carrier, min(ratio) AS least, max(fare) AS most, "
        "count(DISTINCT delay) AS d, median(delay) AS m, quantile_disc(delay, 0.9) AS q, "
        "list(delay ORDER BY delay) AS l, string_agg(carrier, '+' ORDER BY carrier) AS t, sum(DISTINCT delay) AS sd, "
        "arg_max(fare, delay) AS am FROM flights GROUP BY ALL HAVING count(*) > 1",
        "SELECT min(event_time) AS event_time, carrier, min(ratio) AS least, max(fare) AS most, "
        "count(DISTINCT delay) AS d, median(delay) AS m, quantile_disc(delay, 0.9) AS q, "
        "list(delay ORDER BY delay) AS l, string_agg(carrier, '+' ORDER BY carrier) AS t, sum(DISTINCT delay) AS sd, "
        "(max({'y': delay, 'x': fare}) FILTER (delay IS NOT NULL AND fare IS NOT NULL)).x AS am "
        "FROM flights GROUP BY carrier HAVING count(*) > 1",
    ),
    "tumbling": (
        "SELECT window.start AS event_time, carrier, sum(delay) AS s FROM flights "
        "GROUP BY window(event_time, '6 hours'), carrier",
        "SELECT time_bucket(INTERVAL '6 hours', event_time, TIMESTAMP '2026-01-01') AS event_time, carrier, "
        "sum(delay) AS s FROM flights WHERE event_time IS NOT NULL GROUP BY ALL",
    ),
    "hopping": (
        "SELECT HOP_END(event_time, INTERVAL '4' HOUR, INTERVAL '12' HOUR) AS event_time, count(*) AS n FROM flights "
        "GROUP BY HOP(event_time, INTERVAL '4' HOUR, INTERVAL '12' HOUR)",
        "SELECT make_timestamp((w * 4 * 3600 * 1000000)::BIGINT) AS event_time, count(*) AS n FROM "
        "(SELECT unnest(range(epoch(event_time)::BIGINT // 14400 + 1, epoch(event_time)::BIGINT // 14400 + 4)) "
        "AS w "
        "FROM flights) GROUP BY w",
    ),
    "sessions": (
        "SELECT session_window(event_time, '3 hours').start AS event_time, carrier, count(*) AS n, max(delay) AS m "
        "FROM flights GROUP BY session_window(event_time, '3 hours'), carrier",
        "SELECT min(event_time) AS event_time, carrier, count(*) AS n, max(delay) AS m FROM (SELECT *, sum(new) OVER "
        "(PARTITION BY carrier ORDER BY event_time, id) AS s FROM (SELECT *, coalesce(event_time - lag(event_time) "
        "OVER (PARTITION BY carrier ORDER BY event_time, id) >= INTERVAL 3 HOUR, true)::INT AS new FROM "
        "(SELECT *, row_number() OVER () AS id FROM flights WHERE event_time IS NOT NULL))) GROUP BY carrier, s",
    ),
    "distinct": "SELECT DISTINCT event_time, carrier FROM flights",
    "newest": (
        "SELECT * FROM flights QUALIFY row_number() OVER (PARTITION BY carrier ORDER BY event_time DESC) = 1",
        "SELECT * FROM flights QUALIFY row_number() OVER (PARTITION BY carrier ORDER BY event_time DESC, "
        "carrier NULLS FIRST, delay NULLS FIRST, ratio NULLS FIRST, fare NULLS FIRST) = 1",
    ),
    "ranks": (
        "SELECT event_time, carrier, delay, r FROM (SELECT *, rank() OVER (PARTITION BY carrier, "
        "date_trunc('day', event_time) ORDER BY delay DESC) AS r FROM flights WHERE delay > 0) WHERE r <= 2"
    ),
    "interval join": (
        "SELECT f.event_time, f.carrier, delay, wind, w.event_time AS seen FROM flights f JOIN weather w "
        "ON f.carrier = w.carrier AND f.event_time BETWEEN w.event_time - INTERVAL '2 hours' AND w.event_time "
        "WHERE wind > 0"
    ),
    "left join": (
        "SELECT f.event_time, f.carrier, delay, wind FROM flights f LEFT JOIN weather w ON f.carrier = w.carrier "
        "AND f.event_time >= w.event_time - INTERVAL '2 hours' AND f.event_time < w.event_time + INTERVAL '1 hour'"
    ),
    "key join": (
        "SELECT f.event_time, carrier, sum(wind) AS s FROM flights f LEFT JOIN weather w USING (carrier) "
        "WHERE delay > 2 GROUP BY ALL"
    ),
    "temporal join": (
        "SELECT f.event_time, f.carrier, delay, wind FROM flights f JOIN weather FOR SYSTEM_TIME AS OF f.event_time "
        "AS w ON f.carrier = w.carrier",
        f"SELECT f.event_time, f.carrier, delay, wind FROM flights f ASOF JOIN {_VERSIONS} w "
        "ON f.carrier = w.carrier AND f.event_time >= w.event_time",
    ),
    "numbered join": (
        "SELECT f.event_time, f.carrier, delay, wind FROM flights f JOIN weather FOR SYSTEM_TIME AS OF f.event_time "
        "AS w ON f.delay % 4 = w.wind",
        "SELECT f.event_time, f.carrier, delay, wind FROM flights f ASOF JOIN (SELECT * FROM weather QUALIFY "
        "row_number() OVER (PARTITION BY wind, event_time ORDER BY carrier DESC NULLS LAST) = 1) w "
        "ON f.delay % 4 = w.wind AND f.event_time >= w.event_time",
    ),
    "two groupings": (
        "SELECT max(event_time) AS event_time, carrier, sum(ratio) AS s FROM flights GROUP BY carrier UNION ALL "
        "SELECT max(event_time), number::VARCHAR, sum(ratio) FROM "
        "(SELECT event_time, delay::INTEGER AS number, ratio FROM flights) GROUP BY number"
    ),
    "chained": (
        "WITH days AS (SELECT date_trunc('day', event_time) AS event_time, carrier, count(*) AS n FROM flights "
        "GROUP BY ALL), all_days AS (SELECT event_time, n FROM days UNION ALL SELECT event_time, wind FROM weather) "
        "SELECT max(event_time) AS event_time, n, count(*) AS days FROM all_days GROUP BY n"
    ),
}


def _streams(chance: random.Random, records: int, query: str) -> list[Stream]:
    made: list[tuple[str, Callable[[random.Random, int], Stream]]] = [("flights", flights), ("weather", weather)]
    return [make(chance, records) for name, make in made if name in query]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that states have many, some of which change."""
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 3)


@pytest.mark.requirement("EN-08")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(50) if SOAK else (1,))
@pytest.mark.parametrize("kind", KINDS)
def test_transform_result_is_independent_of_input_batches(kind: str, seed: int) -> None:
    """In one batch, in batches of a few, and of seven."""
    chance = random.Random(f"{kind} {seed}")
    query, plain = queries(kind)
    records = 40 if SOAK else 16
    streams = _streams(chance, records, query)
    wanted = plainly(plain, streams)
    for cuts in (whole(streams), random_cuts(chance, streams, 3), batches(streams, 7)):
        assert added_up(run(sql(query), streams, cuts, threads=1)) == wanted


@pytest.mark.requirement("EN-08")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS if SOAK else ["tumbling"])
def test_transform_of_single_record_batches_matches_plain_sql(kind: str) -> None:
    """A thousand records in a thousand batches, in seven, and in one; few of one kind, unless there is time."""
    chance = random.Random() if SOAK else random.Random(1)
    query, plain = queries(kind)
    streams = _streams(chance, 1000 if SOAK else 8, query)
    wanted = plainly(plain, streams)
    for cuts in (
        (whole(streams), random_cuts(chance, streams, 7), batches(streams, 1)) if SOAK else (batches(streams, 1),)
    ):
        assert added_up(run(sql(query), streams, cuts, threads=1)) == wanted


def queries(kind: str) -> tuple[str, str]:
    """As it is kept up to date, and as plain SQL."""
    both = KINDS[kind]
    return both if isinstance(both, tuple) else (both, both)


def test_checkpoint_reader_unpacks_only_needed_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream("flights", FLIGHTS, [(0, (at(24 * n), "UA", n, 0.5, None)) for n in range(60)])
    stream.records.append((0, (at(24 * 30), "AA", 7, 0.25, None)))
    unpacked: list[int] = []
    segments = checkpoint.Reader.segments

    def watched(reader: checkpoint.Reader, table: str, numbers: list[int]) -> Any:
        unpacked.extend(numbers)
        return segments(reader, table, numbers)

    monkeypatch.setattr(checkpoint.Reader, "segments", watched)
    query = (
        "SELECT window.start AS event_time, carrier, sum(delay) AS s, max(ratio) AS m FROM flights "
        "GROUP BY carrier, window(event_time, '1 day')"
    )
    run(sql(query), [stream], [{"flights": 60}, {"flights": 61}], threads=1)
    assert len(unpacked) <= 4, "of two tables of twenty segments each"
