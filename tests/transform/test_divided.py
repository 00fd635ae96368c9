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

from kubothek.lake.errors import StoreUnavailable
from kubothek.lake.ledger.transform import TransformRequest, TransformResult, checkpoint, execute
from kubothek.lake.ledger.transform.divided import Crew, Division, execute_divided, plan_of
from kubothek.lake.store import Store, StoreConfig, open_store
from kubothek.lake.store.spread import Spread, spread_here
from tests.transform.streams import flights, random_cuts, weather
from tests.transform.test_kinds import KINDS
from tests.transform.world import Stream, at, run, sql, whole

T = TypeVar("T")
R = TypeVar("R")

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
MORE = {
    "closing": (
        "SELECT /*+ LATE(IGNORE), LATENESS('3 hours') */ window.start AS event_time, carrier, "
        "sum(ratio) AS s, max(delay) AS m FROM flights GROUP BY window(event_time, '6 hours'), carrier"
    ),
    "final": (
        "SELECT /*+ LATE(IGNORE), LATENESS('3 hours'), EMIT(FINAL) */ window.start AS event_time, carrier, "
        "count(*) AS n FROM flights GROUP BY window(event_time, '6 hours'), carrier"
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
    """Runs what can be divided so, all else in one process."""

    store: Store
    streams: list[Stream]
    records: int
    spread: Spread

    def __call__(self, request: TransformRequest, **_: Any) -> TransformResult:
        plan = plan_of(request)
        if plan.division is None:
            return execute(request)
        ends = {each.query_alias: each.blocks[-1][2] + 1 for each in request.inputs if each.blocks}
        shown = tuple(Stream(each.name, each.columns, each.records[: ends.get(each.name, 0)]) for each in self.streams)
        crew = Crew(spread=self.spread, store=self.store, directory="parts/", records=self.records)
        return execute_divided(request, plan, Given(shown), crew)


def streams_of(chance: random.Random, query: str, records: int) -> list[Stream]:
    found = [flights(chance, records)] + ([weather(chance, records // 4)] if "weather" in query else [])
    for each in found:
        marks = sorted(chance.sample(range(1, len(each.records)), 4))
        each.watermarks = [
            (end + (each.records[end][0] == 3), at(8.0 * number)) for number, end in enumerate(marks) if "LATE" in query
        ]
    return found


ALL: dict[str, str | tuple[str, str]] = {**KINDS, **MORE}
FEW = {"flatten": 17, "sums": 60, "values": 30, "newest": 60, "closing": 30, "final": 60}
"""What the suite tries always, with records of a part: three parts of two runs, and more."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(30)] if SOAK else [1])
@pytest.mark.parametrize("kind", ALL if SOAK else FEW)
def test_the_bytes_of_one_process(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 3)
    chance = random.Random(f"{kind} {seed}")
    query = query_of(kind)
    streams = streams_of(chance, query, 120)
    cuts = random_cuts(chance, streams, 2)
    alone: list[bytes] = []
    wanted = run(sql(query), streams, cuts, checkpoints=alone)
    store = open_store(StoreConfig(tmp_path.as_uri()))
    for records in (1000, *chance.sample(range(10, 90), 2)) if SOAK else (FEW[kind],):
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


def query_of(kind: str) -> str:
    both = ALL[kind]
    return both if isinstance(both, str) else both[0]


DIVIDED = {
    Division.RECORDS: ["map", "filter", "flatten"],
    Division.KEYS: ["sums", "values", "tumbling", "hopping", "distinct", "newest", "ranks", *MORE],
    None: ["sessions", "interval join", "left join", "key join", "temporal join", "chained"],
}
QUERIES = [(division, query_of(kind)) for division, kinds in DIVIDED.items() for kind in kinds]
QUERIES += [
    (Division.RECORDS, "SELECT event_time, delay FROM flights UNION ALL SELECT event_time, -delay FROM flights"),
    (None, "SELECT max(event_time) AS event_time, count(*) AS n FROM flights"),
    (None, "SELECT * FROM flights QUALIFY row_number() OVER (ORDER BY event_time, carrier) = 1"),
    (
        None,
        "SELECT event_time, carrier, delay FROM flights UNION ALL "
        "SELECT max(event_time), carrier, sum(delay)::BIGINT FROM flights GROUP BY carrier",
    ),
    (
        None,
        "SELECT /*+ LATE(SIDE), LATENESS('3 hours') */ window.start AS event_time, count(*) AS n FROM flights "
        "GROUP BY window(event_time, '6 hours')",
    ),
]


def test_what_is_divided_is_seen_from_the_query() -> None:
    assert {kind for kinds in DIVIDED.values() for kind in kinds} == {*ALL}
    found = [(query, plan_of(request_of(query)).division) for _, query in QUERIES]
    assert found == [(query, division) for division, query in QUERIES]


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


def test_a_part_that_is_done_twice_or_dies_changes_nothing(tmp_path: Path) -> None:
    """Each part once more, as Spark does when a worker is lost; then one that fails for good, which leaves nothing."""
    query, store = query_of("newest"), open_store(StoreConfig(tmp_path.as_uri()))
    streams = [flights(random.Random(3), 60)]
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
