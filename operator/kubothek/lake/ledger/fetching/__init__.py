"""Polling sources: files from URLs, by patterns and from containers, prepared to be read.

found = poll(source, state, FetchContext(policy=policy, now=now))     # rows, and the state for the next poll
"""

from __future__ import annotations

from kubothek.lake.ledger.fetching.context import (
    SOURCE_NAME,
    ContainerOutput,
    ContainerRun,
    FetchContext,
    Fetched,
    UpToDate,
    in_stores,
)
from kubothek.lake.ledger.fetching.poll import poll

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
