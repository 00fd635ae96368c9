"""The job that makes the indices of a table what its Dataset says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import DatasetState, IndexJob, IndexState, TableSpec
from kubothek.api.table import Index
from kubothek.controller.context import FailureClass
from tests.controller.fake import Fake, committed, seen, with_dataset, with_running_commit

KEY = ("Dataset", "flights")
X: dict[str, Any] = {"indices": [{"column": "x"}]}


@pytest.fixture
def context() -> Fake:
    return Fake()


def having(version: int, *indices: IndexState, **changes: Any) -> DatasetState:
    return seen(version, indices=indices, **changes)


def on(column: str, **changes: Any) -> IndexState:
    return IndexState(column=column, **({"kind": "Native"} | changes))


def index_jobs(context: Fake) -> list[str]:
    return [launch.job.job for launch in context.launches if isinstance(launch.job, IndexJob)]


def wanted(context: Fake) -> TableSpec:
    """What the last job was told."""
    job = context.launches[-1].job
    assert isinstance(job, IndexJob)
    return job.dataset.table


def test_index_edit_starts_job_with_requested_indices(context: Fake) -> None:
    with_dataset(context, having(3))
    context.edit(*KEY, table={"indices": [{"column": "x", "kind": "Kartothek"}], "dialect": "Plateau"})
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1"]
    table = wanted(context)
    assert table.indices == (Index(column="x", kind="Kartothek"),)
    assert table.dialect == "Plateau"
    assert context.condition(*KEY) == ("True", "Succeeded"), "commits go on"
    indexed = having(4, on("x", kind="Kartothek", rows=7), dialect="Plateau")
    context.job_ends("flights-index-1", dataset=indexed)
    context.settle(*KEY)
    status = context.dataset.status
    assert [(i.column, i.kind, i.state, i.rows) for i in status.indices] == [("x", "Kartothek", "Ready", 7)]
    assert (status.version, status.dialect) == (4, "Plateau")
    assert index_jobs(context) == ["flights-index-1"], "nothing is left to do"


def test_index_list_empty_drops_indices_and_absent_list_keeps_them(context: Fake) -> None:
    with_dataset(context, having(3, on("x")))
    context.settle(*KEY)
    assert index_jobs(context) == []
    context.edit(*KEY, table={"indices": []})
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1"]
    assert wanted(context).indices == ()


def test_index_of_missing_table_is_built_by_first_commit(context: Fake) -> None:
    with_dataset(context, table=X)
    assert index_jobs(context) == []
    job = with_running_commit(context)
    first = committed(1) | {"dataset": having(1, on("x"))}
    context.job_ends(job, **first)
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert [index.column for index in context.dataset.status.indices] == ["x"]
    assert index_jobs(context) == []


@pytest.mark.parametrize("state", ["Partial", "Stale"])
def test_index_that_needs_work_starts_one_job_per_version(context: Fake, state: str) -> None:
    with_dataset(context, having(3, on("x", state=state)))
    assert index_jobs(context) == ["flights-index-1"]
    context.job_ends("flights-index-1", dataset=having(3, on("x", state=state)))
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1"], "it could not help"
    context.job_runs(with_running_commit(context))
    context.job_ends("january-1", **(committed(4) | {"dataset": having(4, on("x", state=state))}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1", "flights-index-2"]


def test_index_waiting_for_values_starts_no_job(context: Fake) -> None:
    with_dataset(context, having(3, on("x", state="Waiting")), table=X)
    assert index_jobs(context) == []


def test_index_that_is_invalid_is_reported_and_retried_after_edit(context: Fake) -> None:
    with_dataset(context, having(3), table=X)
    context.job_fails("flights-index-1", FailureClass.REPORT, "IndexInvalid", "index on 'x': the table has none")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "IndexStalled")
    assert "IndexInvalid: index on 'x'" in context.message(*KEY)
    assert context.dataset.writable, "commits go on all the same"
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1"]
    context.edit(*KEY, table={"indices": [{"column": "y"}]})
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1", "flights-index-2"]
    context.job_ends("flights-index-2", dataset=having(4, on("y")))
    context.settle(*KEY)
    assert context.condition(*KEY) == ("True", "Succeeded")


def test_index_job_with_transient_failure_retries(context: Fake) -> None:
    with_dataset(context, having(3), table=X)
    context.job_fails("flights-index-1", FailureClass.RETRY, "StoreUnavailable")
    outcome = context.settle(*KEY)
    assert outcome.requeue_after is not None
    context.pass_time(outcome.requeue_after + timedelta(seconds=1))
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1", "flights-index-2"]


def test_index_job_of_suspended_dataset_starts_after_resume(context: Fake) -> None:
    with_dataset(context, having(3), table=X, suspend=True)
    assert index_jobs(context) == []
    context.edit(*KEY, suspend=False)
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1"]


def test_index_that_disappeared_is_rebuilt(context: Fake) -> None:
    """The same difference as before, after it was gone for a while."""
    with_dataset(context, having(3), table=X)
    context.job_ends("flights-index-1", dataset=having(4, on("x")))
    context.settle(*KEY)
    job = with_running_commit(context)
    context.job_ends(job, **(committed(5) | {"dataset": having(5)}))
    context.settle("Commit", "january")
    context.settle(*KEY)
    assert index_jobs(context) == ["flights-index-1", "flights-index-2"]
