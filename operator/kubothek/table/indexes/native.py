"""Native indices: sorted Parquet files of entries, and a manifest that lists the files of one index.

Manifests and files are immutable: a head names one manifest for each column (``kubothek_index``), and a commit writes a
new one. Invariant of a manifest for its head: each label of the head is in ``uncovered``, or all of its values are in
the files. Entries of labels outside the head are harmless, because a label never returns with other rows: lookups
ignore them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import IndexStale, InputError, InvalidKey, ObjectNotFound
from kubothek.storage import Store
from kubothek.storage.foreign_keys import check_foreign_keys
from kubothek.table.checked_types import checked
from kubothek.table.indexes import model
from kubothek.table.indexes.entries import LABEL, LABEL_TYPE, VALUE
from kubothek.table.indexes.integrity import check_bytes, check_rows, check_size, check_stream
from kubothek.table.indexes.model import IndexFile, Merged
from kubothek.table.indexes.types import high_bound, low_bound
from kubothek.table.schema import parse_type, type_name
from kubothek.table.untrusted_parquet import DAMAGED, open_parquet_file

FILE_ROWS: Final = 1 << 20
"""Maximum entries of a file: about ten MiB. A compacted index is many such files with disjoint values."""
_GROUP_ROWS: Final = 1 << 15
"""The unit that a point lookup reads."""
_DICTIONARY_BYTES: Final = 64 << 20
"""Keeps labels dictionary-encoded, however many there are."""
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One native index at one version.

    ``files``      in any order; their values may overlap
    ``uncovered``  labels of the head whose values are not in the files, such as those that a foreign writer added
    """

    column: str
    type: pa.DataType
    files: tuple[IndexFile, ...] = ()
    uncovered: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Entries in the files, stale ones included."""
        return sum(file.rows for file in self.files)

    def render(self) -> bytes:
        """Return the stored form."""
        document: dict[str, Any] = {"format": _FORMAT, "column": self.column, "type": type_name(self.type)}
        document["files"] = [file.to_json() for file in self.files]
        document["uncovered"] = sorted(self.uncovered)
        return orjson.dumps(document)


def read_manifest(store: Store, key: str) -> Manifest:
    """Read a manifest. Raise IndexStale if it is missing or has an unknown format."""
    try:
        data = store.get(key)
        check_bytes(key, data)
        found = orjson.loads(data)
        if found["format"] != _FORMAT:
            raise IndexStale(f"{key}: index format {found['format']!r} needs a newer Kubothek")
        files = tuple(IndexFile(**file) for file in found["files"])
        check_foreign_keys([file.key for file in files], f"{key.rpartition('/')[0]}/")
        return checked(Manifest(found["column"], parse_type(found["type"]), files, frozenset(found["uncovered"])))
    except ObjectNotFound as error:
        raise IndexStale(f"{key}: the index manifest no longer exists; kubothek index --rebuild makes one") from error
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError, InputError, InvalidKey) as error:
        raise IndexStale(f"{key}: not an index manifest: {error!r}; kubothek index --rebuild makes one") from error


def write_manifest(store: Store, uuid: str, manifest: Manifest) -> str:
    """Write the manifest under a new key and return the key."""
    data = manifest.render()
    key = model.new_manifest_key(uuid, manifest.column, model.digest_of(data))
    store.put(key, data)
    return key


def write_files(store: Store, uuid: str, column: str, pieces: Iterable[pa.Table]) -> tuple[IndexFile, ...]:
    """Store sorted entries, as :func:`~.entries.merge` returns them, in files of bounded size."""
    files: list[IndexFile] = []
    part: _Part | None = None
    for piece in pieces:
        for start in range(0, piece.num_rows, FILE_ROWS):
            rows = piece.slice(start, FILE_ROWS)
            part = part or _Part(rows.schema.field(VALUE).type)
            part.write(rows)
            if part.rows >= FILE_ROWS:
                files.append(part.put(store, uuid, column))
                part = None
    if part is not None and part.rows:
        files.append(part.put(store, uuid, column))
    return tuple(files)


def read_pieces(store: Store, file: IndexFile, value_type: pa.DataType) -> Iterator[pa.Table]:
    """Yield the row groups of a sorted file, with values of ``value_type``, which may be wider than the stored type.

    Raises IndexStale if it is not the committed file: its entries go into new files.
    """
    schema = pa.schema([(VALUE, value_type), (LABEL, LABEL_TYPE)])
    try:
        with store.open(file.key) as source:
            check_size(file, source.seek(0, io.SEEK_END))
            source.seek(0)
            check_stream(file.key, source)
            reader = open_parquet_file(pa.PythonFile(source, mode="r"), read_dictionary=[LABEL])
            check_rows(file, reader.metadata.num_rows)
            for number in range(reader.num_row_groups):
                piece = reader.read_row_group(number)
                piece.validate(full=True)
                yield piece.cast(schema, safe=False)
    except ObjectNotFound as error:
        raise IndexStale(f"{file.key}: the index file no longer exists; kubothek index --rebuild makes one") from error
    except DAMAGED as error:
        raise IndexStale(f"{file.key}: not an index file: {error}; kubothek index --rebuild makes one") from error


def with_merged(manifest: Manifest, merged: Merged) -> Manifest:
    """Return the manifest with the result of a compaction; unchanged, if another one has removed its input files."""
    if not merged.instead_of <= {file.key for file in manifest.files}:
        return manifest
    kept = tuple(file for file in manifest.files if file.key not in merged.instead_of)
    return replace(manifest, files=kept + merged.files, uncovered=manifest.uncovered - merged.covered)


def _form(value_type: pa.DataType) -> Any:
    """Return the writer options for the values.

    Sorted numbers compress well as differences, which decode faster than zstd: 2 ms for a million random ones, against
    6.5 ms.
    """
    types = pa.types
    if types.is_integer(value_type) or types.is_temporal(value_type):
        delta = {VALUE: "DELTA_BINARY_PACKED"}
        return {"compression": {VALUE: "none", LABEL: "zstd"}, "column_encoding": delta}
    return {"compression": "zstd"}


class _Part:
    """One file, encoded in memory; row groups are full, however small the added pieces are."""

    def __init__(self, value_type: pa.DataType) -> None:
        self.rows = 0
        self._sink = pa.BufferOutputStream()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._first: pa.Scalar[Any] | None = None
        self._last: pa.Scalar[Any] | None = None
        schema = pa.schema([(VALUE, value_type), (LABEL, LABEL_TYPE)])
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            version="2.6",
            use_dictionary=[LABEL],  # type: ignore[arg-type]  # the stubs know bool only
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
            **_form(value_type),
        )

    def write(self, rows: pa.Table) -> None:
        values = rows.column(VALUE)
        self._first = values[0] if self._first is None else self._first
        self._last = values[-1]
        self.rows += rows.num_rows
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= _GROUP_ROWS:
            self._flush()

    def put(self, store: Store, uuid: str, column: str) -> IndexFile:
        self._flush()
        self._writer.close()
        data = self._sink.getvalue()
        key = model.new_file_key(uuid, column, model.digest_of(memoryview(data)))
        store.put(key, memoryview(data))
        assert self._first is not None and self._last is not None, "a part without rows is not stored"  # noqa: PT018
        return IndexFile(key, self.rows, data.size, low_bound(self._first), high_bound(self._last))

    def _flush(self) -> None:
        if self._waiting:
            table = _compact(pa.concat_tables(self._waiting))
            self._writer.write_table(table, row_group_size=_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0


def _compact(table: pa.Table) -> pa.Table:
    """Return the table with dictionaries of only the labels that occur: a slice of a table keeps all of them."""
    chunks: list[Any] = table.unify_dictionaries().column(LABEL).chunks
    codes = pa.concat_arrays([chunk.indices for chunk in chunks])
    used = pc.unique(codes)
    labels = pa.DictionaryArray.from_arrays(pc.index_in(codes, value_set=used), chunks[0].dictionary.take(used))
    return table.set_column(1, LABEL, labels)


def chains(files: Sequence[IndexFile]) -> list[list[IndexFile]]:
    """Return the files in as few chains of ascending values as possible: each chain can be read as one stream."""
    found: list[list[IndexFile]] = []
    for file in sorted(files, key=lambda file: (file.low is not None, file.low or 0)):
        for chain in found:
            high = chain[-1].high
            if high is not None and file.low is not None and high < file.low:  # type: ignore[operator]
                chain.append(file)
                break
        else:
            found.append([file])
    return found
