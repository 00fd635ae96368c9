"""What a Commit says, and what tells one change from another."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.api.commit import Commit
from kubothek.api.kinds import parse
from tests.api.manifests import Case, change, commit, files, selected


def digest(spec: dict[str, Any]) -> str:
    parsed = parse(Case("", "Commit", spec).manifest())
    assert isinstance(parsed, Commit)
    return parsed.digest("lake")


def test_append_digest_equals_digest_of_first_release() -> None:
    """Or Commits that were applied would be taken for others when the operator is upgraded."""
    assert digest(commit()) == "617e2f1a74c8cd3b0e4c6931ba0823ba06f0fbbe2992e2217bf6a21f9eb2e8a7"
    assert digest(commit(files(storeRef={"name": "lake"}), suspend=True)) == digest(commit())


@pytest.mark.parametrize(
    "spec",
    [
        commit(operation="Replace"),
        commit(operation="Replace", where="month = 3"),
        commit(operation="Overwrite"),
        commit(operation="Overwrite", allowSchemaChange=True),
        commit(files(storeRef={"name": "other"})),
        commit(selected()),
        commit(selected(sql="SELECT 1")),
        commit(selected(asOf={"version": 3})),
        commit(selected(storeRef={"name": "other"})),
        change("Delete", where="month = 3"),
        change("Delete", where="month = 3", rowLevel=True),
        change("Delete", where="month = 4"),
        change("Update", where="month = 3", set={"a": "1"}, rowLevel=True),
        change("Update", where="month = 3", set={"a": "2"}, rowLevel=True),
        change("Rollback", toVersion=1),
        change("Rollback", toTime="2026-11-21T14:00:00Z"),
        change("Rollback", toTime="2026-11-21T15:00:00Z"),
        change("Rollback", toTime="2026-11-21T15:00:00Z", allowSchemaChange=True),
    ],
)
def test_change_digest_differs_for_each_change(spec: dict[str, Any]) -> None:
    assert digest(spec) != digest(commit())
    assert digest(spec | {"onConflict": "Retry", "retryLimit": 3}) == digest(spec)
    assert digest(spec) == digest({**spec, "id": "another"})


def test_digest_of_statement_ignores_time_limit_and_own_store() -> None:
    assert digest(commit(selected(timeLimit="5m", storeRef={"name": "lake"}))) == digest(commit(selected()))


def test_digest_of_time_ignores_notation() -> None:
    assert digest(change("Rollback", toTime="2026-11-21T15:00:00+01:00")) == digest(
        change("Rollback", toTime="2026-11-21T14:00:00Z")
    )
