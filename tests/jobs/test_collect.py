"""Garbage collection through jobs: several datasets of a store, one after the other, and the store's grace period."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from kubothek.api.jobs import JOB, CollectJob, CollectOutcome, ExitCode, JobResult
from kubothek.errors import AccessDenied, StoreUnavailable
from kubothek.jobs import collect, outcome
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.log import Claim, DatasetLog, read_settings, take_claim
from kubothek.table.log.model import keys
from tests.faultstore import Fault, FaultStore
from tests.jobs.conftest import ALL_IN_PROCESS, Here

pytestmark = pytest.mark.slow

DAY = timedelta(days=1)
TWO = [{"versions": 2}]


def dataset(name: str) -> dict[str, Any]:
    return {"uuid": name, "claim": {"owner": f"cluster/default/{name}", "incarnation": f"uid of {name}"}}


def filled(here: Here, *names: str, versions: int = 4) -> None:
    """Datasets of so many versions, each of one file of its own; three days old."""
    for name in names:
        for number in range(versions):
            job = here.commit_job(here.put(f"{number}.csv", f"a\n{number}\n"), commit_id=f"c{number}")
            in_process = {"spark": {"from_bytes": ALL_IN_PROCESS}}
            result, code = here.run({**job, **in_process, "operation": "Overwrite", "dataset": dataset(name)})
            assert code == ExitCode.DONE, result
    age(here, 3 * DAY)


def age(here: Here, time: timedelta) -> None:
    """Let this time pass for all that is in the store."""
    for path in here.root.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - time.total_seconds()
            os.utime(path, (then, then))


def job(here: Here, *names: str, policies: Sequence[dict[str, Any]] = TWO, **more: Any) -> dict[str, Any]:
    targets = [{"name": name, "dataset": dataset(name), "policies": policies} for name in names]
    base = here.job("collect")
    del base["dataset"]
    spark = {"from_bytes": here.from_bytes, "conf": {"spark.master": "local[2]"}}
    return {**base, "targets": targets, "enforce": True, "spark": spark, **more}


def run(here: Here, *names: str, **more: Any) -> tuple[JobResult, CollectOutcome]:
    result, code = here.run(job(here, *names, **more))
    assert code == ExitCode.DONE, result
    assert result.collect is not None
    return result, result.collect


def run_on(on: Store, here: Here, *names: str, **more: Any) -> CollectOutcome:
    parsed = JOB.validate_python(job(here, *names, **more))
    assert isinstance(parsed, CollectJob)
    done = collect.run(parsed, on, Reporter(here.said)).collect
    assert done is not None
    return done


def objects(done: CollectOutcome) -> dict[str, int]:
    return {count.kind: count.objects for count in done.collected}


def data_files(here: Here, name: str) -> int:
    return sum(info.key.endswith(".parquet") for info in here.store.list(f"{name}/table/"))


def versions(here: Here, name: str) -> list[int]:
    return [record.version for record in DatasetLog(here.store, name).history()]


def test_collect_job_deletes_unretained_files_of_every_target(either: Here) -> None:
    filled(either, "a", "b")
    result, done = run(either, "a", "b")
    assert (done.after, done.datasets, done.failed, done.problems) == ("b", 2, 0, ())
    assert objects(done)["data"] == 4
    assert all(count.bytes > 0 for count in done.collected)
    assert [data_files(either, name) for name in "ab"] == [2, 2]
    assert versions(either, "a") == [5, 4, 3]  # the newest is that of the collector
    assert result.message.endswith("of 2 datasets deleted")
    assert [line["stage"] for line in either.progress()].count("Collecting") >= 1
    assert either.sessions == (1 if either.from_bytes == 0 else 0)


def test_second_collect_job_finds_nothing_and_keeps_head(here: Here) -> None:
    filled(here, "a")
    run(here, "a")
    head = here.store.get(keys.head("a"))
    _, done = run(here, "a")
    assert (done.datasets, done.failed, done.collected) == (1, 0, ())
    assert here.store.get(keys.head("a")) == head


def test_collect_job_keeps_versions_retained_by_any_policy(here: Here) -> None:
    filled(here, "a")
    _, done = run(here, "a", policies=[{"versions": 1}, {"versions": 3}, {"seconds": 60.0}])
    assert objects(done)["data"] == 1
    _, done = run(here, "a", policies=[{"versions": 1}, {}])
    assert "data" not in objects(done)


def test_collect_dry_run_reports_garbage_and_deletes_nothing(here: Here) -> None:
    filled(here, "a")
    head = here.store.get(keys.head("a"))
    result, done = run(here, "a", enforce=False)
    assert objects(done)["data"] == 2
    assert data_files(here, "a") == 4
    assert here.store.get(keys.head("a")) == head
    assert "would be deleted" in result.message
    plans = [info.key for info in here.store.list(keys.collections("a")) if info.key.endswith(".json")]
    assert json.loads(here.store.get(plans[0]))["found"]["data"]["objects"] == 2


def test_collect_job_beyond_max_deletes_keeps_files_and_reports_problem(here: Here) -> None:
    filled(here, "a", "b", versions=4)
    filled(here, "c", versions=2)
    result, done = run(here, "a", "b", "c", max_deletes=3)
    assert (done.after, done.datasets, done.failed, objects(done)) == ("c", 3, 2, {"jobs": 1})
    assert done.problems[0].startswith("a: TooManyDeletes: dataset 'a': ")
    assert data_files(here, "a") == 4
    assert "2 datasets could not be collected" in result.message


def test_collect_job_skips_damaged_dataset_and_collects_others(here: Here) -> None:
    filled(here, "a", "b", "c")
    (here.root / keys.head("b")).write_text("no json")
    _, done = run(here, "a", "b", "c")
    assert (done.after, done.datasets, done.failed) == ("c", 3, 1)
    assert done.problems[0].startswith("b: HeadUnreadable: ")
    assert [data_files(here, name) for name in "abc"] == [2, 4, 2]


def test_collect_job_leaves_dataset_of_other_owner_unchanged(here: Here) -> None:
    filled(here, "a")
    stranger = {**dataset("a"), "claim": {"owner": "cluster/other/a", "incarnation": "x"}}
    target = {"name": "a", "dataset": stranger, "policies": TWO}
    before = {info.key for info in here.store.list("")}
    _, done = run(here, "a", targets=[target])
    assert done.problems[0].startswith("a: OwnedByAnother: ")
    assert {info.key for info in here.store.list("")} == before


def test_collect_job_counts_unwritten_dataset_as_done_without_claim(here: Here) -> None:
    filled(here, "b")
    _, done = run(here, "a", "b")
    assert (done.after, done.datasets, done.failed) == ("b", 2, 0)
    assert not (here.root / ".kubothek" / "a").exists()


def test_collect_job_deletes_files_of_deleted_dataset_after_grace_period(here: Here) -> None:
    filled(here, "a")
    assert here.run({**here.job("delete"), "dataset": dataset("a")})[1] == ExitCode.DONE
    _, done = run(here, "a")
    assert (done.failed, data_files(here, "a")) == (0, 4)
    age(here, 2 * DAY)
    _, done = run(here, "a")
    assert (done.failed, data_files(here, "a")) == (0, 0)


def test_collect_job_without_policy_collects_nothing(here: Here) -> None:
    filled(here, "a")
    _, done = run(here, "a", policies=[])
    assert done.problems[0].startswith("a: InvalidInput: no policy")
    assert data_files(here, "a") == 4


@pytest.mark.parametrize("policy", [{"versions": 0}, {"seconds": -1.0}])
def test_collect_job_with_invalid_policy_reports_problem(here: Here, policy: dict[str, Any]) -> None:
    filled(here, "a")
    _, done = run(here, "a", policies=[policy])
    assert done.problems[0].startswith("a: InvalidInput: ")
    assert data_files(here, "a") == 4


def test_collect_job_without_targets_is_refused(here: Here) -> None:
    result, code = here.run(job(here))
    assert (result.reason, code) == ("InvalidInput", ExitCode.INVALID)


def test_collect_job_with_failing_store_returns_completed_part(here: Here) -> None:
    filled(here, "a", "b", "c")
    broken = FaultStore(here.store, Fault(("list",), key="b/", error=StoreUnavailable("503")))
    done = run_on(broken, here, "a", "b", "c")
    assert (done.after, done.datasets, done.failed) == ("a", 1, 0)
    assert objects(done)["data"] == 2
    with pytest.raises(StoreUnavailable):
        run_on(FaultStore(here.store, Fault(("list",), key="b/", error=StoreUnavailable("503"))), here, "b", "c")
    assert run_on(here.store, here, "b", "c").failed == 0


def test_collect_job_reports_access_denied_per_dataset(here: Here) -> None:
    filled(here, "a", "b")
    broken = FaultStore(here.store, Fault(("list",), key="a/", error=AccessDenied("a/ is not yours")))
    done = run_on(broken, here, "a", "b")
    assert (done.after, done.failed, done.problems) == ("b", 1, ("a: AccessDenied: a/ is not yours",))


def test_collect_job_out_of_time_leaves_rest_to_next_job(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(here, "a", "b")
    monkeypatch.setattr(collect, "ENOUGH_SECONDS", -1.0)
    result, done = run(here, "a", "b")
    assert (done.after, done.datasets) == ("a", 1)
    assert "stopped after a: time is up" in result.message


def test_collect_result_with_all_problems_fits_termination_message(here: Here) -> None:
    names = [f"{'d' * 190}-{number:03}" for number in range(collect.MOST_PROBLEMS + 1)]
    for name in names:
        take_claim(here.store, name, Claim(f"cluster/other/{'o' * 200}", "i"))
    result, done = run(here, *names)
    assert (done.failed, len(done.problems)) == (len(names), collect.MOST_PROBLEMS)
    told = JobResult.model_validate_json(outcome.render(result))
    assert told.collect == result.collect


def test_collect_job_with_lost_file_in_head_keeps_files_and_leaves_note(here: Here) -> None:
    filled(here, "a", "b")
    (lost,) = DatasetLog(here.store, "a").snapshot().head.files().values()
    (here.root / lost).unlink()
    _, done = run(here, "a", "b", enforce=False)
    assert (done.failed, objects(done)["data"]) == (0, 4), "a dry run says what would go"
    assert here.store.get(keys.lost("a")), "and tells inspections"
    _, done = run(here, "a", "b")
    assert (done.after, done.failed, objects(done)["data"]) == ("b", 1, 2)
    assert done.problems[0].startswith("a: VersionIncomplete: dataset 'a': 1 data file is lost: ")
    assert data_files(here, "a") == 3


def test_collect_job_with_lost_file_in_old_version_continues(here: Here) -> None:
    """Another program's garbage collection deletes what the present version does not need."""
    filled(here, "a")
    (lost,) = DatasetLog(here.store, "a").snapshot(3).head.files().values()
    (here.root / lost).unlink()
    _, done = run(here, "a")
    assert (done.failed, objects(done)["data"]) == (0, 2)


