"""The operator as a process over a real API server, with some dozen resources: what it asks for, counted there.

Nothing here is timed. What `make bench-operator` measures with 10,000 Datasets is true of 30 by the same structure: no
request without a cause, one write a transition, one pod an inspection.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks.fleet.cluster import cluster
from benchmarks.fleet.process import kubothek
from benchmarks.fleet.scenario import Findings, Size, build, measure

pytestmark = pytest.mark.slow

SIZE = Size(datasets=30, commits=8, namespaces=3, interval=10, edits=4)


@pytest.mark.timeout(900)
async def test_operator_at_rest_writes_no_dataset_and_commit_costs_few_writes(tmp_path: Path) -> None:
    async with cluster() as there:
        await build(there, SIZE)
        start = partial(kubothek, there, tmp_path / "operator.log", "--limit-jobs=8")
        found = await measure("kubothek", there, SIZE, 0.2, start, lambda _: None)
    _at_rest(found)
    _with_work(found)


def _at_rest(found: Findings) -> None:
    values, idle = found.values, found.requests["idle"]
    assert values["first: status writes a Dataset"] <= 2, "looked for, found"
    assert values["first: other writes a Dataset"] == 0, "nothing is written to people's objects"
    asked = [(verb, what) for verb, what in idle if what.startswith(("datasets", "commits"))]
    assert not [verb for verb, _ in asked if verb not in ("watch", "list")]
    assert values["idle: inspection pods a store and interval"] <= 1.6, "in two intervals at most three begin"
    # It is announced, is seen, has ended; and two of those of one that was under way when the time began.
    assert idle["patch", "objectstores/status"] <= 3 * idle["create", "pods"] + 2 * SIZE.namespaces
    assert values["restart: writes to Datasets"] == 0


def _with_work(found: Findings) -> None:
    values = found.values
    assert values["queued: status writes an edit"] <= 1.5
    # It waits for its turn, for a place, is announced, is seen to run, is complete; why it waits may change once.
    assert values["flow: status writes a Commit's life"] <= 6
    asked = found.requests["flow"] + found.requests["queued"] + found.requests["edits"]
    assert asked["create", "pods"] >= SIZE.commits + 1
    again = found.requests["again"]["create", "pods"]
    assert again >= SIZE.commits + 1, "what went and came again has run again"
