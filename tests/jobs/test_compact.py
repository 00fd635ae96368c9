"""Compaction through jobs: in the process and with Spark, once, and in nobody's way."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from kubothek.api.jobs import JOB, CompactJob, CompactOutcome, ExitCode, JobResult
from kubothek.jobs import compact
from kubothek.jobs.progress import Reporter
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.log import Operation, Transaction
from kubothek.table.log.model import keys
from kubothek.table.operations import delete
from tests.faultstore import WRITES, FaultStore
from tests.jobs.conftest import ALL_IN_PROCESS, Here

pytestmark = pytest.mark.slow

TABLE = {"partition_on": ["p"]}


def filled(here: Here, files: int = 4, **table: Any) -> None:
    """Commits of two partitions each."""
    from_bytes, here.from_bytes = here.from_bytes, ALL_IN_PROCESS
    for number in range(files):
        rows = "".join(f"{n % 2},{10 * number + n},x{n}\n" for n in range(10))
        here.put(f"{number}.csv", f"p,v,w\n{rows}")
        here.commit(f"{number}.csv", commit_id=f"c{number}", table=TABLE | table)
    here.from_bytes = from_bytes


def job(here: Here, commit_id: str = "compaction:default/now", **more: Any) -> dict[str, Any]:
    table = {name: more.pop(name) for name in ("sort_by", "bucket_by", "num_buckets", "indices") if name in more}
    return {
        **here.job("compact", **TABLE, **table),
        "commit_id": commit_id,
        "digest": commit_id,
        "spark": {"from_bytes": here.from_bytes, "conf": {"spark.master": "local[2]"}},
        **more,
    }


def run(here: Here, *commit_id: str, **more: Any) -> tuple[JobResult, CompactOutcome]:
    result, code = here.run(job(here, *commit_id, **more))
    assert code == ExitCode.DONE, result
    assert result.compact is not None
    return result, result.compact


def run_on(store: Store, here: Here, **more: Any) -> CompactOutcome:
    parsed = JOB.validate_python(job(here, **more))
    assert isinstance(parsed, CompactJob)
    done = compact.run(parsed, store, Reporter(here.said)).compact
    assert done is not None
    return done


def test_compact_job_merges_small_files_and_keeps_rows(either: Here) -> None:
    filled(either)
    before = either.rows()
    result, done = run(either)
    assert (done.version, done.partitions, done.files_before, done.files_after) == (5, 2, 8, 2)
    assert 0 < done.bytes_after < done.bytes_before
    assert (done.given_way, done.already_applied) == (0, False)
    assert either.rows() == before
    assert result.dataset is not None
    assert (result.dataset.version, result.dataset.totals.files) == (5, 2)
    assert result.dataset.health is not None
    assert (result.dataset.health.version, result.dataset.health.worst_partition_small_files) == (5, 0)
    assert result.message.startswith("version 5: 8 files (")
    assert next(iter(either.log.history())).operation is Operation.COMPACT
    stages = [line["stage"] for line in either.progress()]
    assert list(dict.fromkeys(stages[stages.index("Planning") :])) == ["Planning", "Rewriting", "Committing"]
    assert either.sessions == (1 if either.from_bytes == 0 else 0)


def test_compact_job_uses_clustering_of_dataset_unless_run_sets_one(here: Here) -> None:
    filled(here)
    given = job(here)
    given["dataset"]["clustering"] = {"by": ["w", "v"], "curve": True}
    given["min_files"] = 5
    result, _ = here.run(given)
    assert result.compact == CompactOutcome()
    assert result.dataset is not None
    assert result.dataset.health is not None
    assert result.dataset.health.worst_partition_small_files == 4, "files that are not in order"
    before = here.rows()
    result, _ = here.run({**given, "commit_id": "a", "min_files": 2})
    assert result.compact is not None
    assert (result.compact.files_before, result.compact.files_after) == (8, 2)
    assert result.dataset is not None
    assert result.dataset.health is not None
    assert result.dataset.health.worst_partition_small_files == 0
    assert here.run({**given, "commit_id": "b"})[0].compact == CompactOutcome()
    here.put("more.csv", "p,v,w\n0,7,y\n1,7,y\n")
    here.commit("more.csv", commit_id="more", table=TABLE)
    result, _ = here.run({**given, "commit_id": "c", "min_files": 2, "clustering": {"by": ["v"]}})
    assert result.compact is not None
    assert (result.compact.files_before, result.compact.files_after) == (4, 2), "in another order"
    more = [{"v": 7, "w": "y", "p": p} for p in "01"]
    assert sorted(here.rows(), key=repr) == sorted([*before, *more], key=repr)
    for key in here.snapshot().head.files().values():
        values: list[Any] = pq.read_table(here.root / key)["v"].to_pylist()
        assert values == sorted(values)


def test_compact_job_with_unknown_sort_column_is_refused(here: Here) -> None:
    filled(here, 2)
    head = here.head()
    result, code = here.run(job(here, clustering={"by": ["nope"]}))
    assert (result.reason, code) == ("LayoutInvalid", ExitCode.INVALID)
    assert "sortBy names column 'nope'" in result.message
    assert here.head() == head


def test_compact_job_rerun_returns_first_result(here: Here) -> None:
    filled(here)
    _, first = run(here)
    head = here.head()
    result, again = run(here)
    assert again == first.model_copy(update={"already_applied": True})
    assert result.message == "version 5 had made this change before"
    assert here.head() == head


def test_compact_job_rerun_after_later_commits_returns_already_applied(here: Here) -> None:
    filled(here)
    _, first = run(here)
    here.put("more.csv", "p,v,w\n1,1,y\n")
    here.commit("more.csv", commit_id="more", table=TABLE)
    _, again = run(here)
    assert again == first.model_copy(update={"already_applied": True})
    for record in [*here.log.history()][2:]:
        (here.root / record.key).unlink()
    _, again = run(here)
    assert (again.version, again.already_applied, again.files_before, again.files_after) == (5, True, 0, 2)


def test_compact_job_without_small_files_commits_nothing(here: Here) -> None:
    filled(here)
    run(here)
    head = here.head()
    result, done = run(here, "compaction:default/later")
    assert done == CompactOutcome()
    assert result.message == "nothing to compact"
    assert here.head() == head


def test_compact_dry_run_reports_files_to_rewrite(here: Here) -> None:
    filled(here)
    before = {info.key for info in here.store.list("")}
    result, done = run(here, dry_run=True)
    assert (done.version, done.partitions, done.files_before) == (None, 2, 8)
    assert done.bytes_before > 0
    assert "of 8 would be rewritten" in result.message
    assert {info.key for info in here.store.list("")} - before == {".kubothek/flights/jobs/uid-of-compact.json"}
    run(here)
    assert run(here, dry_run=True)[0].message == "nothing to compact (2 files)"


@pytest.mark.parametrize(
    ("wish", "rewritten"),
    [
        ({"where": "p = 1"}, 4),
        ({"min_files": 5}, 0),
        ({"min_small_percent": 100}, 8),
        ({"target_file_bytes": 64}, 0),
    ],
)
def test_compact_job_applies_requested_filter_and_thresholds(here: Here, wish: dict[str, Any], rewritten: int) -> None:
    filled(here)
    assert run(here, **wish)[1].files_before == rewritten


def test_compact_job_writes_files_in_requested_layout(here: Here) -> None:
    filled(here)
    run(here, sort_by=["w"])
    for key in here.snapshot().head.files().values():
        values: list[Any] = pq.read_table(here.root / key).column("w").to_pylist()
        assert values == sorted(values)
        assert len(values) == 20


def test_compact_job_keeps_indices_ready(here: Here) -> None:
    filled(here, indices=[{"column": "v", "kind": "Native"}, {"column": "w", "kind": "Kartothek"}])
    result, _ = run(here)
    assert result.dataset is not None
    assert [(index.column, index.state) for index in result.dataset.indices] == [("v", "Ready"), ("w", "Ready")]


def beaten(here: Here, where: str) -> CompactOutcome:
    """A compaction during which, as soon as it writes a file, another commit deletes some rows."""
    store = FaultStore(here.store)

    def condemn(call: str, key: str) -> None:
        if call in WRITES and key.endswith(".parquet"):
            store.before_call = None
            started = here.log.begin("deletion", "d")
            assert isinstance(started, Transaction)
            started.commit(delete(here.store, started.snapshot, parse(where)))

    store.before_call = condemn
    done = run_on(store, here)
    assert store.before_call is None
    return done


def test_compact_job_skips_partitions_changed_by_concurrent_commit(here: Here) -> None:
    filled(here)
    done = beaten(here, "p = 1")
    assert (done.version, done.partitions, done.files_before, done.given_way) == (6, 1, 4, 1)
    assert {row["p"] for row in here.rows()} == {"0"}


def test_compact_job_with_all_partitions_changed_commits_nothing(here: Here) -> None:
    filled(here)
    done = beaten(here, "TRUE")
    assert (done.version, done.given_way, done.files_before) == (None, 2, 0)
    assert here.rows() == []
    assert here.snapshot().version == 5


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"where": "v = 1"}, "FilterInvalid"),
        ({"where": "p ="}, "FilterInvalid"),
        ({"where": "q = 1"}, "FilterInvalid"),
        ({"sort_by": ["nope"]}, "LayoutInvalid"),
        ({"bucket_by": ["nope"], "num_buckets": 2}, "LayoutInvalid"),
        ({"target_file_bytes": 0}, "LayoutInvalid"),
        ({"commit_id": "c1"}, "IdReused"),
        ({"commit_id": "kubothek:own"}, "InvalidInput"),
    ],
)
def test_compact_job_with_invalid_request_is_refused_before_writing(
    here: Here, more: dict[str, Any], reason: str
) -> None:
    filled(here)
    before = {info.key: info.etag for info in here.store.list("")}
    for dry_run in (False, *([] if "commit_id" in more else [True])):
        result, code = here.run(job(here, **more, dry_run=dry_run))
        assert (result.reason, result.retryable, code) == (reason, False, ExitCode.INVALID)
    after = {info.key: info.etag for info in here.store.list("") if "/jobs/" not in info.key}
    assert after == {key: etag for key, etag in before.items() if "/jobs/" not in key}


def test_compact_job_of_missing_table_is_refused_without_claim(here: Here) -> None:
    result, code = here.run(job(here))
    assert (result.reason, code) == ("DatasetNotFound", ExitCode.INVALID)
    assert not (here.root / ".kubothek/flights/owner.json").exists()


def test_compact_job_of_deleted_table_is_refused(here: Here) -> None:
    filled(here)
    here.run(here.job("delete"))
    result, _ = here.run(job(here))
    assert (result.outcome, result.retryable) == ("Failed", False)
    assert "deleted" in result.message


def test_compact_job_of_table_with_other_owner_is_refused(here: Here) -> None:
    filled(here)
    stranger = {"uuid": "flights", "claim": {"owner": "cluster/other/x", "incarnation": "i"}, "table": TABLE}
    result, code = here.run({**job(here), "dataset": stranger})
    assert (result.reason, code) == ("OwnedByAnother", ExitCode.FENCED)


def test_compact_job_with_lost_files_names_files_and_leaves_note(either: Here) -> None:
    filled(either)
    lost = sorted(either.snapshot().head.files().values())[:2]
    for key in lost:
        (either.root / key).unlink()
    head = either.head()
    result, code = either.run(job(either))
    assert (result.reason, result.retryable, code) == ("VersionIncomplete", False, ExitCode.INVALID)
    assert either.head() == head
    assert all(key in result.message for key in lost)
    assert result.dataset is not None
    assert result.dataset.corrupt is not None
    assert "2 data files are lost" in result.dataset.corrupt
    assert either.store.get(keys.lost("flights"))


def test_compact_job_of_complete_partition_ignores_lost_file_elsewhere(here: Here) -> None:
    filled(here)
    (lost,) = [key for key in here.snapshot().head.files().values() if "/p=1/" in key][:1]
    (here.root / lost).unlink()
    assert run(here, where="p = 0")[1].files_before == 4
