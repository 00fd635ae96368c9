"""Standing sources: files that land in a store become commits, each version of a file exactly once.

    report = Round(log, store, landed_in, terms, loader, clock=now).run()

A file's identity is its key and ETag. The bucket records what a source has ingested (:mod:`.ledger`), and the head
names that record; there is no other state.
"""

from __future__ import annotations

from kubothek.ingest.watch.backlog import Backlog
from kubothek.ingest.watch.landing import Landed, Landing
from kubothek.ingest.watch.ledger import Ledger, Page
from kubothek.ingest.watch.round import Report, Round, page_key, waiting_files
from kubothek.ingest.watch.terms import Loader, Refusal, Terms

__all__ = [
    "Backlog",
    "Landed",
    "Landing",
    "Ledger",
    "Loader",
    "Page",
    "Refusal",
    "Report",
    "Round",
    "Terms",
    "page_key",
    "waiting_files",
]
