"""What is remembered between runs, and what an edit of a manifest may change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.api.commit import Commit, CommitStatus
from kubothek.api.conditions import conditions_of, failed
from kubothek.api.dataset import Dataset
from kubothek.api.objectstore import ObjectStore
from kubothek.local.apply import Applied, apply, save, states_of
from kubothek.local.documents import ManifestError
from kubothek.local.errors import LocalError
from kubothek.local.manifests import Key, load
from kubothek.local.state import LockedError, State, locked
from kubothek.urls import absolute_url
from tests.local.manifests import STORE, commit, dataset, write

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FLIGHTS = Key("Dataset", "default", "flights")
FIRST = Key("Commit", "default", "first")


def applied(directory: Path, *documents: str, now: datetime = NOW) -> Applied:
    manifests = load([write(directory, *documents)])
    found = apply(manifests, states_of(manifests, directory), now)
    save(found)
    return found


def refusals(directory: Path, *documents: str) -> list[str]:
    with pytest.raises(ManifestError) as error:
        applied(directory, *documents)
    return [str(problem).rpartition("/")[2] for problem in error.value.problems]


def test_state_of_new_manifest_has_uid_and_generation_1(tmp_path: Path) -> None:
    metadata = applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata
    assert (metadata.generation, metadata.creation_timestamp) == (1, NOW)
    assert metadata.uid


def test_state_of_unchanged_manifest_keeps_metadata(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights"), now=NOW + timedelta(hours=1))
    assert after.resources[FLIGHTS].metadata == before.resources[FLIGHTS].metadata


def test_state_with_explicit_default_keeps_generation(tmp_path: Path) -> None:
    applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights", "deletionPolicy: Retain"))
    assert after.resources[FLIGHTS].metadata.generation == 1


def test_state_after_allowed_edit_has_next_generation_of_same_uid(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights", "suspend: true"))
    assert after.resources[FLIGHTS].metadata.generation == 2
    assert after.resources[FLIGHTS].metadata.uid == before.resources[FLIGHTS].metadata.uid


def test_state_after_loss_has_same_uid(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata.uid
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert applied(other, STORE, dataset("flights")).resources[FLIGHTS].metadata.uid == before


def test_state_refuses_edit_of_immutable_field_like_api_server(
    tmp_path: Path,
) -> None:
    applied(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    told = refusals(
        tmp_path,
        STORE,
        dataset("flights", "table: {partitionOn: [month]}"),
        commit("first", "flights", "sources/other.csv"),
    )
    assert told == [
        "all.yaml:17: Dataset flights: spec.table.partitionOn: table.partitionOn cannot change, as every file is "
        "laid out by it: create another Dataset",
        "all.yaml:25: Commit first: spec.source: a Commit is one change and cannot be edited, but for suspend, "
        "retryLimit and ttlSecondsAfterFinished: create another Commit",
    ]
    again = applied(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    assert again.resources[FLIGHTS].metadata.generation == again.resources[FIRST].metadata.generation == 1


def test_state_ignores_status_in_manifest(tmp_path: Path) -> None:
    exported = dataset("flights") + "status: {version: 7}\n"
    resource = applied(tmp_path, STORE, exported).resources[FLIGHTS]
    assert isinstance(resource, Dataset)
    assert resource.status.version is None


def test_state_reports_resources_missing_from_manifests(tmp_path: Path) -> None:
    applied(tmp_path, STORE, dataset("flights"), dataset("planes"))
    assert applied(tmp_path, STORE, dataset("planes")).absent == [FLIGHTS]


def test_state_of_failed_commit_restarts_with_next_number(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    resource = before.resources[FIRST]
    generation, conditions = conditions_of(failed("SourceNotFound", "no such file"), resource.status, 1, NOW)
    status = CommitStatus(attempt=3, failures=2, observed_generation=generation, conditions=conditions)
    before.states[FIRST].save(resource.model_copy(update={"status": status}))

    again = applied(tmp_path, STORE, dataset("flights"), commit("first", "flights")).resources[FIRST]

    assert isinstance(again, Commit)
    assert again.status == CommitStatus(attempt=4)


def test_state_of_unready_store_requests_inspection(tmp_path: Path) -> None:
    store = applied(tmp_path, STORE).resources[Key("ObjectStore", "default", "lake")]
    assert isinstance(store, ObjectStore)
    assert store.requested_at == NOW.isoformat()


def test_state_that_is_unreadable_is_treated_as_missing(tmp_path: Path) -> None:
    found = applied(tmp_path, STORE, dataset("flights"))
    path = next(found.states[FLIGHTS].root.rglob("flights.json"))
    path.write_text('{"kind": "Dataset", "half": ')
    assert applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata.generation == 1


def test_state_of_directory_is_inside_and_of_bucket_in_user_directory(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert State.of("file:my%20lake", None, tmp_path, environ).root == tmp_path / "my lake" / ".kubothek-state"
    first = State.of("s3://bucket/p", None, tmp_path, environ).root
    second = State.of("s3://bucket/p", "http://127.0.0.1:1", tmp_path, environ).root
    assert first != second
    assert first.parent == second.parent == tmp_path / "state" / "kubothek"


def test_relative_url_is_resolved_against_base(tmp_path: Path) -> None:
    assert absolute_url("file:a/../b", tmp_path) == (tmp_path / "b").as_uri()
    assert absolute_url("file:///c", tmp_path) == "file:///c"
    assert absolute_url("s3://d/e", tmp_path) == "s3://d/e"


def test_state_is_locked_by_one_run(tmp_path: Path) -> None:
    state = State(tmp_path / "lake" / ".kubothek-state")
    with locked([state]), pytest.raises(LockedError, match="is running on this store"), locked([state]):
        raise AssertionError("both hold it")
    with locked([state]):
        pass


def test_state_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(LocalError, match="Not a directory"), locked([State(tmp_path / "lake" / ".kubothek-state")]):
        raise AssertionError("it was kept")
