"""The allowlist of fields that a user's pod template may add to a job's pod.

Fields that a later Kubernetes adds are ignored until they are listed here.
"""

from __future__ import annotations

from typing import Final

PLACEMENT: Final = (
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "tolerations",
    "topologySpreadConstraints",
)
"""Fields of a pod's spec that the user's template sets."""

BESIDE: Final = ("initContainers", "containers", "volumes")
"""Lists of a pod's spec that a user may add to."""

INSIDE: Final[dict[str, str | None]] = {"env": "name", "envFrom": None, "volumeMounts": "mountPath"}
"""Lists of our container that a user may add to, and the key of an entry."""

DRIVER_CONTAINER: Final = "driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
