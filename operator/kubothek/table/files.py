"""Write data files: rows in any order in, target-sized Parquet files per partition out, in bounded memory.

Files are ``<uuid>/<table>/<partition path>/<uuid4 hex>.parquet`` without the partition columns, in stored types
(Kartothek specification, "Data files of partitions"). The names of a bucket's files end with its mark. Files are
invisible to readers until a commit names them.
"""

from __future__ import annotations

import uuid as uuids
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import StoreError
from kubothek.storage.base import Store
from kubothek.storage.sha3_multibuffer import Lanes, Stream
from kubothek.table.bucketing import Bucketing
from kubothek.table.encodings import dictionary_and_deltas
from kubothek.table.layout import CODECS, MIB, Layout
from kubothek.table.log.model import keys
from kubothek.table.log.model.changes import PartitionFile
from kubothek.table.open_groups import Encoded, OpenFile, OpenGroup, encode
from kubothek.table.ordered_calls import OrderedCalls
from kubothek.table.partitioning import Group, check_partition_keys, split
from kubothek.table.scan.statistics import keep_footer
from kubothek.table.schema import conform, footer_metadata
from kubothek.table.sorting import SortedRuns

MEMORY_BUDGET: Final = 256 * MIB

_ROW_GROUP_BYTES: Final = 64 * MIB
_BLOCKS_OF_A_RUN: Final = 16
_ROOM: Final = 8
"""The divisor of the budget for what is encoded and uploaded while rows come in."""
_UPLOADS_AT_ONCE: Final = 8
_PUT_BYTES: Final = 1 << 20
"""Files smaller than this are uploaded together with others, up to this size,"""
_PUT_TOGETHER: Final = 64
"""or up to this number."""
_UNHASHED: Final = 16
"""The divisor of the budget for finished files that wait until several are hashed at once."""


class Observer(Protocol):
    """An observer of all rows while they are written, such as indices and statistics."""

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Record one row group, without the partition columns, of the file with this label.

        Called in the order of the rows, for every row, before it is written. An exception fails the write.
        """

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        """Record that the file with this label is complete, and goes to this key; ``footer`` is part of ``content``."""


class ParquetPart:
    """One data file, encoded in memory one row group at a time.

    ``label``     its label in the head
    ``metadata``  returns that of the footer, for the columns with a null (:func:`~.schema.footer_metadata`)
    ``first``     its first rows, by which the encodings are chosen
    """

    def __init__(
        self,
        label: str,
        schema: pa.Schema,
        layout: Layout,
        metadata: Callable[[frozenset[str]], dict[str, str]],
        first: Sequence[pa.RecordBatch],
    ) -> None:
        self.label = label
        self._sink = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        dictionary, deltas = dictionary_and_deltas(first, layout)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            version="2.4",
            compression=CODECS[layout.compression],
            use_dictionary=cast("Any", dictionary),  # the stubs know bool only
            column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED") or None,
            sorting_columns=_sorting_columns(schema, layout.sort_by),
            coerce_timestamps="us",
            metadata_collector=self._footers,
            store_schema=False,
        )
        self._metadata = metadata
        self._with_nulls: set[str] = set()

    @property
    def size(self) -> int:
        """Encoded bytes so far."""
        return self._sink.tell()

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Append the rows as one row group."""
        table = pa.Table.from_batches(batches)
        self._with_nulls.update(name for name in table.column_names if table.column(name).null_count)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> tuple[pa.Buffer, pq.FileMetaData]:
        """Return the whole file and its footer."""
        self._writer.add_key_value_metadata(self._metadata(frozenset(self._with_nulls)))
        self._writer.close()
        return self._sink.getvalue(), self._footers[0]


