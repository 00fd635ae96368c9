"""Commits: the head and its history, safe concurrent writers on a bare bucket, each commit exactly once.

    log = DatasetLog(store, "flights", claim=Claim("cluster/ns/flights", uid))
    started = log.begin("ns/load-2026-11", digest)
    if isinstance(started, Transaction):
        files = write_parquet(started.snapshot)            # new objects under new names
        started.commit(Change(operation=Operation.APPEND, added=files, schema=schema))

The rules are those of docs/commit-protocol.md.
"""

from __future__ import annotations

from kubothek.lake.commits.log import DatasetLog, DatasetState
from kubothek.lake.commits.objects.changes import (
    Change,
    Everything,
    Freed,
    Matching,
    Nothing,
    Operation,
    PartitionFile,
    Partitions,
    ReadPredicate,
)
from kubothek.lake.commits.objects.head import Head
from kubothek.lake.commits.objects.paths import partition_path
from kubothek.lake.commits.objects.record import Delta, Record, Totals
from kubothek.lake.commits.past.history import Version
from kubothek.lake.commits.past.snapshot import Snapshot
from kubothek.lake.commits.settings import StoreSettings, ask_for_grace, read_settings, write_settings
from kubothek.lake.commits.transaction import AlreadyApplied, Committed, Transaction
from kubothek.lake.commits.verbs.claims import Claim, owner_of, take_claim

__all__ = [
    "AlreadyApplied",
    "Change",
    "Claim",
    "Committed",
    "DatasetLog",
    "DatasetState",
    "Delta",
    "Everything",
    "Freed",
    "Head",
    "Matching",
    "Nothing",
    "Operation",
    "PartitionFile",
    "Partitions",
    "ReadPredicate",
    "Record",
    "Snapshot",
    "StoreSettings",
    "Totals",
    "Transaction",
    "Version",
    "ask_for_grace",
    "owner_of",
    "partition_path",
    "read_settings",
    "take_claim",
    "write_settings",
]
