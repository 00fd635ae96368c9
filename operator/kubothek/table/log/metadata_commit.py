"""Commits that change only the metadata of the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubothek.table.log.journal import Draft, Journal, Observed
from kubothek.table.log.model.changes import Operation
from kubothek.table.log.model.deltas import metadata_delta
from kubothek.table.log.model.record import Delta


def noted(
    journal: Journal, seen: Observed, metadata: Mapping[str, Any], *, what: str, operation: Operation, by: str
) -> Draft:
    """Return the commit on top of a settled head that sets its metadata to these; ``what`` begins its id."""
    assert seen.totals is not None, "a settled head is counted"
    to_set, dropped = metadata_delta(seen.head.metadata, metadata)
    return Draft(
        id=journal.own_id(what),
        digest="",
        operation=operation,
        by=by,
        base=seen.head,
        delta=Delta(metadata=to_set, dropped=dropped),
        totals=seen.totals,
    )
