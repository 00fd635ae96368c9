"""The job: real files of real formats, from what lands to rows and a result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kubothek.api.jobs import JOB, RESULT_LIMIT_BYTES, ExitCode, IntakeJob, IntakeOutcome, JobResult
from kubothek.errors import StoreUnavailable
from kubothek.jobs import intake
from kubothek.jobs import outcome as outcomes
from kubothek.jobs.ingest import write_source
from kubothek.jobs.progress import Reporter
from kubothek.storage import StoreConfig, open_store
from kubothek.table.operations import Written
from tests.faultstore import Fault, FaultStore
from tests.jobs.conftest import ALL_IN_PROCESS, Here
from tests.s3server import S3Server

pytestmark = pytest.mark.slow


class Landing(Here):
    """A store in which files land, and a source of a dataset that takes them."""

    def intake_job(self, table: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        given = {
            **self._job("intake", table or {}),
            "name": "landing",
            "source": {"format": "CSV"},
            "prefix": "landing/",
            "max_files": 1000,
            "max_bytes": 1 << 30,
            "reading": "r1",
            "spark": {"from_bytes": ALL_IN_PROCESS},
        }
        return given | fields

    def take(self, **fields: Any) -> IntakeOutcome:
        """A look that must succeed."""
        result, code = self.run(self.intake_job(**fields))
        assert code == 0, result
        assert result.intake is not None
        return result.intake

    def refuses(self, reason: str, **fields: Any) -> JobResult:
        result, code = self.run(self.intake_job(**fields))
        assert (result.reason, code) == (reason, ExitCode.INVALID)
        return result


@pytest.fixture
def here(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "lake")


def test_ingestion_batch_never_mixes_times_with_and_without_zone(here: Landing) -> None:
    for name, time in (("a", "2025-01-01T00:00:00Z"), ("b", "2025-01-01T00:00:00"), ("c", "2025-01-01T01:00:00+01:00")):
        here.put(f"landing/{name}.csv", f"t,v\n{time},1\n")
    outcome = here.take(quarantine=True)
    assert (outcome.version, outcome.files, outcome.rows, outcome.quarantined) == (1, 2, 2, 1)
    assert here.snapshot().head.metadata["kubothek_zones"] == {"t": "UTC"}


def test_landed_files_are_in_table_and_result_reports_counts(here: Landing) -> None:
    here.put("landing/a.csv", "p,v\n1,1\n2,2\n")
    here.put("landing/b.csv", "p,v\n1,3\n")
    here.put("landing/_SUCCESS", "")
    outcome = here.take(table={"partition_on": ["p"]})
    assert (outcome.version, outcome.commits, outcome.files, outcome.rows, outcome.taken) == (1, 1, 2, 3, 2)
    assert (outcome.waiting_files, outcome.quarantined, outcome.stalled) == (0, 0, None)
    assert outcome.last_file == "landing/b.csv"
    assert [row["v"] for row in here.rows("v")] == [1, 2, 3]
    again = here.take(table={"partition_on": ["p"]})
    assert (again.commits, again.taken, again.last_file) == (0, 2, "landing/b.csv")


@pytest.mark.parametrize(
    ("fmt", "data"),
    [
        ("JSONLines", '{"v": 1}\n{"v": 2}\n'),
        ("Parquet", pa.table({"v": [1, 2]})),
        ("CSV", "v\n1\n2\n"),
    ],
)
def test_landed_files_of_every_format_are_ingested(here: Landing, fmt: str, data: str | pa.Table) -> None:
    here.put("landing/x", data)
    assert here.take(source={"format": fmt}).rows == 2
    assert [row["v"] for row in here.rows()] == [1, 2]


def test_landed_files_in_other_store_are_ingested(here: Landing, tmp_path: Path) -> None:
    other = Here(tmp_path / "other")
    other.put("in/2026/a.csv", "v\n1\n")
    other.put("in/2026/a.txt", "no csv")
    source = {"format": "CSV", "store": {"name": "other", "url": other.root.as_uri()}}
    assert here.take(source=source, prefix="", glob="in/**/*.csv").rows == 1


def test_prefix_that_contains_dataset_excludes_dataset_files(here: Landing) -> None:
    here.put("a.parquet", pa.table({"v": [1]}))
    everything = {"prefix": "", "glob": "**", "source": {"format": "Parquet"}}
    assert here.take(**everything).files == 1
    assert here.take(**everything).files == 0


def test_bad_file_stalls_source_and_names_file_column_and_row(here: Landing) -> None:
    columns = [{"name": "v", "type": "int64"}]
    here.put("landing/a.csv", "v\n1\n")
    here.put("landing/b.csv", "v\n2\nx\n")
    os.utime(here.root / "landing/a.csv", (1, 1))
    outcome = here.take(source={"format": "CSV", "columns": columns})
    assert outcome.stalled is not None
    assert outcome.stalled.key == "landing/b.csv"
    assert outcome.stalled.problem.startswith("DataTypeMismatch: ")
    assert all(word in outcome.stalled.problem for word in ("'landing/b.csv'", "'v'", "row 2", "'x'"))
    assert (outcome.files, outcome.waiting_files) == (1, 1)
    here.put("landing/b.csv", "v\n2\n3\n")
    goes_on = here.take(source={"format": "CSV", "columns": columns}, stalled=outcome.stalled.model_dump())
    assert (goes_on.stalled, goes_on.files) == (None, 1)
    assert [row["v"] for row in here.rows()] == [1, 2, 3]


def test_quarantine_skips_files_with_every_kind_of_damage(here: Landing) -> None:
    good = [f"landing/{i}.csv" for i in range(5)]
    for i, name in enumerate(good):
        here.put(name, f"v,w\n{i},x\n")
    bad: dict[str, str | bytes] = {
        "type": "v,w\nx,y\n",
        "columns": "v,z\n1,2\n",
        "quote": 'v,w\n1,"x\n',
        "utf16": "v,w\n1,x\n".encode("utf-16"),
    }
    here.take()
    for name, data in bad.items():
        here.put(f"landing/{name}.csv", data)
    here.put("landing/9.csv", "v,w\n9,x\n")
    outcome = here.take(quarantine=True)
    assert (outcome.files, outcome.refused, outcome.quarantined, outcome.waiting_files) == (1, 4, 4, 0)
    assert outcome.refusal is not None
    assert here.take(quarantine=True).commits == 0
    assert sorted(row["v"] for row in here.rows()) == [0, 1, 2, 3, 4, 9]


def test_null_in_partition_column_is_fault_of_file(here: Landing) -> None:
    table = {"partition_on": ["p"]}
    here.put("landing/a.csv", "p,v\n1,1\n")
    here.take(table=table)
    here.put("landing/b.csv", "p,v\n,2\n")
    assert here.take(table=table, quarantine=True).refused == 1


def test_evolving_table_ingests_new_columns_beside_bad_files(here: Landing) -> None:
    table = {"schema_evolution": "Compatible", "indices": [{"column": "v", "kind": "Native"}]}
    here.put("landing/a.csv", "v\n1\n")
    here.take(table=table)
    here.put("landing/b.csv", "v,w\n2,x\n")
    here.put("landing/c.csv", 'v,w\n"3\n')
    here.put("landing/d.csv", "v\n4\n")
    outcome = here.take(table=table, quarantine=True)
    assert (outcome.files, outcome.refused) == (2, 1)
    snapshot = here.snapshot()
    assert snapshot.schema is not None
    assert set(snapshot.schema.names) == {"v", "w"}
    assert sorted(row["v"] for row in here.rows("v")) == [1, 2, 4]


def test_manifest_error_is_not_blamed_on_file(here: Landing) -> None:
    here.put("landing/a.csv", "p,v\n1,1\n")
    here.take(table={"partition_on": ["p"]})
    head = here.head()
    here.put("landing/b.csv", "p,v\n1,2\n")
    here.refuses("PartitionInvalid", table={"partition_on": ["v"]}, quarantine=True)
    contract = [{"name": "p", "type": "string"}, {"name": "v", "type": "string"}]
    here.refuses("SchemaMismatch", table={"partition_on": ["p"], "columns": contract}, quarantine=True)
    assert here.head() == head


def test_file_with_header_only_counts_as_ingested(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    here.put("landing/b.csv", "v\n")
    outcome = here.take()
    assert (outcome.files, outcome.rows, outcome.taken) == (1, 0, 2)
    assert here.take().commits == 0


def test_replace_ingestion_replaces_partitions_of_each_file(here: Landing) -> None:
    table = {"partition_on": ["p"]}
    for number, (name, data) in enumerate({"c": "p,v\n1,1\n2,1\n", "b": "p,v\n1,2\n", "a": "p,v\n3,3\n1,3\n"}.items()):
        here.put(f"landing/{name}.csv", data)
        os.utime(here.root / f"landing/{name}.csv", (number, number))
    outcome = here.take(table=table, operation="Replace")
    assert (outcome.commits, outcome.files) == (3, 3)
    assert [(row["p"], row["v"]) for row in here.rows("p")] == [("1", 3), ("2", 1), ("3", 3)]
    assert here.take(table=table, operation="Replace").commits == 0


def test_replace_ingestion_without_partitions_is_refused(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    here.put("landing/b.csv", "v\n2\n")
    head = here.head()
    here.refuses("FilterMatchesAll", operation="Replace", quarantine=True)
    assert here.head() == head


def test_result_with_long_names_and_errors_fits_termination_message(here: Landing) -> None:
    directory = "/".join("ä" * 100 for _ in range(4))
    here.put(f"landing/{directory}/a.csv", "v\n1\n")
    here.take()
    here.put(f"landing/{directory}/b.csv", f"v\n{'y' * 5000}\n")
    result, _ = here.run(here.intake_job())
    assert len(outcomes.render(result)) <= RESULT_LIMIT_BYTES
    assert result.intake is not None
    assert result.intake.stalled is not None


def test_unavailable_store_during_ingestion_is_retried(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    job = JOB.validate_python(here.intake_job())
    assert isinstance(job, IntakeJob)
    away = FaultStore(here.store, Fault(("put_if_absent",), key="/intake/", error=StoreUnavailable("away")))
    with pytest.raises(StoreUnavailable):
        intake.run(job, away, Reporter(here.said))
    assert here.take().files == 1
    assert [row["v"] for row in here.rows()] == [1]


def test_ingestion_after_cluster_rebuild_repeats_no_file(here: Landing) -> None:
    """All that is left is the bucket; the Dataset is another resource of the same name."""
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    job = here.intake_job()
    job["dataset"]["claim"] = {"owner": job["dataset"]["claim"]["owner"], "incarnation": "uid-2"}
    result, code = here.run(job)
    assert (code, result.intake and result.intake.commits) == (0, 0)


def test_ingestion_into_recreated_dataset_starts_from_scratch(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    here.run(here.job("delete"))
    job = here.intake_job()
    job["dataset"]["claim"] = {"owner": job["dataset"]["claim"]["owner"], "incarnation": "uid-2"}
    result, code = here.run(job)
    assert (code, result.intake and result.intake.files) == (0, 1)
    assert [row["v"] for row in here.rows()] == [1]


def test_rollback_removes_rows_and_does_not_ingest_files_again(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    here.put("landing/b.csv", "v\n2\n")
    here.take()
    rollback = here.commit_job() | {"operation": "Rollback", "to_version": 1, "source": None}
    result, code = here.run(rollback)
    assert code == 0, result
    assert here.take().files == 0
    assert [row["v"] for row in here.rows()] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "nth", "after"), [("put_if_match", 2, True), ("put_if_absent", 3, False), ("upload", 3, True)]
)
def test_killed_ingestion_job_repeats_no_file(here: Landing, call: str, nth: int, after: bool) -> None:
    for i in range(6):
        here.put(f"landing/{i}.csv", f"v\n{i}\n")
    path = here.write(here.intake_job(max_files=2))
    script = (
        "import sys; from tests.faultstore import Fault, FaultStore; from kubothek.jobs import main\n"
        "real = main.open_store\n"
        f"fault = Fault(({call!r},), nth={nth}, after={after}, kill=True)\n"
        "main.open_store = lambda config: FaultStore(real(config), fault)\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    died = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    here.take()
    assert [row["v"] for row in here.rows("v")] == list(range(6))


@pytest.mark.s3
def test_s3_file_overwritten_during_read_is_left_for_next_poll(
    here: Landing, s3: S3Server, secret: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = StoreConfig(f"s3://{bucket}", s3.endpoint, s3.region, str(secret))
    here.store = open_store(config)
    where = {"name": "lake", "url": config.url, "endpoint": s3.endpoint, "region": s3.region}
    job = here.intake_job() | {"store": where | {"credentials_dir": str(secret)}}
    here.store.put("landing/a.csv", b"v\n1\n")
    here.store.put("landing/b.csv", b"v\n2\n")

    def then_overwritten(*args: Any, **options: Any) -> Written:
        written = write_source(*args, **options)
        monkeypatch.undo()
        here.store.put("landing/a.csv", b"v\n3\n")
        return written

    monkeypatch.setattr(intake, "write_source", then_overwritten)
    first, second, third = (here.run(job)[0].intake for _ in range(3))
    assert (first and first.files, second and second.files, third and third.files) == (1, 1, 0)
    assert [row["v"] for row in here.rows("v")] == [2, 3]


def _told(here: Landing) -> list[str]:
    return [json.loads(line)["progress"]["stage"] for line in here.said.getvalue().splitlines()]


def test_ingestion_job_reports_progress_phases(here: Landing) -> None:
    here.put("landing/a.csv", "v\n1\n")
    here.take()
    assert _told(here) == ["Starting", "Reading", "Writing", "Committing"]


@pytest.mark.parametrize(
    ("fmt", "bad", "good"),
    [
        ("JSONLines", '{"v": 1, "a":' + "[" * 20_000 + "]" * 20_000 + "}\n", '{"v": 1}\n'),
        ("CSV", "v,w\nGenève,1,2\n".encode("latin-1"), "v\n1\n"),
        ("Parquet", b"PAR1" + bytes(60) + b"PAR1", pa.table({"v": [1]})),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Arrow quotes the row of the CSV file
def test_bad_first_file_of_new_dataset_is_quarantined(
    here: Landing, fmt: str, bad: bytes | str, good: str | pa.Table
) -> None:
    here.put("landing/a", bad)
    here.put("landing/b", good)
    found = here.take(source={"format": fmt}, quarantine=True)
    assert (found.rows, found.quarantined, found.waiting_files) == (1, 1, 0)
    assert found.refusal is not None
    assert found.refusal.startswith("SourceCorrupt: 'landing/a'")
