"""Ledgers through jobs: created, fed by polls and pushes, edited; each thing once, whatever is run again."""

from __future__ import annotations

import base64
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.jobs import ExitCode, JobResult, LedgerState
from kubothek.ingest.fetch import retries
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root
from kubothek.odf.ingest import polling
from kubothek.odf.sources.fetch import poll as fetch
from kubothek.odf.spec.events import DisablePollingSource, SetInfo
from kubothek.odf.spec.identity import OwnerKey
from kubothek.table.layout import Layout as TableLayout
from tests.jobs.conftest import SEED, UUID, Here

pytestmark = pytest.mark.slow

READ: dict[str, Any] = {"kind": "Csv", "header": True, "schema": ["id BIGINT NOT NULL", "name STRING", "seats BIGINT"]}
SNAPSHOT = {"kind": "Snapshot", "primaryKey": ["id"]}
UPSERTS = {"kind": "UpsertStream", "primaryKey": ["id"]}
PUSHED = {"kind": "AddPushSource", "sourceName": "default", "read": READ, "merge": SNAPSHOT}
INFO = {"kind": "SetInfo", "description": "Planes"}


def polled(url: str | Path) -> dict[str, Any]:
    fetch = {"kind": "Url", "url": url.as_uri() if isinstance(url, Path) else url}
    return {"kind": "SetPollingSource", "fetch": fetch, "read": READ, "merge": SNAPSHOT}


def globbed(path: Path) -> dict[str, Any]:
    fetch = {"kind": "FilesGlob", "path": str(path), "order": "ByName"}
    return {**polled("https://x"), "fetch": fetch}


def planes(*rows: tuple[int, str, int]) -> str:
    return "id,name,seats\n" + "".join(f"{number},{name},{seats}\n" for number, name, seats in rows)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    directory = tmp_path / "inbox"
    directory.mkdir()
    return directory


def define(here: Here, *events: Any, identity: Path | None = None, **changes: Any) -> tuple[JobResult, int]:
    job = here.job("ledger", **changes.pop("table", {}))
    directory = None if identity is None else str(identity)
    return here.run(job | {"metadata": events, "identity_dir": directory} | changes)


def defined(here: Here, *events: Any, identity: Path | None = None, **changes: Any) -> LedgerState:
    """What must succeed."""
    result, code = define(here, *events, identity=identity, **changes)
    assert code == ExitCode.DONE, result
    assert result.dataset is not None
    assert result.dataset.ledger is not None
    return result.dataset.ledger


def poll(here: Here, **changes: Any) -> tuple[JobResult, int]:
    return here.run(here.job("poll") | {"allow_local": True, "allowed_hosts": ["*"]} | changes)


def push(here: Here, *paths: str, **changes: Any) -> tuple[JobResult, int]:
    return here.run(here.commit_job(*paths, **changes) | {"push_source": "default"})


def names(here: Here) -> dict[int, str]:
    """The table."""
    rows = here.rows("id")
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def sound(here: Here) -> None:
    verdict = verify(here.store, Layout(f".kubothek/{UUID}/odf/"))
    assert verdict.sound, verdict.first


def test_define_job_creates_chain_once_with_key_of_owner(here: Here, identity: Path) -> None:
    made = defined(here, PUSHED, INFO, identity=identity)
    assert (made.id, made.blocks, made.records) == (str(OwnerKey(SEED).dataset_id), 3, 0)
    assert defined(here, PUSHED, INFO, identity=identity) == made, "again changes nothing"
    assert here.snapshot().version == 1
    sound(here)


@pytest.mark.parametrize(
    "written", [SEED.hex().encode(), base64.b64encode(SEED), base64.b64encode(SEED) + b"\n"], ids=["hex", "b64", "line"]
)
def test_owner_key_is_accepted_as_text(here: Here, identity: Path, written: bytes) -> None:
    (identity / "ed25519").write_bytes(written)
    assert defined(here, identity=identity).id == str(OwnerKey(SEED).dataset_id)


@pytest.mark.parametrize(
    ("written", "told"), [(None, "has no key 'ed25519'"), (b"secret", "is no ed25519 private key")]
)
def test_invalid_owner_key_is_refused_before_creation(
    here: Here, identity: Path, written: bytes | None, told: str
) -> None:
    (identity / "ed25519").unlink()
    if written is not None:
        (identity / "ed25519").write_bytes(written)
    result, code = define(here, INFO, identity=identity)
    assert (code, told in result.message) == (ExitCode.INVALID, True)
    assert here.head() is None
    assert SEED.hex() not in result.message


