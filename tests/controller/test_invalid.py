"""Manifests that are no valid resources (any more)."""

from __future__ import annotations

from typing import Any

import pytest

from kubothek.api.kinds import InvalidResource, parse
from kubothek.api.meta import FINALIZER
from kubothek.controller.context import Outcome, SetFinalizer
from kubothek.controller.kinds import invalid
from tests import kstatus
from tests.controller.fake import START


def reconcile(**metadata: Any) -> Outcome:
    manifest = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "flights", "generation": 2} | metadata,
        "spec": {"storeRef": {"name": "lake"}, "table": {"sortedBy": ["x"]}},
        "status": {"version": 3, "observedGeneration": 1, "conditions": []},
    }
    with pytest.raises(InvalidResource) as error:
        parse(manifest)
    return invalid.reconcile(manifest, error.value, START)


def test_invalid_spec_is_reported_and_keeps_known_status() -> None:
    outcome = reconcile()
    assert kstatus.check(2, outcome.status) == []
    assert kstatus.compute({"metadata": {"generation": 2}, "status": outcome.status}) == "Failed"
    assert outcome.status["version"] == 3
    (event,) = outcome.events
    assert (event.type, event.reason) == ("Warning", "InvalidSpec")
    assert "spec.table.sortedBy: is not a known field" in event.message


def test_invalid_dataset_deletion_removes_finalizer_and_keeps_data() -> None:
    outcome = reconcile(deletionTimestamp="2026-11-21T12:00:00Z", finalizers=[FINALIZER])
    assert outcome.actions == (SetFinalizer(False),)
    assert "the data is kept" in outcome.events[0].message


def test_invalid_dataset_deletion_without_own_finalizer_needs_no_action() -> None:
    outcome = reconcile(deletionTimestamp="2026-11-21T12:00:00Z", finalizers=["other.io/x"])
    assert (outcome.actions, outcome.events) == ((), ())
