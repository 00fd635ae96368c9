"""Update the indices of a table after a change of its files. Every commit does this on every head it tries.

Data files are read only for labels whose entries were not collected while they were written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import IndexStale
from kubothek.storage import Store
from kubothek.table.indexes import kartothek, native
from kubothek.table.indexes.compact import stream, tidied
from kubothek.table.indexes.entries import labels_in, merge, no_entries, sort_distinct, with_labels
from kubothek.table.indexes.model import NO_CHANGE, Collected, IndexChange, IndexKind, IndexState, digest_in
from kubothek.table.indexes.native import Manifest
from kubothek.table.indexes.reading import collect_from_files
from kubothek.table.indexes.types import check_indexable, file_type, is_indexable

_READ_FILES: Final = 16
"""A native index leaves more files than this uncovered, until maintenance reads them: it keeps commits short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A change of a table's files, as far as indices are concerned.

    ``files``           key by label, after the change
    ``added``           labels that are new, or name another file than before
    ``schema``          stored, after the change; None if the table has none yet
    """

    files: Mapping[str, str]
    added: Set[str]
    removed: Set[str]
    schema: pa.Schema | None
    partition_keys: Sequence[str] = ()


def maintain(
    store: Store,
    before: IndexState,
    files: Files,
    moment: datetime,
    change: IndexChange = NO_CHANGE,
    *,
    lenient: bool = False,
) -> IndexState:
    """Return the indices of the head after the change. Nothing is written if none of them changes.

    ``lenient``: drop an index that cannot be updated; else it raises IndexStale. Raises IndexInvalid for a wanted index
    that is impossible.
    """
    return _Maintenance(store, before, files, moment, change).run(lenient=lenient)


class _Maintenance:
    """One call of :func:`maintain`."""

    def __init__(self, store: Store, before: IndexState, files: Files, moment: datetime, change: IndexChange) -> None:
        self._store = store
        self._before = before
        self._files = files
        self._moment = moment
        self._change = change
        self._dialect = before.dialect if change.dialect is None else change.dialect

    def run(self, *, lenient: bool) -> IndexState:
        schema = pa.schema([]) if self._files.schema is None else self._files.schema
        asked = {**self._before.pending, **self._change.wanted}
        if self._files.schema is not None and not lenient:
            new = [(column, kind) for column, kind in asked.items() if kind is not None]
            check_indexable(schema, self._files.partition_keys, new)
        pending: dict[str, IndexKind] = {}
        kartothek_indices: dict[str, Any] = {}
        native_indices: dict[str, str] = {}
        for column, kind in {**self._before.wanted(), **self._change.wanted}.items():
            if kind is None:
                continue
            if self._files.schema is None or (column in schema.names and pa.types.is_null(schema.field(column).type)):
                pending[column] = kind
                continue
            if column not in _indexable(schema, self._files.partition_keys):
                continue  # the column was dropped, or has another type
            stored = schema.field(column).type
            try:
                if kind is IndexKind.KARTOTHEK:
                    kartothek_indices[column] = self._kartothek(column, stored)
                else:
                    native_indices[column] = self._native(column, stored)
            except IndexStale:
                if not lenient:
                    raise
        return IndexState(self._before.uuid, kartothek_indices, native_indices, self._dialect, pending)

    def _is_fresh(self, column: str, listed: Mapping[str, Any]) -> bool:
        return column in self._change.fresh or column not in listed

    def _missing(self, column: str, *, fresh: bool) -> dict[str, str]:
        """Return the files (key by label) whose entries for the column are neither in the index nor collected."""
        known = self._change.collected.of(column)
        labels = self._files.files if fresh else self._files.added
        return {label: self._files.files[label] for label in labels if label not in known}

    def _kartothek(self, column: str, stored: pa.DataType) -> Any:
        listed = self._before.kartothek
        fresh = self._is_fresh(column, listed)
        wanted_type = file_type(stored, self._dialect)
        untouched = not fresh and not self._files.added and not self._files.removed
        if untouched and self._dialect is self._before.dialect:
            return listed[column]
        tables = [no_entries(stored)]
        unnamed: Set[str] = frozenset()
        if not fresh:
            old, old_type = kartothek.read(self._store, column, listed[column], stored)
            if untouched and old_type == wanted_type:
                return listed[column]
            tables.append(with_labels(old, self._kept()))
            unnamed = _unnamed(listed[column], old, self._kept())
        tables += self._gathered(column, stored, self._change.collected)
        if missing := self._missing(column, fresh=fresh) | {label: self._files.files[label] for label in unnamed}:
            read = collect_from_files(self._store, self._before.uuid, {column: stored}, missing)
            tables += self._gathered(column, stored, read)
        entries = with_labels(sort_distinct(tables), self._files.files)
        return kartothek.write(self._store, self._before.uuid, column, entries, wanted_type, self._moment)

    def _kept(self) -> Collection[str]:
        """Return the labels that name the same file as before."""
        added = self._files.added
        return {label for label in self._files.files if label not in added} if added else self._files.files

    def _gathered(self, column: str, stored: pa.DataType, collected: Collected) -> list[pa.Table]:
        files = collected.files.get(column, ())
        return list(merge([stream(self._store, [file], stored) for file in files]))

    def _native(self, column: str, stored: pa.DataType) -> str:
        listed = self._before.native
        fresh = self._is_fresh(column, listed)
        merged = self._change.merged.get(column)
        if not (fresh or self._files.added or self._files.removed or merged):
            return listed[column]
        old = Manifest(column, stored) if fresh else native.read_manifest(self._store, listed[column])
        if old.type != stored and not _widens(old.type, stored):
            old, fresh = Manifest(column, stored), True
        if merged is not None and not fresh:
            old = native.with_merged(old, merged)
        missing = self._missing(column, fresh=fresh)
        files = old.files + self._change.collected.files.get(column, ())
        if len(missing) <= _READ_FILES:
            read = collect_from_files(self._store, self._before.uuid, {column: stored}, missing)
            files, missing = files + read.files[column], {}
        uncovered = frozenset(label for label in old.uncovered if label in self._files.files).union(missing)
        new = replace(old, type=stored, files=files, uncovered=uncovered)
        return native.write_manifest(self._store, self._before.uuid, tidied(self._store, self._before.uuid, new))


def _unnamed(listed: Any, entries: pa.Table, labels: Collection[str]) -> Set[str]:
    """Return the labels without an entry in a foreign index: their files have no values, or the index is damaged."""
    if isinstance(listed, str) and digest_in(listed) is not None:
        return frozenset()
    named = labels_in(entries)
    return frozenset(label for label in labels if label not in named)


def _indexable(schema: pa.Schema, partition_keys: Sequence[str]) -> set[str]:
    """Return the columns that may have an index. plateau indexes partition columns, too, but such an index is empty."""
    return {field.name for field in schema if is_indexable(field.type)}.difference(partition_keys)


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether values keep their order when they are read as the new type."""
    return (pa.types.is_integer(old) and pa.types.is_floating(new)) or (
        pa.types.is_integer(old) and pa.types.is_integer(new)
    )


