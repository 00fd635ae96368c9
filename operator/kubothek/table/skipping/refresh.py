"""Merge skipping metadata, and drop entries of deleted files, so that it stays small.

Metadata files are immutable. A commit adds one, and sometimes replaces several with one (:func:`tidied`). Each entry is
thus rewritten a logarithmic number of times, and the number of parts stays bounded. Maintenance merges all
(:func:`merged`). Merged parts stay until they are collected, because older versions name them. Real Xskipper reads them
meanwhile: duplicate entries, and entries of deleted data files, cost it time but do not change what it skips (verified
with Xskipper 1.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kubothek.errors import SkippingInvalid, SkippingUnreadable
from kubothek.storage import Store
from kubothek.table.skipping.entries import KEY, MODIFIED, EntrySchema, definitions_tag
from kubothek.table.skipping.files.encryption import MasterKeys
from kubothek.table.skipping.files.reading import load
from kubothek.table.skipping.files.writing import modified, write
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import Encryption, Part, SkippingState, require_footer_key
from kubothek.table.skipping.names import definitions_tag_of

Holds = Callable[[str], bool]
"""Whether the table has a file of this key."""

PARTS_AT_ONCE: Final = 4
"""Number of parts of one size class that are merged into one."""
_COMMIT_ROWS: Final = 1 << 16
_COMMIT_BYTES: Final = 16 << 20
"""Maximum that a commit merges."""
_PART_ROWS: Final = 50_000
_PART_BYTES: Final = 64 << 20
"""Limit of a part that maintenance writes; Xskipper's own have similar sizes."""


def tidied(
    store: Store,
    uuid: str,
    table: str,
    schema: EntrySchema,
    parts: Sequence[Part],
    holds: Holds,
    *,
    encryption: Encryption | None = None,
) -> tuple[Part, ...]:
    """Return the parts with the smallest ones merged, if there are many of one size; bounded work, for a commit.

    A part that cannot be read is left out: its files then have no entries.
    """
    classes: dict[int, list[Part]] = {}
    for part in _with_tag(parts, definitions_tag(schema, encryption)):
        classes.setdefault(_size_class(part), []).append(part)
    chosen: list[Part] = []
    for _, some in sorted(classes.items()):
        # The merged part may fill the next class, which is then merged in the same call.
        if len(some) + bool(chosen) < PARTS_AT_ONCE:
            break
        if not _is_cheap([*chosen, *some]):
            break
        chosen += some
    if not chosen:
        return tuple(parts)
    kept = tuple(part for part in parts if part not in chosen)
    return kept + merged(store, uuid, table, schema, chosen, holds=holds, encryption=encryption)


def merged(
    store: Store,
    uuid: str,
    table: str,
    schema: EntrySchema,
    parts: Sequence[Part],
    *,
    holds: Holds = lambda _key: True,
    times: Mapping[str, int] | None = None,
    encryption: Encryption | None = None,
) -> tuple[Part, ...]:
    """Return the entries of all parts of the current definitions in as few parts as possible; other parts stay.

    ``holds``  entries of files for which it is False are dropped
    ``times``  modification times of the files, in ms, by key; a copy of the store changes them

    A duplicate entry is taken from the last part; a part that cannot be read is dropped. Memory holds all keys, and the
    entries of one part and of one new one.
    """
    ours = _with_tag(parts, definitions_tag(schema, encryption))
    writer = _Writer(store, uuid, table, schema, encryption)
    for part, rows in _kept(store, ours, holds):
        try:
            entries = aligned(load(store, part), schema)
        except SkippingUnreadable:
            continue
        writer.add(_at(entries.take(rows), times))
    return tuple(part for part in parts if part not in ours) + writer.finish()


def carried(
    source: Store,
    parts: Sequence[Part],
    target: Store,
    uuid: str,
    table: str,
    schema: EntrySchema,
    keys: Mapping[str, str],
    *,
    encryption: Encryption | None = None,
) -> tuple[Part, ...]:
    """Return the entries of copied files, for their copies; ``keys``: key of each copy by the key of its original.

    A part of other definitions, or one that cannot be read, is left out.
    """
    writer = _Writer(target, uuid, table, schema, encryption)
    for part, rows in _kept(source, _with_tag(parts, definitions_tag(schema, encryption)), keys.__contains__):
        try:
            entries = aligned(load(source, part), schema).take(rows)
        except SkippingUnreadable:
            continue
        copies = [keys[str(key)] for key in entries.column(KEY).to_pylist()]
        entries = entries.set_column(entries.schema.get_field_index(KEY), KEY, pa.array(copies, pa.string()))
        writer.add(_at(entries, modified(target, copies)))
    return writer.finish()


