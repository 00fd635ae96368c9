"""Jobs that keep skipping metadata: of a table, as its Dataset says, and of files that nobody owns."""

from __future__ import annotations

from typing import Any

import pytest

import kubothek
from kubothek.api.jobs import ExitCode, JobResult, SkippingIndexSpec
from kubothek.table.expressions import parse
from kubothek.table.scan.plan import SKIPPING_STEP, plan
from tests.jobs.conftest import UUID, Here

pytestmark = pytest.mark.slow

MINMAX = {"type": "MinMax", "columns": ["id"]}
BLOOM = {"type": "BloomFilter", "columns": ["name"]}
PREFIX = {"type": "Prefix", "columns": ["name"], "params": {"length": "6"}}


def rows(number: int) -> str:
    """Ids that ascend from file to file, names that do not."""
    lines = (f"{number * 1000 + n},name-{n * 7919 % 1000:03}-{number}" for n in range(400))
    return "\n".join(["id,name", *lines, ""])


def fill(here: Here, files: int = 4, **table: Any) -> None:
    for number in range(files):
        here.put(f"in/{number}.csv", rows(number))
        here.commit(f"in/{number}.csv", commit_id=f"c{number}", table=table)


def skip(here: Here, *indices: dict[str, Any], auto: bool = False, **changes: Any) -> JobResult:
    job = here.job("skip", skipping={"indices": indices, "auto": auto})
    spark = {"from_bytes": here.from_bytes, "conf": {"spark.master": "local[2]"}}
    result, code = here.run({**job, "spark": spark, **changes})
    assert code == ExitCode.DONE, result
    return result


def opened(here: Here, where: str) -> int:
    """How many files skipping metadata leaves; statistics of the files would leave fewer still."""
    steps = dict(plan(here.store, here.snapshot(), parse(where)).steps)
    return steps[SKIPPING_STEP]


def kinds(result: JobResult) -> list[str]:
    assert result.dataset is not None
    found = result.dataset.skipping
    return [] if found is None else [each.type for each in found.indices]


def test_skip_job_describes_existing_files_and_commits_describe_new_ones(either: Here) -> None:
    fill(either)
    result = skip(either, MINMAX, BLOOM, PREFIX)
    assert result.message == "version 5: 4 files described"
    assert result.dataset is not None
    found = result.dataset.skipping
    assert found is not None
    assert found.indices == tuple(map(SkippingIndexSpec.model_validate, (MINMAX, BLOOM, PREFIX)))
    assert (found.files, found.bytes > 0) == (4, True)
    assert opened(either, "id = 2050") == 1
    assert opened(either, "name = 'name-919-2'") == 1
    assert opened(either, "name LIKE 'zebra%'") == 0
    assert either.sessions == (either.from_bytes == 0) * 5
    either.put("in/9.csv", rows(9))
    after = either.commit("in/9.csv", commit_id="c9")
    assert after.dataset is not None
    assert after.dataset.skipping is not None
    assert after.dataset.skipping.files == 5
    assert opened(either, "id = 9050") == 1


def test_first_commit_job_describes_its_files_for_skipping(either: Here) -> None:
    wanted = {"skipping": {"indices": [MINMAX, BLOOM, PREFIX], "auto": True}}
    either.put("in/0.csv", rows(0))
    first = either.commit("in/0.csv", commit_id="c0", table=wanted)
    assert kinds(first) == ["MinMax", "BloomFilter", "Prefix"]
    assert first.dataset is not None
    assert first.dataset.skipping is not None
    assert (first.dataset.version, first.dataset.skipping.files) == (1, 1)
    assert [opened(either, where) for where in ("id = 50", "id = 2050", "name = 'name-919-2'")] == [1, 0, 0]
    assert skip(either, MINMAX, BLOOM, PREFIX).message == "the skipping metadata is up to date"


@pytest.mark.parametrize(
    "skipping",
    [
        {"indices": [{"type": "MinMax", "columns": ["nothing"]}]},
        {"indices": [{**MINMAX, "key": "pay"}]},
        {"indices": [{**MINMAX, "key": "pay"}], "footer_key": "footer"},
    ],
    ids=["no such column", "no footer key", "no key at hand"],
)
def test_first_commit_job_with_invalid_skipping_keeps_rows(here: Here, skipping: dict[str, Any]) -> None:
    here.put("in/0.csv", rows(0))
    assert kinds(here.commit("in/0.csv", commit_id="c0", table={"skipping": skipping})) == []
    totals = here.snapshot().totals
    assert totals is not None
    assert totals.rows == 400
    result, code = here.run({**here.job("skip", skipping=skipping), "spark": {}})
    assert (code, result.reason) != (ExitCode.DONE, "Succeeded")
    assert result.reason in ("SkippingInvalid", "SkippingUnreadable")