# --- the grace period -------------------------------------------------------------------------------------------------


def grace(here: Here) -> float:
    return read_settings(here.store).grace.total_seconds()


def test_collect_job_stores_and_applies_grace_period_of_policies(here: Here) -> None:
    filled(here, "a")
    _, done = run(here, "a", grace_seconds=7 * 86400.0)
    assert grace(here) == 7 * 86400.0
    assert "data" not in objects(done)
    _, done = run(here, "a", grace_seconds=60.0)
    assert grace(here) == 60.0
    assert objects(done)["data"] == 2


def test_collect_dry_run_lengthens_but_never_shortens_grace_period(here: Here) -> None:
    filled(here, "a")
    run(here, "a", enforce=False, grace_seconds=60.0)
    assert grace(here) == 86400.0
    run(here, "a", enforce=False, grace_seconds=2 * 86400.0)
    assert grace(here) == 2 * 86400.0


def test_grace_period_of_several_requesters_is_longest_request(here: Here) -> None:
    filled(here, "a")

    def ask(store: str, seconds: float) -> float:
        ref = {"name": store, "url": here.root.as_uri()}
        run(here, "a", store=ref, grace_seconds=seconds)
        return grace(here)

    assert ask("mine", 7200.0) == 7200.0
    assert ask("theirs", 86400.0) == 86400.0
    assert ask("mine", 3600.0) == 86400.0, "theirs is longer"
    assert ask("theirs", 1800.0) == 1800.0, "nobody else has asked since"
    assert ask("mine", 3600.0) == 3600.0
    assert ask("theirs", 1800.0) == 3600.0


