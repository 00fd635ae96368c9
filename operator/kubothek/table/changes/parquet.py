"""Read files of a change feed without Arrow's dataset, whose work for a small file exceeds that of decoding it.

It reads files whose columns have the types of the table, as those of most commits have. Arrow's dataset, which also
casts, reads the others. What is decoded at once is bounded by the limits here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from kubothek.storage.base import Store
from kubothek.table.changes.files import moment
from kubothek.table.changes.plan import with_feed_columns
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.log.model.paths import parse_path
from kubothek.table.scan.statistics import worth_a_dictionary

BATCH_ROWS: Final = 1 << 17
"""Most rows that are decoded at once, as by Arrow's dataset."""
_SMALL_BYTES: Final = 16 << 20
"""Most bytes, with dictionaries not applied, of a file that is decoded as a whole."""
_IN_MEMORY: Final = 8 << 20
"""Most bytes of a file that is read with one request."""


class FeedFiles:
    """Opens files of a table as columns of ``schema``; used by several threads.

    ``schema``  the stored schema of the table
    """

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self.schema = schema
        self._shown = with_feed_columns(schema)
        self._filesystem: fs.FileSystem = arrow_filesystem(store)
        self._kinds: dict[str, pa.Array[Any]] = {}

    def open(self, key: str) -> FeedFile | None:
        """Return an open file; None if its columns do not have the types of the schema.

        Call :meth:`.Store.check_no_links` first. Raises OSError and ArrowException, and PartitionInvalid for a path
        that does not fit the schema.
        """
        values = parse_path("/".join(key.split("/")[2:-1]), self.schema)
        source = self._filesystem.open_input_file(key)
        if (size := source.size()) <= _IN_MEMORY:
            with source:
                source = pa.BufferReader(source.read_buffer(size))
        parquet = pq.ParquetFile(source, pre_buffer=not isinstance(source, pa.BufferReader))
        columns = _columns(found := parquet.schema_arrow, self.schema, values)
        if columns is None:
            return None
        constants = {name: pa.scalar(value, self.schema.field(name).type) for name, value in values.items()}
        texts = [name for name, at in columns.items() if pa.types.is_string(found.field(at).type)]
        return FeedFile(source, parquet, columns, len(columns) == len(found), constants, texts)

    def batch(
        self,
        columns: Mapping[str, Any],
        constants: Mapping[str, pa.Scalar[Any]],
        rows: int,
        feed: tuple[str, int, datetime],
    ) -> pa.RecordBatch:
        """Return rows with the columns of a feed.

        ``columns``    decoded; a column that is in neither these nor ``constants`` is null
        ``constants``  of the file
        ``feed``       type, version and time of the change
        """
        kind, version, time = feed
        stored = [
            columns[each.name]
            if each.name in columns
            else _repeated(constants[each.name], rows)
            if each.name in constants
            else pa.nulls(rows, each.type)
            for each in self.schema
        ]
        of_feed = [
            self._kind(kind, rows),
            _repeated(pa.scalar(version, pa.int64()), rows),
            _repeated(moment(time), rows),
        ]
        return pa.RecordBatch.from_arrays([*stored, *of_feed], schema=self._shown)

    def _kind(self, kind: str, rows: int) -> Any:
        """Return a slice of one array for all files: a text costs more to repeat than a number."""
        found = self._kinds.get(kind)
        if found is None or len(found) < rows:
            found = self._kinds[kind] = _repeated(pa.scalar(kind), rows)
        return found.slice(0, rows)


@dataclass(frozen=True, slots=True)
class FeedFile:
    """An open file.

    ``columns``      the stored columns that it has, with their positions
    ``has_no_other`` whether it has no other columns
    ``constants``    values of the partition columns, from its path
    ``texts``        those of ``columns`` with texts
    """

    source: Any
    parquet: pq.ParquetFile
    columns: dict[str, int]
    has_no_other: bool
    constants: dict[str, pa.Scalar[Any]]
    texts: list[str]

    @property
    def is_small(self) -> bool:
        """Whether it can be decoded as a whole."""
        metadata = self.parquet.metadata
        if metadata.num_rows > BATCH_ROWS:
            return False
        groups = range(metadata.num_row_groups)
        return sum(metadata.row_group(group).total_byte_size for group in groups) <= _SMALL_BYTES

    def whole(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield all rows, as decoded columns and the number of rows."""
        if not self.parquet.metadata.num_rows:
            return
        parquet = self.parquet
        worth = worth_a_dictionary(parquet.metadata) if self.texts else None
        if texts := [name for name in self.texts if worth and name in worth]:
            # To take the values of a dictionary costs half of what Arrow's reader needs for them.
            parquet = pq.ParquetFile(self.source, metadata=parquet.metadata, read_dictionary=texts)
        table = parquet.read(None if self.has_no_other else [*self.columns], use_threads=False)
        for batch in table.to_batches():
            columns = {
                name: column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }
            yield columns, batch.num_rows

    def decoded(self, group: int, names: Collection[str], batch_rows: int) -> Iterator[dict[str, Any]]:
        """Yield columns of a row group, without nested ones, in batches of this number of rows, but for the last.

        Raises ArrowCapacityError if the values of a batch exceed the 2 GiB of an array.
        """
        left = self.parquet.metadata.row_group(group).num_rows
        if not names:
            yield from ({} for _ in range(0, left, batch_rows))
            return
        for batch in self.parquet.iter_batches(batch_rows, [group], [*names], use_threads=False):
            if batch.num_rows != min(left, batch_rows):
                raise pa.ArrowCapacityError(f"{batch_rows} rows of a column exceed 2 GiB")
            left -= batch.num_rows
            yield dict(zip(batch.schema.names, batch.columns, strict=True))

    def encoded(self, group: int, column: int) -> bytes:
        """Return the bytes of a column chunk: its pages, with their headers."""
        chunk = self.parquet.metadata.row_group(group).column(column)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        content: bytes = self.source.read_at(chunk.total_compressed_size, start)
        return content


def _repeated(value: Any, rows: int) -> pa.Array[Any]:
    """Return an array of one value, not NULL; of numbers in a sixth of the time that Arrow takes."""
    if not pa.types.is_primitive(value.type) or pa.types.is_boolean(value.type):
        repeated: pa.Array[Any] = pa.repeat(value, rows)
        return repeated
    (number,) = np.frombuffer(pa.repeat(value, 1).buffers()[1], f"u{value.type.bit_width // 8}", 1)
    data: Any = np.full(rows, number)
    return pa.Array.from_buffers(value.type, rows, [None, pa.py_buffer(data)])


def _columns(found: pa.Schema, schema: pa.Schema, constants: Collection[str]) -> dict[str, int] | None:
    """Return the columns to decode; None if one has another type, or a name that selects several."""
    names = found.names
    columns = {}
    for each in schema:
        if each.name in constants or each.name not in names:
            continue
        at = names.index(each.name)
        if names.count(each.name) > 1 or "." in each.name or found.field(at).type != each.type:
            return None
        columns[each.name] = at
    return columns