def test_query_job_describes_its_rows_for_skipping_in_same_commit(here: Here) -> None:
    fill(here)
    store = {"name": "lake", "url": here.root.as_uri()}
    claim = {"owner": "cluster/team/few", "incarnation": "u"}
    table = {"skipping": {"indices": [MINMAX]}}
    target = {"uuid": "few", "claim": claim, "table": table}
    for attempt, where in enumerate(("id < 5", "id > 5 AND id < 9"), 1):
        job = {
            "verb": "query",
            "job": f"few-query-{attempt}",
            "uid": f"u{attempt}",
            "store": store,
            "sql": f"SELECT id, name FROM {UUID} WHERE {where}",
            "becomes": {"store": store, "dataset": target, "commit_id": f"query:few-{attempt}"},
        }
        result, code = here.run(job)
        assert code == ExitCode.DONE, result
        assert result.dataset is not None
        assert result.dataset.skipping is not None
        assert (kinds(result), result.dataset.skipping.files) == (["MinMax"], 1)


def test_skip_job_rerun_changes_nothing_and_no_list_keeps_indices(here: Here) -> None:
    fill(here)
    skip(here, MINMAX)
    again = skip(here, MINMAX)
    assert again.message == "the skipping metadata is up to date"
    kept, code = here.run({**here.job("skip"), "spark": {}})
    assert (code, kinds(kept)) == (ExitCode.DONE, ["MinMax"])
    assert here.snapshot().version == 5
    assert kinds(skip(here, BLOOM)) == ["BloomFilter"]
    assert opened(here, "id = 2050") == 4
    assert kinds(skip(here)) == []
    assert here.snapshot().head.skipping.parts == ()


def test_skip_job_with_auto_uses_values_and_queries_and_keeps_choices(here: Here) -> None:
    fill(here)
    assert kinds(skip(here, auto=True)) == ["MinMax"], "ids are clustered, names are all over"
    seen = [{"column": "name", "kind": "Equal", "queries": 3}]
    assert kinds(skip(here, auto=True, seen=seen)) == ["MinMax", "BloomFilter"]
    assert kinds(skip(here, auto=True)) == ["MinMax", "BloomFilter"]
    assert kinds(skip(here, PREFIX, auto=True)) == ["Prefix", "MinMax", "BloomFilter"]
    assert kinds(skip(here, PREFIX)) == ["Prefix"]


def test_skip_job_with_invalid_index_is_refused_and_keeps_table(here: Here) -> None:
    fill(here)
    before = here.head()
    job = here.job("skip", skipping={"indices": [{"type": "MinMax", "columns": ["nothing"]}]})
    result, code = here.run({**job, "spark": {}})
    assert (code, result.reason) == (ExitCode.INVALID, "SkippingInvalid")
    assert "'nothing'" in result.message
    assert here.head() == before


def test_inspect_job_reports_skipping_state(here: Here) -> None:
    fill(here)
    skip(here, MINMAX)
    result, _ = here.run(here.inspect_job())
    (state,) = result.datasets
    assert state.skipping is not None
    assert (state.skipping.files, [each.type for each in state.skipping.indices]) == (4, ["MinMax"])


def test_query_job_reports_skipped_files_and_filters(here: Here) -> None:
    fill(here)
    skip(here, MINMAX)
    store = {"name": "lake", "url": here.root.as_uri()}
    for attempt in (1, 2):  # the second finds the first one's result
        job = {"verb": "query", "job": f"q-query-{attempt}", "uid": "uid-q", "attempt": attempt, "store": store}
        job["sql"] = "SELECT name FROM flights WHERE id BETWEEN 1020 AND 1030"
        result, code = here.run({**job, "location": {"store": store, "path": "out", "format": "CSV"}})
        assert code == ExitCode.DONE, result
        assert result.query is not None
        (read,) = result.query.reads
        assert (read.considered, read.skipped, read.files, read.filters) == (4, 3, 1, ("id:Range",))


# --- files that nobody owns ------------------------------------------------------------------------------------------


