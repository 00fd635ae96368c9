"""Job that rewrites small files, for a Compaction or for the Dataset itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubothek.api import jobs
from kubothek.api.engine import Engine
from kubothek.api.maintenance import Thresholds
from kubothek.api.values import parse_quantity
from kubothek.controller.references import clustering_of, digest, spark_settings


def compact_job(
    basics: Mapping[str, Any],
    engine: Engine | None,
    thresholds: Thresholds,
    *,
    commit_id: str,
    where: str | None = None,
    dry_run: bool = False,
) -> jobs.CompactJob:
    """Return the job of one attempt. Its commit changes no row, so the digest depends on the id alone."""
    size = thresholds.target_file_size
    return jobs.CompactJob(
        **basics,
        commit_id=commit_id,
        digest=digest(commit_id),
        where=where,
        target_file_bytes=None if size is None else parse_quantity(size),
        min_files=thresholds.min_files,
        min_small_percent=thresholds.min_small_percent,
        clustering=clustering_of(thresholds),
        dry_run=dry_run,
        spark=spark_settings(engine),
    )
