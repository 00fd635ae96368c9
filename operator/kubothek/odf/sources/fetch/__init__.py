"""Polling sources: fetch files from URLs, glob patterns and containers, and prepare them for the read step.

found = poll(source, state, FetchContext(policy=policy, now=now))     # rows, and the state for the next poll
"""

from __future__ import annotations

from kubothek.odf.sources.fetch.context import (
    SOURCE_NAME,
    ContainerOutput,
    ContainerRun,
    FetchContext,
    Fetched,
    UpToDate,
    in_stores,
)
from kubothek.odf.sources.fetch.poll import poll

__all__ = [
    "SOURCE_NAME",
    "ContainerOutput",
    "ContainerRun",
    "FetchContext",
    "Fetched",
    "UpToDate",
    "in_stores",
    "poll",
]
