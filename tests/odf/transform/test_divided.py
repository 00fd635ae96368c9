"""A run that is divided gives the bytes that one process gives: the same records, in the same batches, and the same
state; whatever the parts are, and whatever comes late, twice, is taken back or corrected.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from kubothek.errors import StoreUnavailable
from kubothek.odf.distributed.transform import Crew, Division, execute_divided, plan_of
from kubothek.odf.transform import TransformRequest, TransformResult, checkpoint, execute
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import Spread, spread_here
from tests.odf.transform.streams import FLIGHTS, WEATHER, flights, random_cuts, weather
from tests.odf.transform.test_kinds import KINDS
from tests.odf.transform.world import Stream, at, run, sql, whole

pytestmark = pytest.mark.slow

T = TypeVar("T")
R = TypeVar("R")

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
CLOSING = "LATE(IGNORE), LATENESS('3 hours')"
SESSIONS = (
    "SELECT /*+ {} */ session_window(event_time, '3 hours').start AS event_time, carrier, count(*) AS n, "
    "max(delay) AS m FROM flights GROUP BY session_window(event_time, '3 hours'), carrier"
)
WINDOWS = (
    "SELECT /*+ {} */ window.start AS event_time, carrier, sum(ratio) AS s, max(delay) AS m FROM flights "
    "GROUP BY window(event_time, '6 hours'), carrier"
)
INTERVAL = (
    "SELECT /*+ {} */ f.event_time, f.carrier, delay, wind FROM flights f LEFT JOIN weather w ON {} "
    "f.event_time BETWEEN w.event_time + INTERVAL '{} hours' AND w.event_time + INTERVAL '{} hours'"
)
VERSIONS = (
    "SELECT /*+ {} */ f.event_time, f.carrier, delay, wind FROM flights f "
    "JOIN weather FOR SYSTEM_TIME AS OF f.event_time AS w ON f.carrier = w.carrier"
)
MORE = {
    "closing": WINDOWS.format(CLOSING),
    "final": WINDOWS.format(f"{CLOSING}, EMIT(FINAL)"),
    "closing sessions": SESSIONS.format(CLOSING),
    "final sessions": SESSIONS.format(f"{CLOSING}, EMIT(FINAL)"),
    "closing join": INTERVAL.format(CLOSING, "f.carrier = w.carrier AND", -2, 1),
    "closing versions": VERSIONS.format(CLOSING),
    "keyless join": INTERVAL.format("", "", -2, 1),
    "far join": INTERVAL.format("", "f.carrier = w.carrier AND", 10, 13),
    "beside": (
        "SELECT event_time, carrier, delay FROM flights UNION ALL "
        "SELECT max(event_time), carrier, sum(delay)::BIGINT FROM flights GROUP BY carrier"
    ),
}


@dataclass(frozen=True)
class Given:
    """Reads what the test has in its hands."""

    streams: tuple[Stream, ...]

    def __call__(self, store: Store, number: int, first: int, last: int) -> pa.RecordBatchReader:
        return self.streams[number].table(first, last + 1).to_reader(max_chunksize=7)


@dataclass
class Divided:
    """Runs what can be divided."""

    store: Store
    streams: list[Stream]
    records: int
    spread: Spread

    def __call__(self, request: TransformRequest, **_: Any) -> TransformResult:
        plan = plan_of(request)
        assert plan.division is not None
        ends = {each.query_alias: each.blocks[-1][2] + 1 for each in request.inputs if each.blocks}
        shown = tuple(Stream(each.name, each.columns, each.records[: ends.get(each.name, 0)]) for each in self.streams)
        crew = Crew(spread=self.spread, store=self.store, directory="parts/", records=self.records)
        return execute_divided(request, plan, Given(shown), crew)


def streams_of(chance: random.Random, query: str, records: int) -> list[Stream]:
    found = [flights(chance, records)] + ([weather(chance, records // 2)] if "weather" in query else [])
    for each in found:
        marks = sorted(chance.sample(range(1, len(each.records)), 4))
        each.watermarks = [
            (end + (each.records[end][0] == 3), at(8.0 * number)) for number, end in enumerate(marks) if "LATE" in query
        ]
    return found


ALL: dict[str, str | tuple[str, str]] = {**KINDS, **MORE}
FEW = {
    "flatten": 8,
    "newest": 1000,
    "two groupings": 40,
    "closing sessions": 15,
    "numbered join": 20,
    "chained": 30,
}
"""What the suite tries always, with records of a part: of both runs together one part, three, or seven."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(30)] if SOAK else [1])
@pytest.mark.parametrize("kind", ALL if SOAK else FEW)
def test_divided_run_matches_bytes_of_single_process(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 3)
    chance = random.Random(f"{kind} {seed}")
    query = query_of(kind)
    streams = streams_of(chance, query, 120 if SOAK else 60)
    cuts = random_cuts(chance, streams, 3 if SOAK else 2)
    alone: list[bytes] = []
    wanted = run(sql(query), streams, cuts, checkpoints=alone)
    assert sum(table.num_rows for table in wanted)
    store = open_store(StoreConfig(tmp_path.as_uri()))
    for records in (1000, *chance.sample(range(5, 90), 2)) if SOAK else (FEW[kind],):
        left: list[bytes] = []
        found = run(
            sql(query), streams, cuts, checkpoints=left, by=Divided(store, streams, records, spread_here(store, 1))
        )
        for here, there in zip(wanted, found, strict=True):
            assert there.equals(here)
            assert [batch.num_rows for batch in there.to_batches()] == [batch.num_rows for batch in here.to_batches()]
            assert there.schema.equals(here.schema, check_metadata=True)
        assert left == alone
        assert not [*store.list("")]