def test_grace_period_set_by_hand_is_not_shortened(here: Here) -> None:
    filled(here, "a")
    here.store.put(keys.SETTINGS, b'{"grace_seconds": 864000}')
    run(here, "a", grace_seconds=60.0)
    assert grace(here) == 864000
    run(here, "a", grace_seconds=950400.0)
    assert grace(here) == 950400


def test_collect_job_sends_no_conditional_write_where_unsupported(here: Here) -> None:
    filled(here, "a")
    store = FaultStore(here.store)
    ref = {"name": "lake", "url": here.root.as_uri(), "conditional_writes": False}
    for seconds in (60.0, 7200.0):
        assert run_on(store, here, "a", store=ref, grace_seconds=seconds).failed == 0
        assert grace(here) == seconds
    assert data_files(here, "a") == 2
    assert not [call for call in store.calls if call.name.startswith("put_if")]


def test_collect_job_with_too_short_grace_period_is_refused(here: Here) -> None:
    filled(here, "a")
    result, code = here.run(job(here, "a", grace_seconds=59.0))
    assert (result.reason, code) == ("InvalidInput", ExitCode.INVALID)
    assert data_files(here, "a") == 4


@pytest.mark.parametrize("content", [b"", b"[]", b'{"grace_seconds": "a day"}'])
def test_collect_job_with_unreadable_store_settings_is_refused(here: Here, content: bytes) -> None:
    filled(here, "a")
    here.store.put(keys.SETTINGS, content)
    result, code = here.run(job(here, "a"))
    assert (result.reason, code) == ("InvalidInput", ExitCode.INVALID)
    assert data_files(here, "a") == 4


