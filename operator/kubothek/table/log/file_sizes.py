"""Sizes of data files from Parquet footers, for files that Kubothek did not write or that a commit removes."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import InvalidKey, ObjectNotFound
from kubothek.storage import Store
from kubothek.table.log.model.changes import PartitionFile
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.record import Totals, size_of
from kubothek.table.log.records import parallel
from kubothek.table.untrusted_parquet import DAMAGED


def measure(store: Store, files: Iterable[tuple[str, str]]) -> tuple[PartitionFile, ...]:
    """Return rows and bytes of each (label, key); two or three requests a file, in parallel.

    A file that is missing or is not Parquet has no rows: a head that lists it is adopted as it is.
    """

    def one(file: tuple[str, str]) -> PartitionFile:
        label, key = file
        try:
            with store.open(key) as source:
                size = source.seek(0, io.SEEK_END)
                return PartitionFile(label, key, _rows(source), size)
        except (ObjectNotFound, InvalidKey):
            return PartitionFile(label, key, 0, 0)

    return tuple(parallel(one, list(files)))


def size_of_removed(store: Store, removed: tuple[tuple[str, str], ...], head: Head, totals: Totals) -> Totals:
    """Return the size of removed files; reads nothing if all files are removed."""
    if len(removed) == len(head.partitions):
        return totals
    return size_of(measure(store, removed))


def _rows(source: io.BufferedIOBase) -> int:
    try:
        return pq.read_metadata(pa.PythonFile(source, mode="r")).num_rows
    except DAMAGED:
        return 0
