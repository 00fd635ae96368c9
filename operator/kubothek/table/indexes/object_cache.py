"""Cache of opened index objects for the next lookup, in bounded memory; the objects are immutable."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from threading import Lock
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.errors import IndexStale, ObjectNotFound
from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept, by_store
from kubothek.table.indexes.entries import LABEL
from kubothek.table.indexes.integrity import check_bytes, check_rows, check_size
from kubothek.table.indexes.model import IndexFile
from kubothek.table.indexes.native import Manifest, read_manifest
from kubothek.table.untrusted_parquet import DAMAGED, checked_footer

BUDGET: Final = 128 << 20
"""Cached bytes for each store."""
_READ_AT_ONCE_BYTES: Final = 1 << 20
"""Files up to this size are cached whole; of larger ones the footer and a handle."""
_HANDLE_BYTES: Final = 1 << 20
_FOOTER_FACTOR: Final = 4
"""Memory of a parsed footer, as a multiple of its size in the file."""
_MANIFEST_FILE_BYTES: Final = 600


class OpenedFile:
    """One Parquet file of an index. Safe to use from several threads.

    Only one thread at a time reads a file that is not in memory. Each scan opens the file again, and Arrow then seeks
    to its end and back to find the size, without the lock that it takes for positioned reads.
    """

    def __init__(self, store: Store, key: str, committed: IndexFile | None = None) -> None:
        """Open the file; ``committed``: its manifest entry. Raise IndexStale if the file does not match it."""
        try:
            source = store.open(key)
            size = source.seek(0, io.SEEK_END)
            source.seek(0)
            if committed is not None:
                check_size(committed, size)
            is_read = size <= _READ_AT_ONCE_BYTES
            data = source.read() if is_read else b""
            if is_read:
                check_bytes(key, data)
            checked_footer(io.BytesIO(data) if is_read else source)
            file = pa.py_buffer(data) if is_read else pa.PythonFile(source, mode="r")
            options = ds.ParquetReadOptions(dictionary_columns=[LABEL])
            fragment: Any = ds.ParquetFileFormat(read_options=options).make_fragment(cast("Any", file))
            fragment.ensure_complete_metadata()
        except ObjectNotFound as error:
            raise IndexStale(f"{key}: the index file no longer exists; kubothek index --rebuild makes one") from error
        except DAMAGED as error:
            raise IndexStale(f"{key}: not an index file: {error}; kubothek index --rebuild makes one") from error
        self._fragment = fragment
        self._reading: AbstractContextManager[object] = nullcontext() if is_read else Lock()
        self.key = key
        self.schema: pa.Schema = fragment.physical_schema
        self.rows: int = fragment.metadata.num_rows
        if committed is not None:
            check_rows(committed, self.rows)
        self.cost = _FOOTER_FACTOR * fragment.metadata.serialized_size + (size if is_read else _HANDLE_BYTES)

    @cached_property
    def only_label(self) -> str | None:
        """The label of all entries, if statistics show that they have the same one: its column need not be read."""
        if LABEL not in self.schema.names:
            return None
        found, position = self._fragment.metadata, self.schema.get_field_index(LABEL)
        groups = (found.row_group(number).column(position).statistics for number in range(found.num_row_groups))
        bounds = {bound for each in groups for bound in ((each.min, each.max) if each else (None,))}
        return bounds.pop() if len(bounds) == 1 else None

    def read(self, columns: Sequence[str], where: pc.Expression) -> pa.Table:
        """Return the rows that match; row groups that their statistics exclude are not read."""
        return self._read(lambda: self._fragment.to_table(columns=list(columns), filter=where, use_threads=False))

    def read_near(self, columns: Sequence[str], where: pc.Expression) -> pa.Table:
        """Return all rows of the row groups that their statistics do not exclude: for a search for many matches."""
        return self._read(lambda: self._fragment.subset(where).to_table(columns=list(columns), use_threads=False))

    def groups_near(self, columns: Sequence[str], where: pc.Expression) -> Iterator[pa.Table]:
        """Yield the same rows, each row group when it is asked for: for a search that may end early."""
        for group in self._fragment.subset(where).row_groups:
            one = self._fragment.subset(row_group_ids=[group.id])
            yield self._read(partial(one.to_table, columns=list(columns), use_threads=False))

    def _read(self, read: Callable[[], pa.Table]) -> pa.Table:
        try:
            with self._reading:
                return read()
        except DAMAGED as error:
            raise IndexStale(f"{self.key}: {error}; rebuild the index: kubothek index --rebuild") from error


class Opened:
    """The most recently used files and manifests of one store."""

    def __init__(self, store: Store, budget: int = BUDGET) -> None:
        self._store = store
        self._kept: Kept[str, Any] = Kept(budget)

    @property
    def cost(self) -> int:
        """The memory of all, in bytes."""
        return self._kept.cost

    def file(self, key: str, committed: IndexFile | None = None) -> OpenedFile:
        """Return the file. Raise IndexStale if it is missing, or does not match ``committed``."""
        found: OpenedFile = self._kept.get(key, lambda: OpenedFile(self._store, key, committed), lambda file: file.cost)
        return found

    def manifest(self, key: str) -> Manifest:
        """Return the manifest. Raise IndexStale if it is missing."""
        found: Manifest = self._kept.get(
            key,
            lambda: read_manifest(self._store, key),
            lambda manifest: _MANIFEST_FILE_BYTES * (1 + len(manifest.files)) + sum(map(len, manifest.uncovered)),
        )
        return found


opened = by_store(Opened)
"""The cache of a store, for the lifetime of the store object."""