@pytest.mark.parametrize("winner", ["other", "lake"])
def test_concurrent_grace_period_requests_agree_on_longest(here: Here, winner: str) -> None:
    """Somebody else asks just ahead of this one's write; or this one did so itself, and the answer was lost."""
    filled(here, "a")
    store = FaultStore(here.store)
    seconds = {"other": 172800.0, "lake": 60.0}[winner]
    asked: list[str] = []

    def ask(call: str, key: str) -> None:
        if key == keys.SETTINGS and call.startswith("put") and not asked:
            asked.append(call)
            store.inner.put(key, json.dumps({"grace_seconds": seconds, "by": f"cluster/default/{winner}"}).encode())

    store.before_call = ask
    run_on(store, here, "a", grace_seconds=60.0)
    assert asked == ["put_if_absent"]
    assert grace(here) == seconds


# --- what deleted datasets left --------------------------------------------------------------------------------------


def deleted(here: Here, *names: str) -> None:
    """Deleted by their Datasets, which are gone; three days ago."""
    for name in names:
        result, code = here.run({**here.job("delete"), "dataset": dataset(name)})
        assert code == ExitCode.DONE, result
    age(here, 3 * DAY)


def left(here: Here, name: str) -> set[str]:
    """The sorts of objects that are left of a dataset."""
    side = {info.key.split("/")[2] for info in here.store.list(keys.side(name))}
    return side | ({"data"} if data_files(here, name) else set())


OURS: dict[str, Any] = {"leftovers": "cluster/default/"}


