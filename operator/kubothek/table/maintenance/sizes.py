"""The size of each file of a table: from its inventory, else commit records, else footers. Nothing is listed.

A record costs one request and has the sizes of all files that its commit added; a footer costs one or two for one file.
So history is read, newest first, until all sizes are known, but no more records than there are unknown files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from kubothek.errors import VersionIncomplete
from kubothek.storage import Store
from kubothek.table.log import DatasetLog, Head, PartitionFile, Record
from kubothek.table.log.file_sizes import measure
from kubothek.table.maintenance.inventory import kept


def sizes(store: Store, log: DatasetLog, head: Head) -> list[PartitionFile]:
    """Return the files of the head, in its order. One that is gone has no rows and no bytes; non-Parquet, no rows."""
    files = head.files()
    unknown = {key: label for label, key in files.items()}
    known: dict[str, PartitionFile] = {}
    if (inventory := kept(store, log.uuid)) is not None:
        columns = (inventory.files.column(name).to_pylist() for name in ("key", "rows", "bytes"))
        for key, rows, size in zip(*columns, strict=True):
            if (label := unknown.pop(key, None)) is not None:
                known[key] = PartitionFile(label, key, rows, size)
    for record in islice(intact_records(log), len(unknown)):
        for file in record.delta.added:
            if unknown.get(file.key) == file.label:
                known[file.key] = file
                del unknown[file.key]
        if not unknown:
            break
    for file in measure(store, ((label, key) for key, label in unknown.items())):
        known[file.key] = file
    return [known[key] for key in files.values()]


def intact_records(log: DatasetLog) -> Iterator[Record]:
    """Yield the commits, newest first, down to the horizon or to a record that another program deleted."""
    history = log.history()
    try:
        yield from history
    except VersionIncomplete:
        return
