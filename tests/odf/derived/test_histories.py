"""Any history of two inputs, looked at in any runs: the table is what plain SQL makes of the inputs as they are, and
what a table made anew from the chain shows, and every run comes out again (DAT-09, VE-02).

``KUBOTHEK_SOAK=1`` (``make soak``) tries hundreds, new ones each time; the suite tries the same few always.
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from kubothek.odf.dataset import Table
from kubothek.odf.derived import Limits
from kubothek.storage import Store
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog
from kubothek.verify import verify_dataset
from tests.odf.derived.world import APPEND, answer, derived, opened, pull, push, root, settle, sound, table, transform

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
START = datetime(2026, 11, 22, tzinfo=UTC)
QUERIES = {
    "equals": "SELECT event_time, carrier, delay % 2 AS delay FROM flights WHERE delay > 3",
    "carriers": "SELECT max(event_time) AS event_time, carrier, sum(delay) AS delay FROM flights GROUP BY carrier",
    "both": "SELECT event_time, carrier, delay FROM flights UNION ALL SELECT event_time, carrier, -delay FROM more",
    "joined": (
        "SELECT f.event_time, m.carrier, f.delay + m.delay AS delay FROM flights f JOIN more m ON f.carrier = m.carrier"
    ),
}
COLUMNS = ("event_time", "carrier", "delay")


def some(rng: random.Random, most: int) -> tuple[dict[int, tuple[str, int]], pa.Array[Any]]:
    """Flights of few keys, carriers, delays and times, so that much is equal, corrected and taken back."""
    flights = {key: (rng.choice("ABC"), rng.randrange(8)) for key in rng.sample(range(8), rng.randrange(most + 1))}
    times = [START + timedelta(hours=rng.randrange(3)) for _ in flights]
    return flights, pa.array(times, pa.timestamp("ms", "UTC"))


@pytest.mark.requirement("DAT-09")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [random.randrange(1 << 32) for _ in range(100)] if SOAK else [1, 4])
@pytest.mark.parametrize("name", QUERIES)
def test_derivative_after_random_history_and_runs_matches_plain_sql(store: Store, name: str, seed: int) -> None:
    rng = random.Random(seed)
    query = QUERIES[name]
    root(store)
    root(store, "more", APPEND)
    inputs = ["flights", "more"] if "more" in query else ["flights"]
    partitioned = Layout(partition_on=("carrier",)) if rng.random() < 0.5 else Layout()
    derived(store, name, transform(query, *inputs), table=Table(layout=partitioned))
    for _ in range(5):
        for source in inputs:
            flights, times = some(rng, 6 if source == "flights" else 2)
            push(store, flights, source, event_time=times)
        if rng.random() < 0.6:
            pull(store, name, Limits(records=rng.choice([1, 4, 1000])))
    settle(store, name, Limits(records=rng.choice([2, 1000])))
    assert table(store, name, COLUMNS) == answer(store, query, COLUMNS)
    offsets = table(store, name, ("offset",))
    opened(store, name).restore_view()
    assert table(store, name, ("offset",)) == offsets
    sound(store, name)
    verdict = verify_dataset(store, DatasetLog(store, name))
    assert verdict.sound, verdict.findings
