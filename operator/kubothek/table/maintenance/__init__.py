"""Maintenance operations, which change no row of a table. See docs/maintenance.md."""

from __future__ import annotations

from kubothek.table.maintenance.compaction import (
    Compaction,
    CompactionPlan,
    CompactionRequest,
    compact,
    plan_compaction,
)
from kubothek.table.maintenance.grouping import Bundle, Thresholds
from kubothek.table.maintenance.heal import Healed, ailments, heal, settle
from kubothek.table.maintenance.health import Health, health
from kubothek.table.maintenance.rewriting import Compactor, rewrite_here

__all__ = [
    "Bundle",
    "Compaction",
    "CompactionPlan",
    "CompactionRequest",
    "Compactor",
    "Healed",
    "Health",
    "Thresholds",
    "ailments",
    "compact",
    "heal",
    "health",
    "plan_compaction",
    "rewrite_here",
    "settle",
]
