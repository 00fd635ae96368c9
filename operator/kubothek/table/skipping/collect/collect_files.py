"""Describe existing data files: from their footers, and by reading only the columns that footers do not cover."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import ObjectNotFound
from kubothek.storage import Store
from kubothek.table.skipping.collect.collectors import Describing, EntryWriter, entry_schema
from kubothek.table.skipping.collect.footers import Footers, Leaf, leaves_of
from kubothek.table.skipping.columns import path_of
from kubothek.table.skipping.entries import Describer, EntrySchema
from kubothek.table.skipping.model import Part
from kubothek.table.untrusted_parquet import open_parquet_file

ReportProgress = Callable[[int, int], None]
"""Progress callback with the number of files done, and of all files."""

_BATCH_ROWS: Final = 1 << 16
_FILES_AHEAD: Final = 64


@dataclass(frozen=True, slots=True)
class Described:
    """A table whose files are described; plain data, sent to executors. ``schema``: its stored schema."""

    uuid: str
    table: str
    schema: pa.Schema
    partition_keys: tuple[str, ...]
    describing: Describing


def describe_files(
    described: Described,
    store: Store,
    files: Sequence[tuple[str, Mapping[str, Any]]],
    report: ReportProgress = lambda done, total: None,
) -> tuple[Part, ...]:
    """Store entries of these files, given as keys and the values of their partition columns.

    A file that is missing or unreadable gets none: the later read reports the error. A few files per processor are in
    memory at a time, each with one batch of rows. Raises the store's errors.
    """
    entries = entry_schema(described.describing.definitions, described.schema, described.partition_keys)
    writer = EntryWriter(store, described.uuid, described.table, entries, described.describing)

    def one(file: tuple[str, Mapping[str, Any]]) -> Sequence[pa.Array[Any] | None] | None:
        return _describe(store, file[0], entries, described)

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="describe") as pool:
        for start in range(0, len(files), _FILES_AHEAD):
            some = files[start : start + _FILES_AHEAD]
            for done, ((key, partition), found) in enumerate(zip(some, pool.map(one, some), strict=True), start + 1):
                if found is not None:
                    writer.add(key, partition, found)
                report(done, len(files))
            if writer.is_full:
                writer.flush()
    return writer.finish()


def in_few(described: Described, store: Store, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the entries that several calls of :func:`describe_files` stored, in as few parts as possible."""
    entries = entry_schema(described.describing.definitions, described.schema, described.partition_keys)
    writer = EntryWriter(store, described.uuid, described.table, entries, described.describing)
    writer.add_parts(parts)
    return writer.finish()


def _describe(
    store: Store, key: str, entries: EntrySchema, described: Described
) -> Sequence[pa.Array[Any] | None] | None:
    try:
        with store.open(key) as source:
            return _of_file(open_parquet_file(pa.PythonFile(source, mode="r")), entries, described)
    except (ObjectNotFound, OSError, pa.ArrowException):
        return None


def _of_file(file: pq.ParquetFile, entries: EntrySchema, described: Described) -> Sequence[pa.Array[Any] | None] | None:
    found = file.schema_arrow
    leaves = leaves_of(entries.definitions, described.schema)
    # Other types order their statistics differently; footers do not reveal NaN; and old files lack columns.
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.name in found.names and _is_as_ours(file, leaf)}
    from_footers = Footers(leaves).read(file.metadata)
    others = [each for each in entries.definitions if each.column not in from_footers]
    describer = Describer(entries, others, fpp=described.describing.fpp())
    if others:
        tops = {path_of(described.schema, column)[0] for each in others for column in each.columns}
        wanted = [name for name in found.names if name in tops]
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            describer.update(batch)
        if not wanted:
            describer.update(_nulls(file.metadata.num_rows))
    gathered = describer.finish()
    if gathered is None:
        return None
    return [from_footers.get(each.column, entry) for each, entry in zip(entries.definitions, gathered, strict=True)]


def _is_as_ours(file: pq.ParquetFile, leaf: Leaf) -> bool:
    if file.schema_arrow.field(leaf.name).type != leaf.type or pa.types.is_floating(leaf.type):
        return False
    # Arrow keeps the unit that times had before they were written.
    return not pa.types.is_timestamp(leaf.type) or "microseconds" in str(
        file.schema.column(file.schema.names.index(leaf.name)).logical_type
    )


def _nulls(rows: int) -> pa.Table:
    """Return the rows of a file that has none of the columns: all NULL."""
    return pa.table({"": pa.nulls(rows)})