def test_collect_job_deletes_leftovers_of_deleted_datasets(here: Here) -> None:
    filled(here, "a", "gone", "kept")
    deleted(here, "gone")
    take_claim(here.store, "kept", Claim("cluster/elsewhere/kept", "uid"))
    filled(here, "other")
    deleted(here, "other")
    take_claim(here.store, "other", Claim("cluster/elsewhere/other", "uid"))
    _, done = run(here, "a", **OURS)
    assert (done.after, done.failed) == ("a", 0)
    assert left(here, "gone") == {"applied", "checkpoints", "commits", "gc", "owner.json", "schemas"}
    assert DatasetLog(here.store, "gone").inspect().deleted
    assert {name: data_files(here, name) for name in ("a", "kept", "other")} == {"a": 2, "kept": 4, "other": 4}


def test_collect_job_without_targets_collects_leftovers_and_ends_round(here: Here) -> None:
    filled(here, "gone")
    deleted(here, "gone")
    _, done = run(here, **OURS)
    assert (done.after, done.datasets) == ("~", 1)
    assert objects(done)["data"] == 4
    before = {info.key for info in here.store.list("")}
    _, done = run(here, **OURS)
    assert (done.after, done.datasets, done.collected) == ("~", 0, ())
    assert {info.key for info in here.store.list("")} - before <= {".kubothek/store.json"}


def test_collect_job_keeps_leftovers_of_restorable_deletion(here: Here) -> None:
    filled(here, "gone")
    result, _ = here.run({**here.job("delete"), "dataset": dataset("gone")})
    assert result.outcome == "Succeeded"
    _, done = run(here, **OURS)
    assert (data_files(here, "gone"), done.failed) == (4, 0)
    DatasetLog(here.store, "gone").restore()
    assert len(DatasetLog(here.store, "gone").snapshot().head.partitions) == 1


def test_collect_dry_run_reports_leftovers_of_deleted_datasets(here: Here) -> None:
    filled(here, "gone")
    deleted(here, "gone")
    _, done = run(here, **OURS, enforce=False)
    assert (objects(done)["data"], data_files(here, "gone")) == (4, 4)


def test_retained_dataset_without_resource_is_not_leftover(here: Here) -> None:
    """Data that a Dataset left on purpose (`deletionPolicy: Retain`) has a head that is no tombstone."""
    filled(here, "retained")
    _, done = run(here, **OURS)
    assert (data_files(here, "retained"), done.collected) == (4, ())


def test_collect_job_skips_damaged_leftover_and_collects_others(here: Here) -> None:
    filled(here, "a", "b")
    deleted(here, "a", "b")
    for info in here.store.list(keys.markers("a")):
        here.store.put(info.key, b"no marker")
    age(here, 3 * DAY)
    _, done = run(here, **OURS)
    assert (done.after, done.failed, done.datasets) == ("~", 1, 2)
    assert done.problems[0].startswith("a: ")
    assert (data_files(here, "a"), data_files(here, "b")) == (4, 0)


@pytest.mark.slow
def test_dataset_recreated_during_leftover_collection_loses_no_file(here: Here) -> None:
    """Its first commit comes while what the one before left is swept."""
    filled(here, "gone")
    deleted(here, "gone")
    counting = FaultStore(here.copy(here.root.with_name("counted")).store)
    run_on(counting, here, **OURS)
    raced = 0
    for nth in range(0, len(counting.calls), 12):
        twin = here.copy(here.root.with_name(f"twin{nth}"))
        racing = FaultStore(twin.store)

        def before_call(name: str, key: str, racing: FaultStore = racing, twin: Here = twin, nth: int = nth) -> None:
            if len(racing.calls) == nth:
                racing.before_call = None
                first = twin.commit_job(twin.put("new.csv", "a\n7\n"), commit_id="anew")
                renewed = {"uuid": "gone", "claim": {"owner": "cluster/default/gone", "incarnation": "another"}}
                result, code = twin.run({**first, "dataset": renewed})
                assert code == ExitCode.DONE, result

        racing.before_call = before_call
        run_on(racing, twin, **OURS)
        if racing.before_call is not None:
            continue  # threads made fewer calls this time
        raced += 1
        snapshot = DatasetLog(twin.store, "gone").snapshot()
        assert all(twin.store.stat(key) for key in snapshot.head.files().values()), nth
        assert len(snapshot.head.partitions) == 1
    assert raced > 2
