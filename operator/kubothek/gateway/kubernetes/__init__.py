"""A gateway in a namespace of a cluster: its Datasets, and those whom the cluster lets (docs/gateway.md)."""

from __future__ import annotations
