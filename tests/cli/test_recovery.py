"""Disaster recovery: all that a cluster knew is lost; a bucket and the same manifests bring everything back.

On one machine what the API server holds (objects, uids, statuses) is the directory ``.kubothek-state``, and Secrets
with keys of ledgers are files below ``XDG_STATE_HOME``. tests/cluster/test_recovery.py: the same for API servers.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubothek.api.kinds import KINDS
from kubothek.api.meta import Resource
from kubothek.local import state as local_state
from kubothek.local.manifests import Key
from tests.cli.conftest import Kubothek
from tests.recovery import COMMITS, GIT, POLICY, data, put_sources, resource, rows

pytestmark = pytest.mark.slow

STATE = ".kubothek-state"
STORE = resource("ObjectStore", "lake", url="file:store")
TEN_DAYS = 10 * 24 * 3600


@pytest.fixture
def built(kubothek: Kubothek, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which all manifests have come true."""
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "secrets"))
    put_sources(project / "store")
    applied(kubothek, project, *GIT)
    return project


def applied(kubothek: Kubothek, project: Path, *manifests: dict[str, Any]) -> str:
    (project / "git.yaml").write_text(yaml.safe_dump_all([STORE, *manifests]))
    ran = kubothek("run", "-f", "git.yaml")
    assert ran.code == 0, ran.out + ran.err
    return ran.out


def known(project: Path, kind: str, name: str) -> Any:
    """The object as the runtime has it."""
    found: Resource | None = local_state.State(project / "store" / STATE).load(KINDS[kind], Key(kind, "default", name))
    assert found is not None
    return found


def versions(project: Path) -> dict[str, tuple[str, int]]:
    """How each Commit and Query that fills a Dataset ended, and with which version."""
    found = {name: known(project, "Commit", name) for name in COMMITS} | {"found": known(project, "Query", "found")}
    return {name: (each.status.holds("Complete"), each.status.version) for name, each in found.items()}


def recovered(kubothek: Kubothek, project: Path, monkeypatch: pytest.MonkeyPatch, *manifests: dict[str, Any]) -> None:
    """No objects, no statuses; what is applied again has other uids."""
    before = known(project, "Dataset", "letters").metadata.uid
    shutil.rmtree(project / "store" / STATE)
    monkeypatch.setattr(local_state, "_UIDS", uuid.uuid4())
    applied(kubothek, project, *manifests)
    assert known(project, "Dataset", "letters").metadata.uid != before


def test_recovery_of_local_run_from_store_and_manifests_changes_no_object(
    kubothek: Kubothek, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, committed, content = versions(built), data(built / "store"), rows(built / "store")
    derived = kubothek("log", "--store", "file:store", "--odf", "large").out
    assert all(complete and version for complete, version in before.values()), before
    recovered(kubothek, built, monkeypatch, *GIT)
    assert versions(built) == before
    assert kubothek("log", "--store", "file:store", "--odf", "large").out == derived
    assert committed.items() ^ data(built / "store").items() == set(), "not one object came, went or changed"
    assert rows(built / "store") == content

    # ... and when history was collected: the versions of most Commits are gone, and with them their records
    for file in (built / "store").rglob("*"):
        os.utime(file, (time.time(), time.time() - TEN_DAYS))
    said = applied(kubothek, built, *GIT, POLICY)
    kept = data(built / "store")
    first = kubothek("query", "--store", "file:store", "SELECT * FROM letters", "--as-of", "1")
    assert "has expired" in first.err, said
    recovered(kubothek, built, monkeypatch, *GIT)
    assert versions(built) == before
    assert kept.items() ^ data(built / "store").items() == set()
    assert rows(built / "store") == content
