"""The job that makes the skipping metadata of a table what its Dataset says, and what recent queries had of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import (
    DatasetState,
    FilterSeen,
    QueryOutcome,
    QueryRead,
    SkipJob,
    SkippingIndexSpec,
    SkippingSpec,
    SkippingState,
    StoreRef,
)
from kubothek.controller.context import FailureClass
from tests.controller.fake import Fake, seen, with_dataset

KEY = ("Dataset", "flights")
MINMAX = {"type": "MinMax", "column": "x"}
ON_X = SkippingIndexSpec(type="MinMax", columns=("x",))
BLOOM = SkippingIndexSpec(type="BloomFilter", columns=("tail",), params={"fpp": "0.001"})
QUERY = {"sql": "SELECT 1", "storeRef": {"name": "lake"}, "result": {"location": {"path": "out"}}}


@pytest.fixture
def context() -> Fake:
    return Fake()


def described(version: int, *indices: SkippingIndexSpec, **changes: Any) -> DatasetState:
    state = SkippingState(indices=indices, files=version, bytes=100, **changes) if indices else None
    return seen(version, skipping=state)


def skip_jobs(context: Fake) -> list[str]:
    return [launch.job.job for launch in context.launches if isinstance(launch.job, SkipJob)]


def last_job(context: Fake) -> SkipJob:
    job = context.launches[-1].job
    assert isinstance(job, SkipJob)
    return job


def query_ends(context: Fake, name: str, *reads: QueryRead) -> None:
    context.create("Query", name, QUERY)
    context.reconcile("Query", name)
    context.job_runs(f"{name}-query-1")
    context.job_ends(f"{name}-query-1", query=QueryOutcome(location="out/x", reads=reads))
    context.settle("Query", name)
    context.pass_time(timedelta(minutes=1))


def read(considered: int = 10, skipped: int = 0, filters: Sequence[str] = (), dataset: str = "flights") -> QueryRead:
    opened = considered - skipped
    return QueryRead(
        dataset=dataset, version=3, files=opened, considered=considered, skipped=skipped, filters=tuple(filters)
    )


def test_skipping_edit_starts_job_with_requested_indexes(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.edit(
        *KEY, table={"skipping": {"indices": [MINMAX, {"type": "BloomFilter", "column": "tail", "fpp": "0.001"}]}}
    )
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1"]
    assert last_job(context).dataset.table.skipping == SkippingSpec(indices=(ON_X, BLOOM))
    assert context.condition(*KEY) == ("True", "Succeeded"), "commits go on"
    context.job_ends("flights-skip-1", dataset=described(4, ON_X, BLOOM))
    context.settle(*KEY)
    found = context.dataset.status.skipping
    assert found is not None
    assert [(index.type, index.columns) for index in found.indices] == [("MinMax", ("x",)), ("BloomFilter", ("tail",))]
    assert (found.files, found.coverage, found.bytes) == (4, "100%", 100)
    assert skip_jobs(context) == ["flights-skip-1"], "nothing is left to do"


def test_skipping_list_empty_drops_indexes_and_absent_list_keeps_them(context: Fake) -> None:
    with_dataset(context, described(3, ON_X))
    context.settle(*KEY)
    assert skip_jobs(context) == []
    context.edit(*KEY, table={"skipping": {"indices": []}})
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1"]
    assert last_job(context).dataset.table.skipping == SkippingSpec()


def test_skipping_edit_of_parameters_or_keys_starts_job(context: Fake) -> None:
    wish = {"type": "BloomFilter", "column": "tail", "fpp": "0.001"}
    with_dataset(context, described(3, BLOOM), table={"skipping": {"indices": [wish]}})
    assert skip_jobs(context) == []
    context.edit(*KEY, table={"skipping": {"indices": [wish | {"ndv": 500}]}})
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1"]
    smaller = BLOOM.model_copy(update={"params": {"ndv": "500", "fpp": "0.001"}})
    context.job_ends("flights-skip-1", dataset=described(4, smaller))
    context.settle(*KEY)
    context.edit(*KEY, table={"skipping": {"indices": [wish | {"ndv": 500, "key": "k1"}], "footerKey": "k0"}})
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1", "flights-skip-2"]
    keyed = smaller.model_copy(update={"key": "k1"})
    context.job_ends("flights-skip-2", dataset=described(5, keyed, footer_key="k0"))
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1", "flights-skip-2"]


def test_skipping_of_missing_table_starts_no_job(context: Fake) -> None:
    with_dataset(context, table={"skipping": {"auto": True}})
    assert skip_jobs(context) == []


def test_skipping_auto_selects_once_and_again_after_fourfold_growth(context: Fake) -> None:
    with_dataset(context, seen(3), table={"skipping": {"auto": True, "indices": [MINMAX]}})
    assert skip_jobs(context) == ["flights-skip-1"]
    assert last_job(context).dataset.table.skipping == SkippingSpec(auto=True, indices=(ON_X,))
    context.job_ends("flights-skip-1", dataset=described(4, ON_X, BLOOM))
    context.settle(*KEY)
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1"], "what was chosen is more than what was asked for, and stays"
    grown = described(5, ON_X, BLOOM)
    grown = grown.model_copy(update={"totals": grown.totals.model_copy(update={"rows": 40 * 16})})
    context.pass_time(timedelta(minutes=1))
    context.annotate("ObjectStore", "lake", requestedAt="now")
    context.reconcile("ObjectStore", "lake")
    context.job_ends("lake-inspect-2", datasets=(grown,))
    context.settle("ObjectStore", "lake")
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1", "flights-skip-2"]


def test_skipping_auto_considers_repeated_query_filters(context: Fake) -> None:
    with_dataset(context, described(3, ON_X), table={"skipping": {"auto": True}, "partitionOn": ["month"]})
    context.job_ends("flights-skip-1", dataset=described(4, ON_X))
    context.settle(*KEY)
    assert last_job(context).seen == ()
    for number in range(2):
        query_ends(context, f"q{number}", read(filters=["tail:Equal", "month:Equal"]))
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1"], "twice is not often"
    query_ends(context, "q2", read(filters=["tail:Equal", "month:Equal"]))
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1", "flights-skip-2"]
    assert last_job(context).seen == (FilterSeen(column="tail", kind="Equal", queries=3),), "no partition column"


def test_skipping_status_sums_each_query_once(context: Fake) -> None:
    with_dataset(context, described(3, ON_X))
    query_ends(context, "half", read(10, 5))
    query_ends(context, "most", read(10, 9, ["x:Range"]), read(7, 7, dataset="other"))
    query_ends(context, "nothing-to-skip", read(0, 0))
    context.settle(*KEY)
    for _ in range(2):
        found = context.dataset.status.skipping_achieved
        assert found is not None
        assert (found.queries, found.considered, found.skipped, found.share) == (2, 20, 14, "70%")
        assert [use.query for use in found.recent] == ["nothing-to-skip", "most", "half"]
        del context.resources["Query", "half"]
        context.settle(*KEY)  # a Query that is gone stays in the sum
        context.create("Query", "half", QUERY)


def test_skipping_status_considers_newest_queries_only(context: Fake) -> None:
    with_dataset(context, described(3, ON_X))
    for number in range(40):
        query_ends(context, f"q{number:02}", read(1, number % 2))
    context.settle(*KEY)
    found = context.dataset.status.skipping_achieved
    assert found is not None
    assert (len(found.recent), found.recent[0].query, found.recent[-1].query) == (32, "q39", "q08")


def test_skipping_that_is_invalid_is_reported_and_retried_after_edit(context: Fake) -> None:
    with_dataset(context, seen(3), table={"skipping": {"indices": [MINMAX]}})
    context.job_fails("flights-skip-1", FailureClass.REPORT, "SkippingInvalid", "the table has no column 'x'")
    context.settle(*KEY)
    assert context.condition(*KEY) == ("False", "SkippingStalled")
    assert "no column 'x'" in context.message(*KEY)
    assert context.dataset.writable, "commits go on all the same"
    context.edit(*KEY, table={"skipping": {"indices": [MINMAX | {"column": "y"}]}})
    context.settle(*KEY)
    assert skip_jobs(context) == ["flights-skip-1", "flights-skip-2"]


def test_skipping_keys_are_mounted_in_every_job_of_store(context: Fake) -> None:
    with_dataset(context, seen(3))
    context.edit("ObjectStore", "lake", keysSecretRef={"name": "master-keys"})
    context.edit(*KEY, table={"skipping": {"indices": [MINMAX | {"key": "k1"}], "footerKey": "k0"}})
    context.settle(*KEY)
    assert context.launches[-1].keys == {"lake": "master-keys"}
    store: StoreRef = last_job(context).store
    assert store.keys_dir == "/var/run/kubothek/keys/lake"
