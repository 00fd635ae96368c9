"""How much garbage there may be: files that commit records name and no kept version needs. An estimate.

These are what attempts at commits left that were overtaken or died, and what expired versions needed, as long as no
collection has taken both files and records. Files of which no record tells, and index files, are not seen so; what a
commit brings that is on its way is. The collector alone knows, as it lists everything.
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
    """Of files that records name and the inventory does not; reads some of the records that may name such files.

    A record that is the only one of its version names nothing else than what the inventory has. Of more than a few
    others a sample is read, for all of them.
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
        return None  # a collector was faster