def test_divided_join_finds_partners_in_ranges_of_other_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records into a large state of a join, by times and carriers: partners are in the ranges of others."""
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 3)
    chance = random.Random(1)
    query = INTERVAL.format("", "f.carrier = w.carrier AND", -2, 2)
    seen = [(at(chance.randrange(24)), chance.choice("ABCDEFGHIJKLMNO"), chance.randrange(9)) for _ in range(260)]
    streams = [
        Stream("flights", FLIGHTS, [(0, (*values, None, None)) for values in seen[:130]]),
        Stream("weather", WEATHER, [(0, values) for values in seen[130:]]),
    ]
    cuts = [{"flights": 120, "weather": 120}, *whole(streams)]
    store = open_store(StoreConfig(tmp_path.as_uri()))
    divided = Divided(store, streams, 3, spread_here(store, 1))
    alone: list[bytes] = []
    left: list[bytes] = []
    wanted = run(sql(query), streams, cuts, checkpoints=alone)
    found = run(
        sql(query),
        streams,
        cuts,
        checkpoints=left,
        by=lambda request, **_: (execute if request.checkpoint is None else divided)(request),
    )
    assert found == wanted
    assert left == alone


def query_of(kind: str) -> str:
    both = ALL[kind]
    return both if isinstance(both, str) else both[0]


ROWS = "SELECT event_time, delay FROM flights UNION ALL SELECT event_time, -delay FROM flights"
WHOLE = [
    "SELECT max(event_time) AS event_time, count(*) AS n FROM flights",
    "SELECT * FROM flights QUALIFY row_number() OVER (ORDER BY event_time, carrier) = 1",
    "SELECT session_window(event_time, '3 hours').start AS event_time, count(*) AS n FROM flights "
    "GROUP BY session_window(event_time, '3 hours')",
    "WITH days AS (SELECT date_trunc('day', event_time) AS event_time, count(*) AS n FROM flights GROUP BY ALL) "
    "SELECT max(event_time) AS event_time, max(n) AS n FROM days",
    WINDOWS.format("LATE(SIDE), LATENESS('3 hours')"),
]
"""What nothing divides."""


def test_division_of_run_is_derived_from_query() -> None:
    """Of all others, the bytes are compared."""
    kinds = [(Division.KEYS, query_of(kind)) for kind in ("interval join", "keyless join", "temporal join", "beside")]
    asked = [(Division.RECORDS, ROWS), *kinds, *((None, query) for query in WHOLE)]
    found = [(plan_of(request_of(query)).division, query) for _, query in asked]
    assert found == asked


def request_of(query: str) -> TransformRequest:
    """Of a run without records, which none is run of."""
    asked: list[TransformRequest] = []

    def noted(request: TransformRequest, **_: Any) -> TransformResult:
        asked.append(request)
        rows = pa.RecordBatchReader.from_batches(pa.schema([]), ())
        return TransformResult(rows=rows, watermark=None, checkpoint=False)

    streams = [flights(random.Random(1), 5)] + ([weather(random.Random(1), 5)] if "weather" in query else [])
    run(sql(query), streams, whole(streams), by=noted)
    return asked[0]


def test_divided_run_with_repeated_or_failed_part_keeps_result(tmp_path: Path) -> None:
    """Each part once more, as Spark does when a worker is lost; then one that fails for good, which leaves nothing."""
    query, store = query_of("sessions"), open_store(StoreConfig(tmp_path.as_uri()))
    streams = [flights(random.Random(3), 30)]
    alone: list[bytes] = []
    wanted = run(sql(query), streams, whole(streams), checkpoints=alone)

    def twice(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        for item in items:
            work(store, item)
        return [work(store, item) for item in items]

    left: list[bytes] = []
    assert run(sql(query), streams, whole(streams), checkpoints=left, by=Divided(store, streams, 20, twice)) == wanted
    assert left == alone
    asked: list[str] = []

    def failing(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        asked.append(title)
        done = [work(store, item) for item in items]
        if len(asked) == 2:
            raise StoreUnavailable("the last executor is gone")
        return done

    with pytest.raises(StoreUnavailable):
        run(sql(query), streams, whole(streams), by=Divided(store, streams, 20, failing))
    assert len(asked) == 2
    assert not [*store.list("")]
