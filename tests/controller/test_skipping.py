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
def world() -> Fake:
    return Fake()


def described(version: int, *indices: SkippingIndexSpec, **changes: Any) -> DatasetState:
    state = SkippingState(indices=indices, files=version, bytes=100, **changes) if indices else None
    return seen(version, skipping=state)


def skip_jobs(world: Fake) -> list[str]:
    return [launch.job.job for launch in world.launches if isinstance(launch.job, SkipJob)]


def last_job(world: Fake) -> SkipJob:
    job = world.launches[-1].job
    assert isinstance(job, SkipJob)
    return job


def query_ends(world: Fake, name: str, *reads: QueryRead) -> None:
    world.create("Query", name, QUERY)
    world.reconcile("Query", name)
    world.job_runs(f"{name}-query-1")
    world.job_ends(f"{name}-query-1", query=QueryOutcome(location="out/x", reads=reads))
    world.settle("Query", name)
    world.pass_time(timedelta(minutes=1))


def read(considered: int = 10, skipped: int = 0, filters: Sequence[str] = (), dataset: str = "flights") -> QueryRead:
    opened = considered - skipped
    return QueryRead(
        dataset=dataset, version=3, files=opened, considered=considered, skipped=skipped, filters=tuple(filters)
    )


def test_editing_the_spec_starts_a_job_that_knows_what_is_wanted(world: Fake) -> None:
    with_dataset(world, seen(3))
    world.edit(
        *KEY, table={"skipping": {"indices": [MINMAX, {"type": "BloomFilter", "column": "tail", "fpp": "0.001"}]}}
    )
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1"]
    assert last_job(world).dataset.table.skipping == SkippingSpec(indices=(ON_X, BLOOM))
    assert world.condition(*KEY) == ("True", "Succeeded"), "commits go on"
    world.job_ends("flights-skip-1", dataset=described(4, ON_X, BLOOM))
    world.settle(*KEY)
    found = world.dataset.status.skipping
    assert found is not None
    assert [(index.type, index.columns) for index in found.indices] == [("MinMax", ("x",)), ("BloomFilter", ("tail",))]
    assert (found.files, found.coverage, found.bytes) == (4, "100%", 100)
    assert skip_jobs(world) == ["flights-skip-1"], "nothing is left to do"


def test_an_empty_list_drops_and_none_keeps(world: Fake) -> None:
    with_dataset(world, described(3, ON_X))
    world.settle(*KEY)
    assert skip_jobs(world) == []
    world.edit(*KEY, table={"skipping": {"indices": []}})
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1"]
    assert last_job(world).dataset.table.skipping == SkippingSpec()


def test_other_parameters_or_keys_are_another_wish(world: Fake) -> None:
    wish = {"type": "BloomFilter", "column": "tail", "fpp": "0.001"}
    with_dataset(world, described(3, BLOOM), table={"skipping": {"indices": [wish]}})
    assert skip_jobs(world) == []
    world.edit(*KEY, table={"skipping": {"indices": [wish | {"ndv": 500}]}})
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1"]
    smaller = BLOOM.model_copy(update={"params": {"ndv": "500", "fpp": "0.001"}})
    world.job_ends("flights-skip-1", dataset=described(4, smaller))
    world.settle(*KEY)
    world.edit(*KEY, table={"skipping": {"indices": [wish | {"ndv": 500, "key": "k1"}], "footerKey": "k0"}})
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1", "flights-skip-2"]
    keyed = smaller.model_copy(update={"key": "k1"})
    world.job_ends("flights-skip-2", dataset=described(5, keyed, footer_key="k0"))
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1", "flights-skip-2"]


def test_a_table_that_is_not_there_yet_has_nothing_to_describe(world: Fake) -> None:
    with_dataset(world, table={"skipping": {"auto": True}})
    assert skip_jobs(world) == []


