"""Datasets of other parties: pulled, pushed, compared, by the protocols of Open Data Fabric (docs/exchange.md).

done = pull(store, DatasetLog(store, "flights"), open_repository("https://example.org/flights"), table=Table())
done.brought.fetched_bytes
"""

from __future__ import annotations

from kubothek.lake.exchange.compare import Difference, Relation, compare
from kubothek.lake.exchange.pull import Pulled, pull, pull_remote
from kubothek.lake.exchange.push import Pushed, push_remote
from kubothek.lake.exchange.repository import Reach, Repository, Stream
from kubothek.lake.exchange.stores import StoreRepository
from kubothek.lake.exchange.transfer import Brought, Progress, Told
from kubothek.lake.exchange.urls import open_repository
from kubothek.lake.exchange.web import Web, WebRepository

__all__ = [
    "Brought",
    "Difference",
    "Progress",
    "Pulled",
    "Pushed",
    "Reach",
    "Relation",
    "Repository",
    "StoreRepository",
    "Stream",
    "Told",
    "Web",
    "WebRepository",
    "compare",
    "open_repository",
    "pull",
    "pull_remote",
    "push_remote",
]
