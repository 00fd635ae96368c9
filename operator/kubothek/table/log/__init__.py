"""Commits: the head and its history, safe concurrent writers on a bare bucket, each commit exactly once.

    log = DatasetLog(store, "flights", claim=Claim("cluster/ns/flights", uid))
    started = log.begin("ns/load-2026-11", digest)
    if isinstance(started, Transaction):
        files = write_parquet(started.snapshot)            # new objects under new names
        started.commit(Change(operation=Operation.APPEND, added=files, schema=schema))

The rules are those of docs/commit-protocol.md.
"""

from __future__ import annotations

from kubothek.table.log.dataset_log import DatasetLog, DatasetState
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.history.versions import Version
from kubothek.table.log.model.changes import (
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
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import partition_path
from kubothek.table.log.model.record import Delta, Record, Totals
from kubothek.table.log.ownership import Claim, owner_of, take_claim
from kubothek.table.log.settings import StoreSettings, ask_for_grace, read_settings, write_settings
from kubothek.table.log.transaction import AlreadyApplied, Committed, Transaction

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
