"""Our engine for other coordinators, over the gRPC contract of Open Data Fabric. See docs/engines.md."""

from __future__ import annotations
