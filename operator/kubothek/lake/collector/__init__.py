"""Garbage collection: what nothing refers to any more, and how it goes. The rules are in docs/collector.md."""

from __future__ import annotations

from kubothek.lake.collector.areas import Kind
from kubothek.lake.collector.collection import MAX_DELETES, Collection, Mode, collect
from kubothek.lake.collector.plan import NO_OBJECTS, Count
from kubothek.lake.collector.retention import Retention

__all__ = ["MAX_DELETES", "NO_OBJECTS", "Collection", "Count", "Kind", "Mode", "Retention", "collect"]
