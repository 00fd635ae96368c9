"""A standing Query on one machine, where nobody waits for its slots: a run makes up for what has come since then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.api.dataset import Dataset
from kubothek.api.meta import Resource
from kubothek.api.query import FollowedInput, Query, QueryRun
from kubothek.local.apply import Applied, apply, save, states_of
from kubothek.local.context import Objects
from kubothek.local.manifests import Key, load
from tests.local.manifests import STORE, dataset, write

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
TOTALS = Key("Query", "default", "totals")
LETTERS = Key("Dataset", "default", "letters")


def query(spec: str = "") -> str:
    return f"""\
---
apiVersion: kubothek.io/v1alpha1
kind: Query
metadata: {{name: totals}}
spec:
  storeRef: {{name: lake}}
  sql: SELECT 1
  result: {{datasetRef: {{name: totals}}}}
  {spec}
"""


SLOTS = 'schedule: {cron: "30 2 * * *"}'
BOTH = f"{SLOTS}\n  follow: [{{name: letters}}]"


def applied(directory: Path, now: datetime, spec: str) -> Applied:
    manifests = load([write(directory, STORE, dataset("letters"), dataset("totals"), query(spec))])
    return apply(manifests, states_of(manifests, directory), now)


def after_run(directory: Path, spec: str, *, read: int, version: int, **changes: object) -> None:
    """Save the state of an earlier run, which began at ``NOW`` with version ``read`` of its input."""
    found = applied(directory, NOW, spec)
    uid = found.resources[LETTERS].metadata.uid
    inputs = (FollowedInput(name="letters", uid=uid, version=read),) if "follow" in spec else ()
    run = QueryRun(number=1, time=NOW, slot=NOW, inputs=inputs, done=True)
    resources = dict(found.resources)
    resources[TOTALS] = with_status(resources[TOTALS], run=run.model_copy(update=changes))
    resources[LETTERS] = with_status(resources[LETTERS], version=version)
    save(Applied(resources, found.states, {}, ()))


def with_status(resource: Resource, **changes: object) -> Resource:
    return resource.model_copy(update={"status": resource.status.model_copy(update=changes)})


def requested(directory: Path, later: timedelta, spec: str) -> bool:
    return applied(directory, NOW + later, spec).resources[TOTALS].requested_at is not None


def test_local_query_is_not_requested_before_first_run(tmp_path: Path) -> None:
    assert not requested(tmp_path, timedelta(days=3), SLOTS), "it is due without"


@pytest.mark.parametrize(("later", "expected"), [(timedelta(hours=1), False), (timedelta(days=3), True)])
def test_local_query_runs_missed_slot_however_late(tmp_path: Path, later: timedelta, expected: bool) -> None:
    after_run(tmp_path, SLOTS, read=1, version=1)
    assert requested(tmp_path, later, SLOTS) is expected


@pytest.mark.parametrize(("version", "expected"), [(1, False), (2, True)])
def test_local_query_runs_missed_slot_if_input_has_changed(tmp_path: Path, version: int, expected: bool) -> None:
    after_run(tmp_path, BOTH, read=1, version=version)
    assert requested(tmp_path, timedelta(days=3), BOTH) is expected


@pytest.mark.parametrize("spec", [SLOTS, BOTH])
def test_local_query_that_failed_is_tried_again(tmp_path: Path, spec: str) -> None:
    after_run(tmp_path, spec, read=1, version=1, done=False, problem="QueryInvalid: x")
    assert requested(tmp_path, timedelta(0), spec)


def test_local_change_of_dataset_wakes_query_that_follows_it(tmp_path: Path) -> None:
    objects = Objects(applied(tmp_path, NOW, BOTH).resources)
    assert TOTALS in objects.woken_by(LETTERS)


def test_local_end_of_run_wakes_dataset_of_result(tmp_path: Path) -> None:
    resources = dict(applied(tmp_path, NOW, SLOTS).resources)
    assert Key("Dataset", "default", "totals") not in Objects(resources).woken_by(TOTALS)
    resources[TOTALS] = with_status(resources[TOTALS], completion_time=NOW)
    assert Key("Dataset", "default", "totals") in Objects(resources).woken_by(TOTALS)
    assert isinstance(resources[TOTALS], Query)
    assert isinstance(resources[LETTERS], Dataset)
