"""The gateway of a namespace: serves its Datasets to users that the cluster authorises (docs/gateway.md)."""

from __future__ import annotations
