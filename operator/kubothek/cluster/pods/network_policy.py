"""The NetworkPolicy of a namespace's jobs, for operators that serve namespaces which the chart does not name.

Drivers and executors accept connections from each other only. In named namespaces the chart creates the same policy.
"""

from __future__ import annotations

from typing import Any, Final

from kubothek.api import pod_sizes

Object = dict[str, Any]

_JOBS: Final = {"app.kubernetes.io/name": "kubothek", "app.kubernetes.io/managed-by": "kubothek-operator"}


def network_policy(namespace: str) -> Object:
    """Return the policy of one namespace."""
    jobs = {"podSelector": {"matchLabels": _JOBS}}
    ports = (pod_sizes.DRIVER_PORT, pod_sizes.BLOCK_MANAGER_PORT)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "kubothek-jobs", "namespace": namespace, "labels": _JOBS},
        "spec": {
            **jobs,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [jobs], "ports": [{"protocol": "TCP", "port": port} for port in ports]}],
        },
    }
