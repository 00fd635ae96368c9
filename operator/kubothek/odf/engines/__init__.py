"""Transformations by engines of other parties, over the contract of Open Data Fabric. See docs/engines.md.

engine = ForeignEngine("127.0.0.1:5544", "ghcr.io/acme/engine@sha256:…", alias="late")
derivative.pull(inputs, engine=engine)
"""

from __future__ import annotations

from kubothek.odf.engines.engine import ForeignEngine

__all__ = ["ForeignEngine"]
