"""Pull, push and comparison of datasets of other parties, by the protocols of Open Data Fabric (docs/exchange.md).

done = pull(store, DatasetLog(store, "flights"), open_repository("https://example.org/flights"), table=Table())
done.brought.fetched_bytes
"""

from __future__ import annotations

from kubothek.odf.sync.compare import Difference, Relation, compare
from kubothek.odf.sync.pull import Pulled, pull, pull_remote
from kubothek.odf.sync.push import Pushed, push_remote
from kubothek.odf.sync.repository import Reach, Repository, Stream
from kubothek.odf.sync.stores import StoreRepository
from kubothek.odf.sync.transfer import Brought, Progress, Told
from kubothek.odf.sync.urls import open_repository
from kubothek.odf.sync.web import Web, WebRepository

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
