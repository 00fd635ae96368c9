"""Garbage collection: find what nothing references any longer, and delete it. The rules are in docs/collector.md."""

from __future__ import annotations

from kubothek.gc.areas import Kind
from kubothek.gc.collection import MAX_DELETES, Collection, Mode, collect
from kubothek.gc.plan import NO_OBJECTS, Count
from kubothek.gc.retention import Retention

__all__ = ["MAX_DELETES", "NO_OBJECTS", "Collection", "Count", "Kind", "Mode", "Retention", "collect"]
