"""A GCPolicy on one machine, where nobody waits for its slots: a run makes up for what came since the last one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kubothek.api.gcpolicy import GCPolicy
from kubothek.controller.context import Settings
from kubothek.controller.kinds import gcpolicy
from kubothek.local.apply import Applied, apply, save, states_of
from kubothek.local.context import LocalContext, Objects
from kubothek.local.loop import CLUSTER_ID
from kubothek.local.manifests import Key, load
from tests.local.manifests import STORE, write

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NIGHTLY = Key("GCPolicy", "default", "nightly")


def policy(name: str = "nightly", cron: str = "30 2 * * *") -> str:
    return f"""---
apiVersion: kubothek.io/v1alpha1
kind: GCPolicy
metadata: {{name: {name}}}
spec: {{selector: {{all: true}}, schedule: {{cron: "{cron}"}}}}
"""


def run(directory: Path, now: datetime, cron: str = "30 2 * * *") -> GCPolicy:
    """What a run that is over at once makes of the policy."""
    manifests = load([write(directory, STORE, policy(cron=cron))])
    applied = apply(manifests, states_of(manifests, directory), now)
    found = applied.resources[NIGHTLY]
    assert isinstance(found, GCPolicy)
    context = LocalContext(
        Objects(applied.resources), Settings(cluster_id=CLUSTER_ID), now, lambda namespace, name: None
    )
    status = type(found.status).model_validate(gcpolicy.reconcile(found, context).status)
    ended = found.model_copy(update={"status": status})
    save(Applied({**applied.resources, NIGHTLY: ended}, applied.states, {}, ()))
    return ended


@pytest.mark.parametrize("later", [timedelta(0), timedelta(hours=1)])
def test_local_gc_policy_waits_for_first_slot(tmp_path: Path, later: timedelta) -> None:
    run(tmp_path, NOW)
    assert run(tmp_path, NOW + later).status.last is None


def test_local_gc_policy_runs_missed_slot_once_however_late(tmp_path: Path) -> None:
    run(tmp_path, NOW)
    ended = run(tmp_path, NOW + timedelta(days=3)).status.last
    assert ended is not None
    assert ended.slot == NOW + timedelta(days=3)
    assert run(tmp_path, NOW + timedelta(days=3, hours=1)).status.last == ended


def test_local_gc_policy_without_possible_slot_is_stalled(tmp_path: Path) -> None:
    for days in (0, 400):
        found = run(tmp_path, NOW + timedelta(days=days), cron="0 0 30 2 *")
        assert found.status.holds("Stalled")
        assert found.status.last is None


def test_local_gc_policy_change_wakes_other_gc_policies_only(tmp_path: Path) -> None:
    manifests = load([write(tmp_path, STORE, policy(), policy("weekly"))])
    objects = Objects(apply(manifests, states_of(manifests, tmp_path), NOW).resources)
    assert list(objects.woken_by(NIGHTLY)) == [Key("GCPolicy", "default", "weekly")]
