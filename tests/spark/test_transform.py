"""Derivatives whose runs Spark carries: one process makes every slice and every state again, to the same bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kubothek.odf.derived import inputs_of
from kubothek.odf.derived.dividing import DividedEngine
from kubothek.spark.sweep import spread_with_spark
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import Spread
from kubothek.table.log.model import keys
from tests.odf.derived.world import LATE, answer, derived, opened, push, root, runs, sound, table, transform
from tests.sparks import configured

pytestmark = pytest.mark.spark

T = TypeVar("T")
R = TypeVar("R")
START = datetime(2026, 11, 22, tzinfo=UTC)
SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
WINDOWED = (
    "SELECT date_trunc('hour', event_time) AS event_time, carrier, count(*) AS id, max(delay) AS delay FROM flights "
    "GROUP BY date_trunc('hour', event_time), carrier"
)
JOINED = (
    f"WITH hours AS ({WINDOWED}) SELECT f.event_time, h.id, f.carrier, f.delay FROM flights f JOIN hours h "
    "ON f.carrier = h.carrier AND f.event_time BETWEEN h.event_time AND h.event_time + INTERVAL '90 minutes'"
)
"""In two places rows come together, in the second from two sides."""
SETTINGS = {"spark.sql.shuffle.partitions": "1", "spark.sql.execution.arrow.maxRecordsPerBatch": "2"}
PARTS: dict[int, tuple[str, dict[str, str]]] = {
    1: (WINDOWED, {}),
    3: (JOINED, SETTINGS),
    5: (LATE, SETTINGS),
    7: (JOINED, {}),
}
FLIGHTS = 400 if SOAK else 60


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Flights; then some of them late, corrected, or gone."""
    store = open_store(StoreConfig(tmp_path_factory.mktemp("flown").as_uri()))
    root(store)
    first = {number: ("ABC"[number % 3], number * 7 % 40) for number in range(FLIGHTS)}
    second = {number: (carrier, delay + (number % 5 == 0)) for number, (carrier, delay) in first.items() if number % 11}
    for flights in (first, second):
        times = [START + timedelta(minutes=number * 3) for number in flights]
        push(store, flights, event_time=pa.array(times, pa.timestamp("ms", "UTC")))
    return store


def dies_once(mark: str, work: Callable[[Store, T], R], store: Store, item: T) -> R:
    """The first worker that has done its part is gone before it can say so."""
    done = work(store, item)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return done
    os._exit(1)


def dying(spread: Spread, mark: Path) -> Spread:
    def run(work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
        return spread(partial(dies_once, str(mark), work), items, title)

    return run


@pytest.mark.parametrize("parts", PARTS if SOAK else [3])
def test_spark_transform_is_reproduced_byte_for_byte_in_process(
    session: SparkSession, flown: Store, tmp_path: Path, parts: int
) -> None:
    spread = dying(spread_with_spark(session, flown.config), tmp_path / "died")
    query, conf = PARTS[parts]
    uuid = f"derived-{parts}"
    derived(flown, uuid, transform(query))
    engine = DividedEngine(uuid, lambda: spread, from_bytes=1, records=-(-FLIGHTS * 2 // parts))
    with configured(session, conf):
        opened(flown, uuid).pull(inputs_of(flown), engine=engine)
    assert engine.divided == 1
    assert not [*flown.list(keys.parts(uuid))]
    sound(flown, uuid)
    assert table(flown, uuid) == answer(flown, query)
    (event,) = runs(flown, uuid)
    assert (event.new_checkpoint is None) == (query is LATE)
    gone = [info.key for kind in ("data", "checkpoints") for info in flown.list(f"{keys.chain(uuid)}{kind}/")]
    assert len(gone) == (1 if query is LATE else 2)
    flown.delete(gone)
    opened(flown, uuid).restore(inputs_of(flown))
    assert [*map(flown.stat, gone)]
    assert (tmp_path / "died").exists()
