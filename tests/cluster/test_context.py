"""What reconcilers see of what cannot be read, and when they look again."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

from kubothek.api.gcpolicy import GCPolicy
from kubothek.cluster.cache.state import ClusterContext, ClusterState
from kubothek.cluster.controller import spread
from kubothek.controller.context import Settings


def policy(name: str, namespace: str, selector: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": "GCPolicy",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", "resourceVersion": "1"},
        "spec": {"selector": selector, "schedule": {"cron": "@daily"}},
    }


def test_unreadable_resource_is_listed_by_name_in_its_namespace() -> None:
    state = ClusterState()
    state.resources["GCPolicy"].put(policy("good", "team", {"all": True}))
    state.resources["GCPolicy"].put(policy("bad", "team", {"everything": True}))
    state.resources["GCPolicy"].put(policy("elsewhere", "other", {}))
    context = ClusterContext(state, Settings(cluster_id="c"), datetime(2026, 11, 21, tzinfo=UTC))
    assert [found.name for found in context.list(GCPolicy, "team")] == ["good"]
    assert context.invalid(GCPolicy, "team") == ["bad"]


def test_requeue_spread_is_bounded() -> None:
    waits = [spread(seconds, random.Random(seed)) - seconds for seconds in (1.0, 60.0, 86400.0) for seed in range(50)]
    assert all(0 <= wait <= 20 for wait in waits)
    assert max(waits[:50]) <= 0.05
    assert len(set(waits)) > 100
