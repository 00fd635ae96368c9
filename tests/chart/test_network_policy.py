"""The network policy of jobs where the operator serves every namespace."""

from __future__ import annotations

from kubothek.cluster.pods.network_policy import network_policy
from tests.chart.conftest import Render
from tests.chart.test_chart import of_kind


def test_operator_network_policy_matches_chart(render: Render) -> None:
    policies = of_kind(render(allNamespaces=True), "NetworkPolicy")
    (jobs,) = (each for each in policies if each["metadata"]["name"].endswith("-jobs"))
    assert network_policy("lake")["spec"] == jobs["spec"]
