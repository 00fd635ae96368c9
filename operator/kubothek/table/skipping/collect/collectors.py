"""Describe data files in the pass that writes them.

What Parquet's writer computes anyway is taken from the file: MinMax from its footer, where that is exact, and the
distinct texts of a column from its dictionary. Everything else comes from the rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kubothek.errors import SkippingInvalid
from kubothek.storage import Store
from kubothek.table.skipping.collect.footers import Footers, leaves_of
from kubothek.table.skipping.columns import path_of
from kubothek.table.skipping.entries import Describer, EntrySchema, definitions_tag, fields
from kubothek.table.skipping.files.writing import modified, write
from kubothek.table.skipping.indexes import check
from kubothek.table.skipping.model import IndexDefinition, Part, SkippingState
from kubothek.table.skipping.names import definitions_tag_of
from kubothek.table.skipping.refresh import merged
from kubothek.table.skipping.sentinel import pause

FALSE_FILES: Final = 0.1
"""Average number of files that a lookup in Bloom filters opens in vain."""
_FPP: Final = (1e-7, 1e-4)
_PART_BYTES: Final = 64 << 20
"""Maximum entries in memory; more are stored as a part at once."""
_MOST_PARTS: Final = 8
FEW_ROWS: Final = 1 << 13
"""Below this row count, reading the texts of a row group is faster than finding them in the file."""

Described = Sequence["pa.Array[Any] | None"]
"""The entries of one file, in the order of the definitions."""


@dataclass(frozen=True, slots=True)
class Describing:
    """How files are described; plain data, sent to executors.

    ``definitions``  of the indices, without parts
    ``files``        number of files of the table: Bloom filters are more precise where there are many
    ``tags``         of the definitions that the table's parts were written for
    """

    definitions: SkippingState = field(default_factory=SkippingState)
    files: int = 0
    tags: frozenset[str | None] = frozenset()

    @classmethod
    def of(cls, state: SkippingState, files: int) -> Self:
        """Return the description of the files of a table with this metadata and number of files."""
        return cls(replace(state, parts=()), files, frozenset(definitions_tag_of(part.keys[0]) for part in state.parts))

    def fpp(self, more: int = 0) -> float:
        """Return the false-positive probability of Bloom filters, for a table that may grow tenfold.

        While the number of files, with ``more`` that are being written, has d digits, fewer than 10**d are added. They
        thus add at most a tenth of ``FALSE_FILES`` to the files that a lookup opens in vain.
        """
        least, most = _FPP
        wanted: float = FALSE_FILES / 10 ** (len(str(self.files + more)) + 1)
        return max(least, min(most, wanted))


def usable(definitions: SkippingState, schema: pa.Schema, partition_keys: Sequence[str]) -> tuple[IndexDefinition, ...]:
    """Return the definitions that still suit the schema: columns may have been dropped or changed."""
    found: list[IndexDefinition] = []
    for definition in definitions.indices:
        try:
            check([definition], schema, partition_keys)
        except SkippingInvalid:
            continue
        found.append(definition)
    return tuple(found)


def entry_schema(definitions: SkippingState, schema: pa.Schema, partition_keys: Sequence[str]) -> EntrySchema:
    """Return the entry schema of a table of this stored schema."""
    try:
        return fields(definitions.indices, schema, partition_keys)
    except SkippingInvalid:
        return fields(usable(definitions, schema, partition_keys), schema, partition_keys)


class EntryWriter:
    """Buffer of entries that stores them in parts of bounded size."""

    def __init__(self, store: Store, uuid: str, table: str, entries: EntrySchema, describing: Describing) -> None:
        self._store = store
        self._uuid = uuid
        self._table = table
        self._entries = entries
        self._encryption = describing.definitions.encryption
        self._tags = describing.tags
        self._held: list[tuple[str, Mapping[str, Any], Described]] = []
        self._bytes = 0
        self._parts: list[Part] = []

    @property
    def is_full(self) -> bool:
        """Whether the buffer should be stored."""
        return self._bytes > _PART_BYTES

    def add(self, key: str, partition: Mapping[str, Any], described: Described) -> None:
        """Add the entries of one file; ``partition``: the values of its partition columns."""
        self._held.append((key, partition, described))
        self._bytes += sum(each.nbytes for each in described if each is not None)

    def add_parts(self, parts: Sequence[Part]) -> None:
        """Add parts that another writer stored in another task."""
        self._parts += parts

    def flush(self) -> None:
        """Store the buffered entries. Their data files must be in the store."""
        if not self._held:
            return
        if self._tags - {definitions_tag(self._entries, self._encryption)}:
            pause(self._store, self._uuid, self._table, self._entries)
        times = modified(self._store, [key for key, _, _ in self._held])
        rows = [self._entries.row(key, times.get(key, 0), part, found) for key, part, found in self._held]
        entries = pa.concat_tables(rows)
        part = write(self._store, self._uuid, self._table, self._entries, entries, encryption=self._encryption)
        self._parts.append(part)
        self._held.clear()
        self._bytes = 0

    def finish(self) -> tuple[Part, ...]:
        """Store the buffered entries, and return all stored ones, in few parts."""
        self.flush()
        if len(self._parts) > _MOST_PARTS:
            found = merged(
                self._store, self._uuid, self._table, self._entries, self._parts, encryption=self._encryption
            )
            return tuple(found)
        return tuple(self._parts)


class SkippingCollector:
    """Observer of rows during a write; it stores an entry for each file. Not thread-safe.

    ``schema``  the stored schema of the table
    """

    def __init__(
        self,
        store: Store,
        uuid: str,
        table: str,
        schema: pa.Schema,
        partition_keys: Sequence[str],
        describing: Describing,
    ) -> None:
        self._entries = entry_schema(describing.definitions, schema, partition_keys)
        self._describing = describing
        self._files = 0
        self._from_footers = leaves_of(self._entries.definitions, schema)
        self._texts = dictionary_definitions(self._entries.definitions, schema)
        self._from_dictionaries = [each for some in self._texts.values() for each in some]
        covered = {*self._from_footers, *(each.column for each in self._from_dictionaries)}
        self._others = [each for each in self._entries.definitions if each.column not in covered]
        self._open: dict[str, _File] = {}
        self._aside = Aside()
        self._written = EntryWriter(store, uuid, table, self._entries, describing)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to describe."""
        return not self._entries.definitions

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Describe a row group of the file of this label, which may get more."""
        if self.is_idle:
            return
        if (file := self._open.get(label)) is None:
            fpp = self._describing.fpp(self._files)
            rows = Describer(self._entries, self._others, fpp=fpp)
            texts = Describer(self._entries, self._from_dictionaries, fpp=fpp)
            file = self._open[label] = _File(rows, texts, Footers(self._from_footers))
            self._files += 1
        is_small = sum(batch.num_rows for batch in batches) < FEW_ROWS
        if not is_small:
            file.large.append(file.groups)
        file.groups += 1
        self._aside.run(
            partial(self._collect, file, batches, is_small=is_small), sum(batch.nbytes for batch in batches)
        )

    def _collect(self, file: _File, batches: Sequence[pa.RecordBatch], *, is_small: bool) -> None:
        for batch in batches:
            if self._others:
                file.rows.update(batch)
            if is_small and self._texts:
                file.texts.update(batch)
        file.footers.observe(batches)

    def wrote(
        self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData, partition: Mapping[str, Any]
    ) -> None:
        """Finish the entry of a complete file under this key; ``partition``: the values of its partition columns."""
        if (file := self._open.pop(label, None)) is not None:
            self._aside.run(partial(self._describe, file, key, content, footer, partition), content.size)

    def _describe(
        self, file: _File, key: str, content: pa.Buffer, footer: pq.FileMetaData, partition: Mapping[str, Any]
    ) -> None:
        if self._texts and file.large:
            for name, values in distinct_texts(content, footer, list(self._texts), file.large):
                file.texts.update(pa.table({name: values}))
        rows, texts, from_footers = file.rows.finish(), file.texts.finish(), file.footers.finish(footer)
        if rows is None or texts is None or from_footers is None:
            return  # a file that cannot be fully described has no entry (verified with Xskipper 1.7)
        found = zip(self._entries.definitions, rows, texts, strict=True)
        entry = [from_footers.get(definition.column, row if text is None else text) for definition, row, text in found]
        self._written.add(key, partition, entry)

    def add(self, parts: Sequence[Part]) -> None:
        """Add parts that another collector stored in another task."""
        self._written.add_parts(parts)

    def finish(self) -> tuple[Part, ...]:
        """Store all entries and return them. The files must be in the store."""
        self._aside.finish()
        return self._written.finish()


@dataclass(slots=True)
class _File:
    """A file that is being written: its descriptions from rows, from texts, and from its footer.

    ``large``  numbers of the row groups whose texts are taken from the dictionaries
    """

    rows: Describer
    texts: Describer
    footers: Footers
    groups: int = 0
    large: list[int] = field(default_factory=list)


# Distinct texts of a column come from the dictionary pages that Parquet's writer makes anyway.
#
# Arrow's writer dictionary-encodes a column until its dictionary reaches 1 MiB, and writes plain values from then on. A
# smaller dictionary thus holds all values of its row group, and reading it takes a fraction of the time of hashing them
# again. This is valid only for files that Kubothek has just written: other writers decide differently.


_OF_DISTINCT: Final = frozenset({"valuelist", "bloomfilter"})
"""Index types that depend only on the set of distinct values."""
_LIMIT: Final = 1 << 20
_LENGTH_BYTES: Final = 4
"""Bytes of each value in a dictionary page in addition to its text."""


def dictionary_definitions(
    definitions: Sequence[IndexDefinition], schema: pa.Schema
) -> dict[str, list[IndexDefinition]]:
    """Return by column the indices that dictionaries of files of this stored schema can describe."""
    found: dict[str, list[IndexDefinition]] = {}
    for definition in definitions:
        if definition.name in _OF_DISTINCT:
            name, *inner = path_of(schema, definition.columns[0])
            if not inner and pa.types.is_string(schema.field(name).type):
                found.setdefault(name, []).append(definition)
    return found


def distinct_texts(
    content: pa.Buffer, footer: pq.FileMetaData, columns: Sequence[str], groups: Sequence[int]
) -> Iterator[tuple[str, Any]]:
    """Yield the distinct values of these columns in these row groups, as an array each; ``content``: the whole file."""
    file = pq.ParquetFile(pa.BufferReader(content), metadata=footer, read_dictionary=list(columns))
    column_numbers = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    for number in groups:
        group = footer.row_group(number)
        for name in columns:
            has_dictionary = group.column(column_numbers[name]).has_dictionary_page
            found = _first(file, number, name) if has_dictionary and group.num_rows else None
            if found is None or pc.sum(pc.binary_length(found)).as_py() + _LENGTH_BYTES * len(found) >= _LIMIT:
                plain = pq.ParquetFile(pa.BufferReader(content), metadata=footer)
                found = plain.read_row_group(number, columns=[name], use_threads=False).column(0).unique()
            yield name, found


def _first(file: pq.ParquetFile, group: int, column: str) -> Any:
    """Return the dictionary of a row group's column; None if all its values are NULL."""
    batches = file.iter_batches(1, row_groups=[group], columns=[column], use_threads=False)
    found: Any = next(batches).column(0)
    dictionary = found.dictionary
    return dictionary if len(dictionary) else None


# Work in parallel with the encoding of Parquet files, which mostly runs without Python's interpreter lock.


_SMALL: Final = 1 << 20
"""Below this many bytes, a call is cheaper in the calling thread."""
_WAITING: Final = 64 << 20
"""Maximum bytes that queued calls hold in memory: more than one row group."""


class Aside:
    """Executor of calls in order, large ones in a thread of its own. Their exceptions are raised later."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._bytes = 0

    def run(self, call: Callable[[], None], size: int) -> None:
        """Run a call that reads this many bytes, now or soon."""
        if size < _SMALL and not self._waiting:
            call()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="describe")
        self._waiting.append((self._pool.submit(call), size))
        self._bytes += size
        self._wait(_WAITING)

    def finish(self) -> None:
        """Wait until all calls have ended."""
        self._wait(0)
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _wait(self, goal: int) -> None:
        while self._waiting and (self._bytes > goal or self._waiting[0][0].done()):
            call, size = self._waiting.popleft()
            self._bytes -= size
            call.result()
