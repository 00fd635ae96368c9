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


def test_a_new_manifest_becomes_an_object_with_an_identity(tmp_path: Path) -> None:
    metadata = applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata
    assert (metadata.generation, metadata.creation_timestamp) == (1, NOW)
    assert metadata.uid


def test_an_unchanged_manifest_keeps_its_identity(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights"), now=NOW + timedelta(hours=1))
    assert after.resources[FLIGHTS].metadata == before.resources[FLIGHTS].metadata


def test_writing_out_a_default_is_no_new_generation(tmp_path: Path) -> None:
    applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights", "deletionPolicy: Retain"))
    assert after.resources[FLIGHTS].metadata.generation == 1


def test_an_allowed_edit_is_a_new_generation_of_the_same_object(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"))
    after = applied(tmp_path, STORE, dataset("flights", "suspend: true"))
    assert after.resources[FLIGHTS].metadata.generation == 2
    assert after.resources[FLIGHTS].metadata.uid == before.resources[FLIGHTS].metadata.uid


def test_a_uid_survives_the_loss_of_the_state(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata.uid
    other = tmp_path / "elsewhere"
    other.mkdir()
    assert applied(other, STORE, dataset("flights")).resources[FLIGHTS].metadata.uid == before


def test_edits_of_immutable_fields_are_refused_in_the_words_of_the_api_server_and_change_nothing(
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


def test_a_status_in_a_manifest_says_nothing(tmp_path: Path) -> None:
    exported = dataset("flights") + "status: {version: 7}\n"
    resource = applied(tmp_path, STORE, exported).resources[FLIGHTS]
    assert isinstance(resource, Dataset)
    assert resource.status.version is None


def test_what_no_manifest_names_any_more_is_told(tmp_path: Path) -> None:
    applied(tmp_path, STORE, dataset("flights"), dataset("planes"))
    assert applied(tmp_path, STORE, dataset("planes")).absent == [FLIGHTS]


def test_a_failed_commit_starts_over_with_the_next_number(tmp_path: Path) -> None:
    before = applied(tmp_path, STORE, dataset("flights"), commit("first", "flights"))
    resource = before.resources[FIRST]
    generation, conditions = conditions_of(failed("SourceNotFound", "no such file"), resource.status, 1, NOW)
    status = CommitStatus(attempt=3, failures=2, observed_generation=generation, conditions=conditions)
    before.states[FIRST].save(resource.model_copy(update={"status": status}))

    again = applied(tmp_path, STORE, dataset("flights"), commit("first", "flights")).resources[FIRST]

    assert isinstance(again, Commit)
    assert again.status == CommitStatus(attempt=4)


def test_a_store_that_is_not_fine_is_looked_at_again_now(tmp_path: Path) -> None:
    store = applied(tmp_path, STORE).resources[Key("ObjectStore", "default", "lake")]
    assert isinstance(store, ObjectStore)
    assert store.requested_at == NOW.isoformat()


def test_a_state_of_an_unreadable_release_is_no_state(tmp_path: Path) -> None:
    found = applied(tmp_path, STORE, dataset("flights"))
    path = next(found.states[FLIGHTS].root.rglob("flights.json"))
    path.write_text('{"kind": "Dataset", "half": ')
    assert applied(tmp_path, STORE, dataset("flights")).resources[FLIGHTS].metadata.generation == 1


def test_the_state_of_a_directory_is_inside_it_and_that_of_a_bucket_is_the_users(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert State.of("file:my%20lake", None, tmp_path, environ).root == tmp_path / "my lake" / ".kubothek-state"
    first = State.of("s3://bucket/p", None, tmp_path, environ).root
    second = State.of("s3://bucket/p", "http://127.0.0.1:1", tmp_path, environ).root
    assert first != second
    assert first.parent == second.parent == tmp_path / "state" / "kubothek"


def test_relative_urls_count_from_the_base(tmp_path: Path) -> None:
    assert absolute_url("file:a/../b", tmp_path) == (tmp_path / "b").as_uri()
    assert absolute_url("file:///c", tmp_path) == "file:///c"
    assert absolute_url("s3://d/e", tmp_path) == "s3://d/e"


def test_a_state_is_held_by_one_run_at_a_time(tmp_path: Path) -> None:
    state = State(tmp_path / "lake" / ".kubothek-state")
    with locked([state]), pytest.raises(LockedError, match="is running on this store"), locked([state]):
        raise AssertionError("both hold it")
    with locked([state]):
        pass


def test_a_state_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(LocalError, match="Not a directory"), locked([State(tmp_path / "lake" / ".kubothek-state")]):
        raise AssertionError("it was kept")