# --- foreign heads ---------------------------------------------------------------------------------------------------


def adopt(store: Store, before: IndexState, foreign: Mapping[str, Any], files: Files, moment: datetime) -> IndexState:
    """Return the indices after another program replaced the head with ``before``; ``foreign`` are its ``indices``.

    A Kartothek index that the other library dropped, left stale or wrote in the other dialect is repaired. Native
    indices, which it does not know, are updated as in any commit. An index that cannot be repaired is left out, because
    a foreign head must always be adopted.
    """
    schema = pa.schema([]) if files.schema is None else files.schema
    kartothek_indices: dict[str, Any] = {}
    for column in {**before.kartothek, **foreign}:
        if column in _indexable(schema, files.partition_keys):
            found = _mended(store, before, foreign, column, files, moment)
            if found is not None:
                kartothek_indices[column] = found
    keeps = replace(before, kartothek={}, native={c: k for c, k in before.native.items() if c not in kartothek_indices})
    kept = maintain(store, keeps, files, moment, lenient=True)
    return replace(kept, kartothek={**kept.kartothek, **kartothek_indices})


def _mended(
    store: Store, before: IndexState, foreign: Mapping[str, Any], column: str, files: Files, moment: datetime
) -> Any:
    schema = files.schema
    assert schema is not None, "the column is in the schema"
    stored = schema.field(column).type
    wanted_type = file_type(stored, before.dialect)
    for listed in (foreign.get(column), before.kartothek.get(column)):
        if listed is None:
            continue
        try:
            entries, found_type = kartothek.read(store, column, listed, stored)
            labels = labels_in(entries)
            # It may be stale, even if it is new to this table: from an overwritten commit of Kubothek.
            unknown = {label: files.files[label] for label in files.added - labels}
            read = collect_from_files(store, before.uuid, {column: stored}, unknown)
        except IndexStale:
            continue
        gathered = [piece for file in read.files[column] for piece in stream(store, [file], stored)()]
        exact = not gathered and labels <= files.files.keys() and found_type == wanted_type
        if exact and listed == foreign.get(column):
            return listed
        mended = with_labels(sort_distinct([entries, *gathered]), files.files)
        return kartothek.write(store, before.uuid, column, mended, wanted_type, moment)
    return None
