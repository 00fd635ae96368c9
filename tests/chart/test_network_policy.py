"""The network policy of jobs where the operator serves every namespace."""

from __future__ import annotations

from kubothek.runtime.kubernetes.manifests.network_policy import network_policy
from tests.chart.conftest import Render
from tests.chart.test_chart import environment, of_kind


def test_jobs_everywhere_get_the_network_policy_of_named_namespaces(render: Render) -> None:
    objects = render(allNamespaces=True)
    assert environment(objects)["KUBOTHEK_JOB_NETWORK_POLICY"] == "true"
    (jobs,) = (each for each in of_kind(objects, "NetworkPolicy") if each["metadata"]["name"].endswith("-jobs"))
    assert network_policy("lake")["spec"] == jobs["spec"]
    (role,) = (each for each in of_kind(objects, "ClusterRole") if each["metadata"]["name"].endswith("-policies"))
    assert role["rules"] == [
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["create"]}
    ]
    assert all(
        environment(each).get("KUBOTHEK_JOB_NETWORK_POLICY", "false") == "false"
        and not [role for role in of_kind(each, "ClusterRole") if role["metadata"]["name"].endswith("-policies")]
        for each in (render(), render(allNamespaces=True, networkPolicy={"jobs": False}))
    )