def test_define_job_after_edit_appends_new_and_disables_removed_source(here: Here, identity: Path, inbox: Path) -> None:
    defined(here, polled(inbox / "planes.csv"), INFO, identity=identity)
    edited = defined(here, PUSHED, INFO)
    assert edited.blocks == 5, "the old source is disabled, the new one is added, nothing else"
    root = Root(here.store, here.log)
    assert (root.state.polling_source, [*root.state.push_sources]) == (None, ["default"])
    events = [block.content.event for block in root.blocks()]
    assert isinstance(events[1], DisablePollingSource)
    assert sum(isinstance(event, SetInfo) for event in events) == 1
    sound(here)


def test_spec_version_decides_the_form_of_later_blocks(here: Here, identity: Path) -> None:
    started = defined(here, PUSHED, identity=identity, spec_version="0.34")
    edited = defined(here, PUSHED, spec_version="0.39")
    assert (edited.blocks, edited.head) == (started.blocks, started.head)
    defined(here, PUSHED, INFO, spec_version="0.39")
    assert [block.dialect for block in Root(here.store, here.log).blocks()] == [3, 2, 2]
    result, code = define(here, {**PUSHED, "merge": UPSERTS}, spec_version="0.34")
    assert (code, result.reason) == (ExitCode.INVALID, "EventInvalid")
    assert "set spec.ledger.specVersion to 0.37 or later" in result.message


def test_define_job_with_invalid_event_leaves_chain_unchanged(here: Here, identity: Path) -> None:
    made = defined(here, PUSHED, identity=identity)
    wrong = {**PUSHED, "merge": {"kind": "Snapshot", "primaryKey": []}}
    result, code = define(here, INFO, wrong)
    assert (code, result.reason) == (ExitCode.INVALID, "EventInvalid")
    assert defined(here, PUSHED) == made, "nor is SetInfo there"


def test_define_job_without_chain_is_refused(here: Here) -> None:
    result, code = define(here, INFO)
    assert (code, "no longer has a chain" in result.message) == (ExitCode.INVALID, True)


def test_poll_job_commits_each_source_change_and_corrects_table(here: Here, identity: Path, inbox: Path) -> None:
    file = inbox / "planes.csv"
    defined(here, polled(file), identity=identity)
    file.write_text(planes((1, "Airbus", 100), (2, "Boeing", 200), (3, "Cessna", 4)))
    result, code = poll(here)
    assert code == ExitCode.DONE, result
    assert result.poll is not None
    assert (result.poll.commits, result.poll.records) == (1, 3)
    assert names(here) == {1: "Airbus", 2: "Boeing", 3: "Cessna"}
    head = here.head()
    again, _ = poll(here)
    assert again.poll is not None
    assert (again.poll.version, again.poll.commits, again.message) == (None, 0, "the source has nothing new")
    assert here.head() == head
    file.write_text(planes((1, "Airbus", 100), (2, "Boeing Company", 200), (4, "Dornier", 30)))
    os.utime(file, (2e9, 2e9))
    changed, _ = poll(here)
    assert changed.poll is not None
    assert changed.poll.records == 4, "a retraction, an addition, and a correction, which is two"
    assert names(here) == {1: "Airbus", 2: "Boeing Company", 4: "Dornier"}
    assert changed.dataset is not None
    chain = changed.dataset.ledger
    assert chain is not None
    assert (chain.records, [source.name for source in chain.sources]) == (7, ["default"])
    assert here.store.stat(Layout(f".kubothek/{UUID}/odf/").root + f"data/{chain.last_slice}").size
    sound(here)


def test_poll_job_reads_files_until_none_are_left(here: Here, identity: Path, inbox: Path) -> None:
    defined(here, {**globbed(inbox / "*.csv"), "merge": {"kind": "Append"}}, identity=identity)
    for number in range(3):
        (inbox / f"{number}.csv").write_text(planes((number, "x", 1)))
    result, code = poll(here)
    assert code == ExitCode.DONE, result
    assert result.poll is not None
    assert (result.poll.commits, result.poll.records) == (3, 3)
    (inbox / "3.csv").write_text(planes((3, "x", 1)) + "no,y,z\n")
    (inbox / "2x.csv").write_text(planes((9, "late", 1)))
    failed, code = poll(here)
    assert code == ExitCode.INVALID
    assert "3.csv" in failed.message
    assert "'id'" in failed.message
    assert set(names(here)) == {0, 1, 2, 9}, "what came before the bad file stays"
    (inbox / "3.csv").write_text(planes((3, "x", 1)))
    assert poll(here)[1] == ExitCode.DONE
    assert set(names(here)) == {0, 1, 2, 3, 9}
    sound(here)