def aligned(entries: pa.Table, schema: EntrySchema) -> pa.Table:
    """Return the entries with exactly the columns of the schema; null for a missing column or an incompatible type."""
    columns = []
    for field in schema.arrow:
        if field.name not in entries.column_names:
            columns.append(pa.chunked_array([pa.nulls(entries.num_rows, field.type)]))
            continue
        column: Any = entries.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            columns.append(pa.chunked_array([pa.nulls(entries.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def _kept(store: Store, parts: Sequence[Part], holds: Holds) -> list[tuple[Part, pa.Array[Any]]]:
    """Return the rows to keep of each part: of files that the table holds, the last row of each key."""
    readable, keys = [], []
    for part in parts:
        try:
            keys.append(load(store, part, columns=()).column(KEY).combine_chunks())
        except SkippingUnreadable:
            continue
        readable.append(part)
    if not readable:
        return []
    everything: Any = pa.concat_arrays(keys)
    numbers = np.arange(len(everything))
    last = (
        pa.Table.from_arrays([everything, pa.array(numbers)], ["key", "row"])
        .group_by("key")
        .aggregate([("row", "max")])
    )
    wanted = [holds(str(key)) for key in last.column("key").to_pylist()]
    rows = np.sort(last.column("row_max").to_numpy()[np.array(wanted, np.bool_)])
    found, start = [], 0
    for part, array in zip(readable, keys, strict=True):
        here = rows[(rows >= start) & (rows < start + len(array))] - start
        if len(here):
            found.append((part, pa.array(here)))
        start += len(array)
    return found


def _at(entries: pa.Table, times: Mapping[str, int] | None) -> pa.Table:
    if times is None:
        return entries
    moments = pa.array([times.get(str(key), 0) for key in entries.column(KEY).to_pylist()], pa.int64())
    return entries.set_column(entries.schema.get_field_index(MODIFIED), MODIFIED, moments)


class _Writer:
    """Writer of entries in parts of bounded size."""

    def __init__(self, store: Store, uuid: str, table: str, schema: EntrySchema, encryption: Encryption | None) -> None:
        self._place = (store, uuid, table, schema)
        self._encryption = encryption
        self._held: list[pa.Table] = []
        self._parts: list[Part] = []

    def add(self, entries: pa.Table) -> None:
        self._held.append(entries)
        if sum(t.num_rows for t in self._held) > _PART_ROWS or sum(t.nbytes for t in self._held) > _PART_BYTES:
            self._flush()

    def finish(self) -> tuple[Part, ...]:
        self._flush()
        return tuple(self._parts)

    def _flush(self) -> None:
        if self._held:
            self._parts.append(write(*self._place, pa.concat_tables(self._held), encryption=self._encryption))
        self._held.clear()


def _with_tag(parts: Sequence[Part], tag: str) -> list[Part]:
    return [part for part in parts if definitions_tag_of(part.keys[0]) == tag]


def _is_cheap(parts: Sequence[Part]) -> bool:
    return sum(part.rows for part in parts) <= _COMMIT_ROWS and sum(part.bytes for part in parts) <= _COMMIT_BYTES


def _size_class(part: Part) -> int:
    """Return the size class; parts of one class differ in their rows by a factor of four at most."""
    return (max(part.rows, 1).bit_length() - 1) // 2


# The initial skipping metadata of a table: its first commit also describes the files that it adds.


def beginning(
    store: Store, definitions: SkippingState, schema: pa.Schema, partition_keys: Sequence[str]
) -> SkippingState | None:
    """Return the definitions if a table of this stored schema can have them all and every key is available; else None.

    Rows matter more than their metadata: a commit that only changes definitions
    (:mod:`kubothek.table.log.update_skipping`) reports what is invalid.
    """
    labels = {each.key for each in definitions.indices if each.key is not None}
    try:
        check(definitions.indices, schema, partition_keys)
        require_footer_key(definitions)
        if definitions.encryption is not None:
            MasterKeys.of(store).require({definitions.encryption.footer_key, *labels})
    except (SkippingInvalid, SkippingUnreadable):
        return None
    return definitions if definitions.indices else None
