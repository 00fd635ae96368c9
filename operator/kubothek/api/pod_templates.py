"""What of a user's pod template becomes part of a job's pod: a list of what is taken over, not of what is denied.

A field that a later Kubernetes adds is not taken until somebody decided that it may be.
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
"""Fields of a pod's spec that are the user's alone."""

BESIDE: Final = ("initContainers", "containers", "volumes")
"""Lists of a pod's spec that a user may add to."""

INSIDE: Final[dict[str, str | None]] = {"env": "name", "envFrom": None, "volumeMounts": "mountPath"}
"""Lists of our container that a user may add to, and what names an entry."""

DRIVER_CONTAINER: Final = "driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"
