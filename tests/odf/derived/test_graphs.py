"""Any history of a graph of derivatives: a chain and a diamond over two roots, with kills at any call, inputs that are
compacted, queries that change, and views that are made anew. In the end each is what plain SQL makes of its inputs, all
runs come out again, and what was made of the records does not depend on any of it (DAT-08, DAT-09, REQ-06, VE-02).

``KUBOTHEK_SOAK=1`` (``make soak``) tries a hundred, new ones each time; the suite tries the same two always.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import InputDiverged
from kubothek.jobs.deriving import derive
from kubothek.odf.dataset import Root
from kubothek.odf.derived import Derivative, Limits, OnChange, inputs_of
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from kubothek.verify.recursion import verify_recursively
from tests.faultstore import Crash, Fault, FaultStore
from tests.odf.derived.test_histories import COLUMNS, START, some
from tests.odf.derived.world import APPEND, answer, derived, opened, pull, push, root, table, transform

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
SEEDS = [random.randrange(1 << 32) for _ in range(100)] if SOAK else [1, 2]
INPUTS = {"late": ["flights"], "counts": ["late"], "merged": ["late", "more"], "last": ["counts", "merged"]}
"""In the order in which each comes after its inputs; ``last`` is reached from ``flights`` on two ways."""
QUERIES = {
    "late": "SELECT event_time, carrier, delay FROM flights WHERE delay > 2",
    "counts": "SELECT max(event_time) AS event_time, carrier, count(*) AS delay FROM late GROUP BY carrier",
    "merged": "SELECT event_time, carrier, delay FROM late UNION ALL SELECT event_time, carrier, delay FROM more",
    "last": (
        "SELECT b.event_time, b.carrier, b.delay * 100 + c.delay AS delay "
        "FROM merged b JOIN counts c ON b.carrier = c.carrier"
    ),
}


@pytest.mark.requirement("DAT-09")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_derivative_graph_after_random_history_matches_plain_sql(store: Store, seed: int) -> None:
    rng, queries = random.Random(seed), dict(QUERIES)
    root(store)
    root(store, "more", APPEND)
    for name, inputs in INPUTS.items():
        derived(store, name, transform(queries[name], *inputs))
    for number in range(14):
        step(store, rng, queries, number)
    push(store, {1: ("A", 7), 2: ("B", 6)}, event_time=times(2))
    push(store, {9: ("A", 7)}, "more", event_time=times(1))
    for name in INPUTS:
        derive(opened(store, name), inputs_of(store), on_change=OnChange.RESET)
        assert table(store, name, COLUMNS) == answer(store, queries[name], COLUMNS), (seed, name)
    verdicts = verify_recursively(store, "last")
    assert {each.uuid for each in verdicts} == {*INPUTS, "flights", "more"}
    assert not [each.verdict.findings for each in verdicts if not each.verdict.sound], seed


def times(count: int) -> pa.Array[Any]:
    return pa.array([START] * count, pa.timestamp("ms", "UTC"))


def step(store: Store, rng: random.Random, queries: dict[str, str], number: int) -> None:
    """One thing that happens."""
    name = rng.choice([*INPUTS])
    what = rng.random() if number > 1 else 0.0
    if what < 0.35:
        flights, moments = some(rng, 6)
        push(store, flights, event_time=moments)
        flights, moments = some(rng, 2)
        push(store, flights, "more", event_time=moments)
    elif what < 0.6:
        try:
            pull(store, name, Limits(records=rng.choice([1, 4, 1000])))
        except InputDiverged:
            opened(store, name).restart()
    elif what < 0.75:
        killed(store, rng, name)
    elif what < 0.85:
        Root(store, DatasetLog(store, "flights")).compact()
    elif what < 0.92:
        queries["late"] = QUERIES["late"].replace("> 2", f"> {rng.randrange(5)}")
        changed = transform(queries["late"], "flights")
        opened(store).set_transform(changed, inputs_of(store), on_change=OnChange.RESET)
    elif what < 0.96:
        opened(store, name).restore_view()
    else:
        opened(store, name).restart()


def killed(store: Store, rng: random.Random, name: str) -> None:
    """A job that dies before or after one of its calls; the next one finds what it left."""
    dying = FaultStore(store, Fault(nth=rng.randrange(1, 12), after=rng.random() < 0.5))
    try:
        derive(Derivative(dying, DatasetLog(dying, name)), inputs_of(dying), on_change=OnChange.RESET)
    except Crash:
        return