def files_job(here: Here, *indices: dict[str, Any], auto: bool = False, **changes: Any) -> dict[str, Any]:
    store = {"name": "lake", "url": here.root.as_uri()}
    return {
        "verb": "skip-files",
        "job": "trips-skip-1",
        "uid": "uid-trips",
        "store": store,
        "name": "team.trips",
        "files": {"store": store, "prefix": "landing/trips", "format": "CSV"},
        "skipping": {"indices": indices, "auto": auto},
        "spark": {"from_bytes": here.from_bytes, "conf": {"spark.master": "local[2]"}},
        **changes,
    }


def test_skip_files_job_describes_refreshes_and_drops_plain_files(either: Here) -> None:
    for number in range(4):
        either.put(f"landing/trips/{number}.csv", rows(number))
    result, code = either.run(files_job(either, MINMAX, PREFIX))
    assert code == ExitCode.DONE, result
    assert result.message == "4 of 4 files described (4 new)"
    done = result.skip_files
    assert done is not None
    assert (done.files, done.described, done.added, done.location) == (
        4,
        4,
        4,
        ".kubothek/++plain/team.trips/xskipper/",
    )
    assert [each.type for each in done.indices] == ["MinMax", "Prefix"]
    lake = kubothek.open(either.root.as_uri())
    assert lake.sql("SELECT count(*) AS n FROM trips WHERE id >= 2250").read_all().to_pylist() == [{"n": 550}]
    either.put("landing/trips/1.csv", rows(7))
    result, _ = either.run(files_job(either, MINMAX, PREFIX))
    assert result.message == "4 of 4 files described (1 new, 1 gone)"
    assert either.sessions == (either.from_bytes == 0) * 2
    result, code = either.run(files_job(either, MINMAX, drop=True))
    assert (code, list(either.store.list(".kubothek/++plain/"))) == (ExitCode.DONE, [])


def test_skip_files_job_with_auto_chooses_indices(here: Here) -> None:
    for number in range(4):
        here.put(f"landing/trips/{number}.csv", rows(number))
    result, code = here.run(files_job(here, auto=True))
    assert code == ExitCode.DONE, result
    assert result.skip_files is not None
    assert result.skip_files.indices == (SkippingIndexSpec.model_validate(MINMAX),)


def test_skip_files_job_names_unreadable_file(here: Here) -> None:
    here.put("landing/trips/0.csv", rows(0))
    here.put("landing/trips/1.csv", "id,name\nno number,x\n")
    result, code = here.run(files_job(here, MINMAX))
    assert code == ExitCode.DONE, result
    assert result.skip_files is not None
    (why,) = result.skip_files.left_out
    assert why.startswith("landing/trips/1.csv: it cannot be read as CSV")
    assert result.message == "1 of 2 files described (1 new)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"skipping": {"indices": [{"type": "MinMax", "columns": ["nothing"]}]}}, "SkippingInvalid"),
        ({"skipping": {"indices": [MINMAX | {"key": "k1"}], "footer_key": "k0"}}, "SkippingUnreadable"),
    ],
)
def test_skip_files_job_with_invalid_request_leaves_no_metadata(
    here: Here, changes: dict[str, Any], reason: str
) -> None:
    here.put("landing/trips/0.csv", rows(0))
    result, code = here.run(files_job(here) | changes)
    assert (code != ExitCode.DONE, result.reason) == (True, reason)
    assert not [info for info in here.store.list(".kubothek/++plain/") if info.key.endswith(".json")]


def test_skip_job_encrypts_metadata_with_keys_of_mounted_secret(here: Here) -> None:
    keys = here.root.with_name("keys")
    keys.mkdir()
    for label in ("k0", "k1"):
        (keys / label).write_bytes(label.encode() * 8)
    fill(here)
    spec = {"indices": [MINMAX | {"key": "k1"}, PREFIX], "footer_key": "k0"}
    job = here.job("skip", skipping=spec)
    store = {**job["store"], "keys_dir": str(keys)}
    result, code = here.run({**job, "store": store, "spark": {}})
    assert code == ExitCode.DONE, result
    assert result.dataset is not None
    assert result.dataset.skipping is not None
    assert (result.dataset.skipping.footer_key, result.dataset.skipping.indices[0].key) == ("k0", "k1")
    (part,) = here.snapshot().head.skipping.parts
    assert here.store.get(part.key)[:4] == b"PARE"
    assert opened(here, "id = 2050") == 4, "without keys nothing is skipped, and nothing is lost"
    with_keys = kubothek.open(here.root.as_uri(), keys_dir=str(keys))
    assert with_keys.dataset(UUID).scan(where="id = 2050").read_all().num_rows == 1