@pytest.mark.parametrize("glob", [True, False], ids=["glob", "url"])
def test_concurrent_poll_jobs_ingest_each_file_once(
    here: Here, identity: Path, inbox: Path, monkeypatch: pytest.MonkeyPatch, glob: bool
) -> None:
    source = globbed(inbox / "*.csv") if glob else polled(inbox / "0.csv")
    defined(here, {**source, "merge": {"kind": "Append"}}, identity=identity)
    for number in range(2):
        (inbox / f"{number}.csv").write_text(planes((number, "x", 1)))
    others = list[JobResult]()

    def overtaken(*arguments: Any) -> Any:
        """While this poll has fetched its first file, another one does everything."""
        found = fetch(*arguments)
        if not others:
            monkeypatch.setattr(polling, "poll", fetch)
            others.append(poll(here)[0])
        return found

    monkeypatch.setattr(polling, "poll", overtaken)
    late, code = poll(here)
    assert code == ExitCode.DONE, late
    (other,) = others
    assert late.poll is not None
    assert other.poll is not None
    assert (other.poll.commits, late.poll.commits) == (2 if glob else 1, 0)
    assert set(names(here)) == ({0, 1} if glob else {0})
    sound(here)


def test_unavailable_source_is_retryable_and_refused_source_is_not(
    here: Here, identity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PAUSES", ())
    defined(here, polled("http://127.0.0.1:9/planes.csv"), identity=identity)
    away, code = poll(here)
    assert (code, away.reason, away.retryable) == (ExitCode.TRANSIENT, "SourceUnavailable", True)
    refused, code = poll(here, allow_local=False, allowed_hosts=["example.org"])
    assert (code, refused.reason, refused.retryable) == (ExitCode.INVALID, "SourceRefused", False)


def test_source_url_expands_only_variables_of_secret(
    here: Here, identity: Path, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", "elsewhere")
    defined(here, polled(f"{inbox.as_uri()}/${{{{ env.FOLDER }}}}/planes.csv"), identity=identity)
    (inbox / "a").mkdir()
    (inbox / "a" / "planes.csv").write_text(planes((1, "x", 1)))
    unknown, code = poll(here)
    assert (code, "FOLDER" in unknown.message) == (ExitCode.INVALID, True)
    secret = tmp_path / "env"
    (secret / "..data").mkdir(parents=True)
    (secret / "FOLDER").write_text("a\n")
    result, code = poll(here, env_dir=str(secret))
    assert code == ExitCode.DONE, result
    assert names(here) == {1: "x"}


def test_push_job_reads_files_as_source_declares_and_is_applied_once(here: Here, identity: Path) -> None:
    defined(here, {**PUSHED, "merge": {"kind": "Ledger", "primaryKey": ["id"]}}, identity=identity)
    here.put("in/a.csv", planes((1, "Airbus", 100), (2, "Boeing", 200)))
    here.put("in/b.json", '{"id": 3, "name": "Cessna", "seats": 4}\n{"id": 1, "name": "again", "seats": 0}\n')
    first, code = push(here, "in/a.csv")
    assert code == ExitCode.DONE, first
    assert first.commit is not None
    assert (first.commit.rows, first.commit.already_applied) == (2, False)
    again, _ = push(here, "in/a.csv")
    assert again.commit is not None
    assert again.commit.already_applied
    other, code = push(here, "in/b.json", commit_id="c2", format="JSONLines")
    assert code == ExitCode.DONE, other
    assert names(here) == {1: "Airbus", 2: "Boeing", 3: "Cessna"}
    assert other.dataset is not None
    assert other.dataset.ledger is not None
    assert other.dataset.ledger.records == 3
    sound(here)


def test_push_job_with_bad_row_names_file_and_column_and_changes_nothing(here: Here, identity: Path) -> None:
    defined(here, PUSHED, identity=identity)
    here.put("in/a.csv", planes((1, "Airbus", 100)) + "2,Boeing,many\n")
    head = here.head()
    result, code = push(here, "in/a.csv")
    assert code == ExitCode.INVALID
    for told in ("in/a.csv", "seats", "many"):
        assert told in result.message
    missing, code = push(here, "in/none.csv", commit_id="c2")
    assert (code, missing.reason) == (ExitCode.INVALID, "SourceNotFound")
    assert here.head() == head


def test_commit_job_on_ledger_is_refused(here: Here, identity: Path) -> None:
    defined(here, PUSHED, identity=identity)
    here.put("in/a.csv", planes((1, "Airbus", 100)))
    assert push(here, "in/a.csv", commit_id="c0")[1] == ExitCode.DONE
    head = here.head()
    result, code = here.run(here.commit_job("in/a.csv"))
    assert (code, result.reason) == (ExitCode.INVALID, "LedgerOnly")
    assert here.head() == head


def test_ledger_without_view_uses_types_of_specification(here: Here, identity: Path) -> None:
    defined(here, PUSHED, identity=identity, view=False, types="Spec")
    here.put("in/a.csv", planes((1, "Airbus", 100)))
    assert push(here, "in/a.csv")[1] == ExitCode.DONE
    assert here.snapshot().head.files() == {}
    schema = Root(here.store, here.log).state.schema
    assert schema is not None
    assert [str(schema.field(name).type) for name in ("offset", "op")] == ["uint64", "uint8"]
    sound(here)


def test_ledger_table_follows_layout_of_manifest_from_next_write(here: Here, identity: Path) -> None:
    table = {"partition_on": ["seats"], "indices": [{"column": "name", "kind": "Native"}]}
    defined(here, PUSHED, identity=identity, table=table)
    here.put("in/a.csv", planes((1, "Airbus", 100), (2, "Boeing", 200)))
    result, code = push(here, "in/a.csv", table=table)
    assert code == ExitCode.DONE, result
    assert {label.partition("/")[0] for label in here.snapshot().head.files()} == {"seats=100", "seats=200"}
    assert result.dataset is not None
    assert ("name", "Ready") in [(index.column, index.state) for index in result.dataset.indices]
    defined(here, PUSHED, table={**table, "sort_by": ["name"]})
    assert TableLayout.of(here.snapshot().head).sort_by == ("name",)


def test_query_with_as_at_returns_records_up_to_event_time(here: Here, identity: Path) -> None:
    read = {**READ, "schema": ["event_time TIMESTAMP", *READ["schema"]]}
    defined(here, {**PUSHED, "read": read, "merge": {"kind": "Append"}}, identity=identity)
    days = "".join(f"2026-11-{day}T00:00:00Z,{day},x,1\n" for day in (22, 20, 21))
    here.put("in/a.csv", f"event_time,id,name,seats\n{days}")
    assert push(here, "in/a.csv")[1] == ExitCode.DONE
    job = here.job("query")
    del job["dataset"]
    location = {"store": job["store"], "path": "out", "format": "CSV"}
    asked = {"sql": "SELECT id FROM flights ORDER BY id", "location": location}
    for moment, ids in (("2026-11-21T00:00:00Z", [20, 21]), ("2026-11-21T01:00:00+02:00", [20])):
        result, code = here.run(job | asked | {"as_at": moment, "uid": moment[11:13]})
        assert code == ExitCode.DONE, result
        assert result.query is not None
        found = here.store.get(str(result.query.location)).decode().split()[1:]
        assert [int(line) for line in found] == ids


def test_inspect_job_reports_ledger_chain(here: Here, identity: Path) -> None:
    made = defined(here, PUSHED, identity=identity)
    result, code = here.run(here.inspect_job())
    assert code == ExitCode.DONE
    assert result.datasets[0].ledger == made


def test_push_job_with_spark_writes_same_chain_as_in_process(either: Here, identity: Path) -> None:
    """A Snapshot stays in the pod's process, whatever its size."""
    defined(either, {**PUSHED, "merge": {"kind": "Ledger", "primaryKey": ["id"]}}, identity=identity)
    either.put("in/a.csv", planes(*((n, f"plane {n}", n) for n in range(100))))
    either.put("in/b.csv.gz", gzip.compress(planes((7, "again", 7), (100, "new", 1)).encode()))
    result, code = push(either, "in/a.csv", "in/b.csv.gz")
    assert (code, result.commit and result.commit.rows) == (ExitCode.DONE, 101), result
    assert names(either) == {n: f"plane {n}" for n in range(100)} | {100: "new"}
    again, _ = push(either, "in/a.csv", "in/b.csv.gz")
    assert again.commit is not None
    assert again.commit.already_applied
    assert push(either, "in/a.csv", commit_id="c2")[0].message == "nothing in the files was new"
    sound(either)
    defined(either, PUSHED)
    taken = either.sessions
    assert push(either, "in/a.csv", commit_id="c3")[1] == ExitCode.DONE
    assert (taken > 0, either.sessions) == (either.from_bytes == 0, taken)
    sound(either)
