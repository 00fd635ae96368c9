"""Estimate of garbage: files that commit records name and no kept version needs.

Commits that lost their swap or crashed leave such files, and so do expired versions. They count until a collection has
deleted both files and records. The estimate misses index files and files that no record names, and includes files of
commits in progress. Only the collector has exact figures, as it lists everything.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import VersionIncomplete
from kubothek.table.log import DatasetLog, Record, Totals
from kubothek.table.log.journal import Journal
from kubothek.table.log.model.record import size_of
from kubothek.table.log.records import parallel, records_from
from kubothek.table.maintenance.inventory import Inventory

_LISTED: Final = 10_000
_READ: Final = 32


def estimate(log: DatasetLog, inventory: Inventory) -> Totals:
    """Return the size of files that records name and the inventory lacks; reads the records that may name such files.

    A record that is alone at its version names only files of the inventory. Of many others, a sample is read and
    extrapolated.
    """
    listed = list(islice(records_from(log.journal, 0), _LISTED))
    records_of, kept = Counter(record.version for record in listed), set(inventory.versions)
    doubtful = [record.key for record in listed if record.version not in kept or records_of[record.version] > 1]
    read = doubtful if len(doubtful) <= _READ else random.sample(doubtful, _READ)
    found = parallel(lambda key: _record(log.journal, key), read)
    named = {file.key: file for record in found if record is not None for file in record.delta.added}
    needed = pc.is_in(pa.array(named, pa.string()), value_set=inventory.files.column("key")).to_pylist()
    size = size_of(file for file, stays in zip(named.values(), needed, strict=True) if not stays)
    share = len(doubtful) / max(1, len(read))
    return Totals(rows=round(size.rows * share), files=round(size.files * share), bytes=round(size.bytes * share))


def _record(journal: Journal, key: str) -> Record | None:
    try:
        return journal.record(key)
    except VersionIncomplete:
        return None  # a collector has deleted it meanwhile