class PartitionedWriter:
    """Writer of tables into files per partition and bucket. Not thread-safe; uploads run in parallel with encoding.

    The files depend on the rows and the arguments alone, but for their names, and for ``cores`` not at all.

    ``schema``         stored schema of the rows, see :mod:`kubothek.table.schema`
    ``layout``         layout of the files
    ``table``          name of the table in the dataset, as in its head
    ``observer``       receives each row group that is encoded
    ``presorted``      the rows of each group come in the order of the layout and keep it
    ``memory_budget``  bytes for rows, unfinished files and uploads in progress. When they exceed it, the largest
                       partitions are written early: rows grouped by partition make the best files
    ``cores``          number of threads that encode row groups, of one file one after the other; 1: the caller does

    With ``sort_by``, rows stay in memory, compressed, as long as the budget allows. The files of a partition are then
    not only sorted but have disjoint ranges. Raises PartitionInvalid or LayoutInvalid before anything is written. Use
    it as a context manager: an error inside cancels the pending uploads and deletes the finished ones, as far as the
    store permits.
    """

    def __init__(
        self,
        store: Store,
        uuid: str,
        schema: pa.Schema,
        layout: Layout,
        *,
        table: str = keys.DEFAULT_TABLE,
        observer: Observer | None = None,
        presorted: bool = False,
        memory_budget: int = MEMORY_BUDGET,
        cores: int = 1,
    ) -> None:
        check_partition_keys(schema, layout.partition_on)
        layout.check(schema)
        self._store = store
        self._prefix = keys.data_prefix(uuid, table)
        self._schema = schema
        self._layout = layout
        self._payload = pa.schema([f for f in schema if f.name not in layout.partition_on])
        self._metadata = cache(partial(footer_metadata, self._payload))
        self._bucketing = Bucketing.of(layout, schema)
        self._observer = observer
        self._sort_by = () if presorted else layout.sort_by
        self._budget = memory_budget - memory_budget // _UNHASHED
        self._step = max(1, min(_ROW_GROUP_BYTES, layout.target_file_bytes, memory_budget // 4))
        self._open: dict[Group, OpenGroup] = {}
        self._held = 0
        self._shared = 0
        self._most_held = self._budget - self._budget // _ROOM
        self._files: list[PartitionFile] = []
        self._lanes = Lanes(memory_budget // _UNHASHED)
        self._hashes: list[Stream] = []
        self._flushed = 0
        self._encoders: OrderedCalls[Encoded] = OrderedCalls(cores, "encode")
        self._small: list[tuple[str, memoryview]] = []
        self._small_bytes = 0
        self._uploads: deque[tuple[Future[None], int]] = deque()
        self._uploading = 0
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="upload")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._encoders.stop()
        self._pool.shutdown(cancel_futures=True)
        if kind is not None:
            with suppress(StoreError):
                self._store.delete([file.key for file in self._files])

    # --- rows in ---

    def write(self, data: pa.Table | pa.RecordBatch) -> None:
        """Add rows of any partitions, with all columns of the schema.

        Raises SchemaMismatch, DataTypeMismatch, PartitionInvalid, and the errors of earlier encodings and uploads.
        """
        for batch in self._slices(conform(_as_table(data), self._schema)):
            size = batch.nbytes  # which costs as much as a slice: the groups take their shares
            for group, rows in split(batch, self._layout.partition_on, self._bucketing):
                share = size * rows.num_rows // batch.num_rows
                self._add(group, rows, share)
                self._shared += share if rows.num_rows < batch.num_rows else 0
            if self._shared > self._budget:
                self._unshare()

    def write_group(self, group: Group, data: pa.Table | pa.RecordBatch) -> None:
        """Add rows of one group, as :func:`~.partitioning.split` returns them."""
        for batch in self._slices(conform(_as_table(data), self._payload)):
            self._add(group, batch, batch.nbytes)

    def flush(self) -> list[PartitionFile]:
        """Finish the files of all groups, whatever their size; return the files finished since the last flush.

        Their uploads may still run. Later rows go into new files.
        """
        for rows in list(self._open.values()):
            self._publish(rows, wholly=True)
        while self._encoders:
            self._take()
        unhashed = self._files[self._flushed :]
        digests, self._hashes = self._lanes.digests(self._hashes), []
        done = [replace(file, sha3=digest.hex()) for file, digest in zip(unhashed, digests, strict=True)]
        self._files[self._flushed :], self._flushed = done, len(self._files)
        return done

    def finish(self) -> list[PartitionFile]:
        """Write the remaining rows and wait for all uploads; return the files in the order of their completion."""
        self.flush()
        self._wait(0)
        self._encoders.stop()
        self._pool.shutdown()
        return self._files

    def _slices(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the table in contiguous pieces, several to a row group."""
        pieces = max(1, 4 * table.nbytes // self._step)
        rows = max(1, min(self._layout.row_group_rows, table.num_rows // pieces))
        for start in range(0, table.num_rows, rows):
            yield from table.slice(start, rows).combine_chunks().to_batches()

    def _add(self, group: Group, batch: pa.RecordBatch, size: int) -> None:
        if (rows := self._open.get(group)) is None:
            runs = SortedRuns(self._sort_by, self._step // _BLOCKS_OF_A_RUN) if self._sort_by else None
            rows = self._open[group] = OpenGroup(group, runs)
        with self._accounted(rows):
            rows.buffer(batch, size)
            if rows.runs is None:
                self._encode(rows)
            elif rows.buffered >= self._step:
                rows.runs.add(rows.unbuffer())
        if self._held > self._most_held:
            self._relieve()
        self._make_room()

    # --- files out ---

    def _relieve(self) -> None:
        """Reduce the rows in memory to half the budget by writing the largest partitions now.

        With one of them go all of about its size: half of many equal ones would come twice as often, as smaller files.
        """
        goal = self._budget // 2
        for rows in self._open.values():
            with self._accounted(rows):
                self._settle(rows)
        if self._held <= self._most_held:
            return
        largest = max(rows.held for rows in self._open.values())
        for rows in sorted(self._open.values(), key=lambda rows: rows.held, reverse=True):
            if self._held <= goal and rows.held < largest // 2:
                break
            self._publish(rows, wholly=False)
        self._unshare()

    def _unshare(self) -> None:
        """Copy the rows in memory: each group keeps alive what was divided together with it, also what is written."""
        for rows in self._open.values():
            rows.copy()
        self._shared = 0

    def _publish(self, rows: OpenGroup, *, wholly: bool) -> None:
        """Write the rows of a group; unless ``wholly``, keep sorted rows that would only make a small file."""
        with self._accounted(rows):
            if rows.runs is not None:
                if rows.batches:
                    rows.runs.add(rows.unbuffer())
                if self._merge(rows, rows.runs, keep=not wholly):
                    return
            self._encode(rows, rest=True)
            if rows.file:
                self._settle(rows)
            if rows.file:
                self._start(rows, rows.file, (), 0, is_last=True)
            del self._open[rows.group]
        self._make_room()

    def _merge(self, rows: OpenGroup, runs: SortedRuns, *, keep: bool) -> bool:
        """Write sorted rows; return True if some are kept because they are fewer than the last file took."""
        rows.completed = 0
        while runs.rows:
            for batch in runs.pop().to_batches():
                rows.buffer(batch, batch.nbytes)
            self._encode(rows)
            if keep:
                self._settle(rows)
                if not rows.file and runs.rows + rows.rows < rows.completed:
                    return True
        return False

    def _encode(self, rows: OpenGroup, *, rest: bool = False) -> None:
        """Turn buffered rows into row groups, if they are enough for one; with ``rest``, turn all, and end the file."""
        size = self._layout.row_group_rows
        if not rows.rows or not (rest or rows.rows >= size or rows.buffered >= self._step):
            return
        count, held, batches = rows.rows, rows.size, rows.unbuffer()
        if count <= size:
            self._write_row_group(rows, batches, held, is_last=rest)
            return
        table = pa.Table.from_batches(batches)
        whole = count if rest else count - count % size
        for start in range(0, whole, size):
            some = table.slice(start, min(size, whole - start))
            is_last = rest and start + size >= whole
            self._write_row_group(rows, some.to_batches(), held * some.num_rows // count, is_last=is_last)
        for batch in table.slice(whole).to_batches():
            rows.buffer(batch, held * batch.num_rows // count)

    def _write_row_group(self, rows: OpenGroup, batches: Sequence[pa.RecordBatch], size: int, *, is_last: bool) -> None:
        self._settle(rows)
        if (file := rows.file) is None:
            file = rows.file = OpenFile(self._new_label(rows.group))
        if self._observer:
            self._observer.observe(file.label, batches)
        self._start(rows, file, batches, size, is_last=is_last)

    # --- encoding ---

    def _start(
        self, rows: OpenGroup, file: OpenFile, batches: Sequence[pa.RecordBatch], size: int, *, is_last: bool
    ) -> None:
        """Start to encode a row group of the group's open file, and to complete the file if it is the last one."""
        file.rows += sum(batch.num_rows for batch in batches)
        file.is_pending = True
        if is_last:
            size += size + rows.encoded  # of the rows, and of what becomes of them
            rows.file, rows.encoded = None, 0
        else:
            rows.encoded += size
        call = partial(encode, file, self._part, batches, self._layout.target_file_bytes, is_last=is_last)
        self._encoders.add(call, size)

    def _part(self, label: str, first: Sequence[pa.RecordBatch]) -> ParquetPart:
        return ParquetPart(label, self._payload, self._layout, self._metadata, first)

    def _settle(self, rows: OpenGroup) -> None:
        """Wait until no row group of the group's open file is being encoded."""
        if (file := rows.file) is None:
            return
        while file.is_pending:
            self._take()
        rows.encoded = file.encoded
        if file.is_complete:
            rows.file, rows.encoded, rows.completed = None, 0, file.rows

    def _take(self) -> None:
        """Wait for the first row group that is being encoded. Every finished file passes here."""
        encoded = self._encoders.take()
        file = encoded.file
        file.is_pending, file.encoded = False, encoded.size
        if encoded.complete is None:
            return
        file.is_complete, file.part = True, None
        content, footer = encoded.complete
        key = f"{self._prefix}{file.label}.parquet"
        if self._observer:
            self._observer.wrote(file.label, key, content, footer)
        keep_footer(self._store, key, footer)
        self._hashes.append(self._lanes.stream())
        self._hashes[-1].update(content)
        self._files.append(PartitionFile(file.label, key, file.rows, content.size))
        self._wait(max(0, self._budget // 2 - content.size))
        self._uploading += content.size
        self._small.append((key, memoryview(content)))
        self._small_bytes += content.size
        if len(self._small) == _PUT_TOGETHER or self._small_bytes >= _PUT_BYTES:
            self._put_small()

    def _put_small(self) -> None:
        """Start the upload of the files that wait for others."""
        if self._small:
            self._uploads.append((self._pool.submit(self._put, self._small), self._small_bytes))
            self._small, self._small_bytes = [], 0

    def _put(self, files: Sequence[tuple[str, memoryview]]) -> None:
        self._store.put_many(files)
        self._store.flush([key for key, _ in files])

    def _make_room(self) -> None:
        """Take what is encoded and uploaded, and wait for more while memory is over the budget."""
        self._wait(self._uploading)
        while self._encoders.is_next_done or (self._encoders and self._used > self._budget):
            self._take()
            self._wait(self._uploading)
        self._wait(max(0, self._budget - self._held - self._encoders.size))

    @property
    def _used(self) -> int:
        """Bytes in memory."""
        return self._held + self._encoders.size + self._uploading

    def _new_label(self, group: Group) -> str:
        name = uuids.uuid4().hex + group.mark
        if self._bucketing and group.bucket is not None:
            name += self._bucketing.mark(group.bucket)
        return f"{group.path}/{name}" if group.path else name

    @contextmanager
    def _accounted(self, rows: OpenGroup) -> Iterator[None]:
        """Update the total of held bytes by what the body changes in this group."""
        before = rows.held
        yield
        self._held += rows.held - before

    def _wait(self, goal: int) -> None:
        """Wait until at most ``goal`` bytes are being uploaded; raise what an upload raised."""
        if self._uploading > goal:
            self._put_small()
        while self._uploads and (self._uploading > goal or self._uploads[0][0].done()):
            upload, size = self._uploads.popleft()
            upload.result()
            self._uploading -= size


def _sorting_columns(schema: pa.Schema, columns: Sequence[str]) -> list[pq.SortingColumn] | None:
    """Return the sorting columns for the footer, which counts leaf columns: a struct has one for each of its fields."""
    first, leaves = {}, 0
    for name, data_type in zip(schema.names, schema.types, strict=True):
        first[name] = leaves
        leaves += _leaves(data_type)
    return [pq.SortingColumn(first[name]) for name in columns] or None


def _leaves(data_type: pa.DataType) -> int:
    if pa.types.is_struct(data_type):
        return sum(_leaves(field.type) for field in data_type)
    return _leaves(data_type.value_type) if pa.types.is_list(data_type) else 1


def _as_table(data: pa.Table | pa.RecordBatch) -> pa.Table:
    return data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