def test_auto_chooses_once_and_again_when_the_table_has_grown_fourfold(world: Fake) -> None:
    with_dataset(world, seen(3), table={"skipping": {"auto": True, "indices": [MINMAX]}})
    assert skip_jobs(world) == ["flights-skip-1"]
    assert last_job(world).dataset.table.skipping == SkippingSpec(auto=True, indices=(ON_X,))
    world.job_ends("flights-skip-1", dataset=described(4, ON_X, BLOOM))
    world.settle(*KEY)
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1"], "what was chosen is more than what was asked for, and stays"
    grown = described(5, ON_X, BLOOM)
    grown = grown.model_copy(update={"totals": grown.totals.model_copy(update={"rows": 40 * 16})})
    world.pass_time(timedelta(minutes=1))
    world.annotate("ObjectStore", "lake", requestedAt="now")
    world.reconcile("ObjectStore", "lake")
    world.job_ends("lake-inspect-2", datasets=(grown,))
    world.settle("ObjectStore", "lake")
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1", "flights-skip-2"]


def test_auto_hears_of_filters_that_queries_have_again_and_again(world: Fake) -> None:
    with_dataset(world, described(3, ON_X), table={"skipping": {"auto": True}, "partitionOn": ["month"]})
    world.job_ends("flights-skip-1", dataset=described(4, ON_X))
    world.settle(*KEY)
    assert last_job(world).seen == ()
    for number in range(2):
        query_ends(world, f"q{number}", read(filters=["tail:Equal", "month:Equal"]))
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1"], "twice is not often"
    query_ends(world, "q2", read(filters=["tail:Equal", "month:Equal"]))
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1", "flights-skip-2"]
    assert last_job(world).seen == (FilterSeen(column="tail", kind="Equal", queries=3),), "no partition column"


def test_what_queries_had_of_it_is_summed_up_and_each_counts_once(world: Fake) -> None:
    with_dataset(world, described(3, ON_X))
    query_ends(world, "half", read(10, 5))
    query_ends(world, "most", read(10, 9, ["x:Range"]), read(7, 7, dataset="other"))
    query_ends(world, "nothing-to-skip", read(0, 0))
    world.settle(*KEY)
    for _ in range(2):
        found = world.dataset.status.skipping_achieved
        assert found is not None
        assert (found.queries, found.considered, found.skipped, found.share) == (2, 20, 14, "70%")
        assert [use.query for use in found.recent] == ["nothing-to-skip", "most", "half"]
        del world.resources["Query", "half"]
        world.settle(*KEY)  # a Query that is gone stays in the sum
        world.create("Query", "half", QUERY)


def test_only_the_newest_queries_count(world: Fake) -> None:
    with_dataset(world, described(3, ON_X))
    for number in range(40):
        query_ends(world, f"q{number:02}", read(1, number % 2))
    world.settle(*KEY)
    found = world.dataset.status.skipping_achieved
    assert found is not None
    assert (len(found.recent), found.recent[0].query, found.recent[-1].query) == (32, "q39", "q08")


def test_what_cannot_be_is_said_and_tried_again_after_an_edit(world: Fake) -> None:
    with_dataset(world, seen(3), table={"skipping": {"indices": [MINMAX]}})
    world.job_fails("flights-skip-1", FailureClass.REPORT, "SkippingInvalid", "the table has no column 'x'")
    world.settle(*KEY)
    assert world.condition(*KEY) == ("False", "SkippingStalled")
    assert "no column 'x'" in world.message(*KEY)
    assert world.dataset.writable, "commits go on all the same"
    world.edit(*KEY, table={"skipping": {"indices": [MINMAX | {"column": "y"}]}})
    world.settle(*KEY)
    assert skip_jobs(world) == ["flights-skip-1", "flights-skip-2"]


def test_keys_are_mounted_for_every_job_on_the_store(world: Fake) -> None:
    with_dataset(world, seen(3))
    world.edit("ObjectStore", "lake", keysSecretRef={"name": "master-keys"})
    world.edit(*KEY, table={"skipping": {"indices": [MINMAX | {"key": "k1"}], "footerKey": "k0"}})
    world.settle(*KEY)
    assert world.launches[-1].keys == {"lake": "master-keys"}
    store: StoreRef = last_job(world).store
    assert store.keys_dir == "/var/run/kubothek/keys/lake"
