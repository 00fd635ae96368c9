"""The search for matches: which rows of which files have a key of the source.

Files are excluded by partition, secondary index, skipping metadata, then key ranges and statistics. Of the others the
key columns are read, and joined with the source's keys by a database that spills to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.carried import Carrier
from kubothek.table.expressions import FALSE, Op, Predicate, Term
from kubothek.table.log import Matching, Snapshot
from kubothek.table.operations.merging.rows import Positions
from kubothek.table.operations.merging.source import MergeSource
from kubothek.table.scan.keys import Stored, has_range, labels_of
from kubothek.table.scan.plan import PlannedFile, plan
from kubothek.table.scan.read import open_files, read_failure
from kubothek.table.scratch import ROW, Scratch

_MOST_LISTED: Final = 1 << 15
"""The most values of a key column that are compared with files one by one; of more, the range is."""
_MOST_IN_RECORD: Final = 256
"""The most values of a partition column that a record lists as what the merge depends on; of more, the range is."""
_FILES_AT_ONCE: Final = 1024
_FILES_AHEAD: Final = 4
_BATCHES_AHEAD: Final = 8
_FILE, _AT = "f", "r"
PLACE: Final = (pa.field(_FILE, pa.int32()), pa.field(_AT, pa.int64()))
"""Columns that say where a row is: the number of its file, and its position in it."""


class FileMatches(NamedTuple):
    """The matches of one file: positions of its rows, ascending, and the number of the source row of each."""

    file: PlannedFile
    at: Positions
    numbers: Positions


@dataclass(frozen=True, slots=True)
class Matches:
    """All matches in some files; ``table`` of the database has a row for each: :data:`PLACE` and ``n``."""

    files: Sequence[PlannedFile]
    table: str
    scratch: Scratch

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.scratch.first(f"SELECT 1 FROM {self.table} LIMIT 1") is not None  # noqa: S608  # our names

    def by_file(self, *, all_files: bool) -> Iterator[FileMatches]:
        """Yield the files with matches, in their order; with ``all_files`` the others as well."""
        nothing = np.empty(0, np.int64)
        following = 0
        for number, at, rows in _runs(self.batches()):
            if all_files:
                yield from (FileMatches(file, nothing, nothing) for file in self.files[following:number])
            following = number + 1
            yield FileMatches(self.files[number], at, rows)
        if all_files:
            yield from (FileMatches(file, nothing, nothing) for file in self.files[following:])

    def batches(self) -> Iterator[tuple[Positions, Positions, Positions]]:
        """Yield all matches by file and position: number of the file, position in it, number of the source row."""
        query = f"SELECT {_FILE}, {_AT}, {ROW} FROM {self.table} ORDER BY {_FILE}, {_AT}"  # noqa: S608
        for batch in self.scratch.rows(query):
            files, at, rows = (np.asarray(column.to_numpy()) for column in batch.columns)
            yield files, at, rows

    def missing(self, source: MergeSource, rows: int) -> Iterator[Positions]:
        """Yield the numbers of the source rows without a match, ascending, at most ``rows`` at a time."""
        held = source.keys
        query = f"SELECT k.{ROW} FROM {held} k ANTI JOIN {self.table} h ON k.{ROW} = h.{ROW} ORDER BY 1"  # noqa: S608
        waiting: list[Any] = []
        count = 0
        for batch in self.scratch.rows(query):
            waiting.append(batch.column(0).to_numpy())
            count += batch.num_rows
            if count >= rows:
                yield np.concatenate(waiting)
                waiting, count = [], 0
        if count:
            yield np.concatenate(waiting)


def _runs(batches: Iterator[tuple[Positions, Positions, Positions]]) -> Iterator[tuple[int, Positions, Positions]]:
    """Yield the rows of each file, of rows that are sorted by it."""
    waiting: list[tuple[Positions, Positions]] = []
    current = -1
    for files, at, rows in batches:
        starts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
        for start, end in pairwise(starts):
            if start == end:
                continue
            if files[start] != current and waiting:
                yield current, *_joined(waiting)
                waiting = []
            current = int(files[start])
            waiting.append((at[start:end], rows[start:end]))
    if waiting:
        yield current, *_joined(waiting)


def _joined(parts: Sequence[tuple[Positions, Positions]]) -> tuple[Positions, Positions]:
    at, rows = zip(*parts, strict=True)
    return np.concatenate(at), np.concatenate(rows)


def find_matches(
    store: Store,
    files: Sequence[PlannedFile],
    schema: pa.Schema,
    source: MergeSource,
    others: Sequence[PlannedFile] = (),
) -> Matches:
    """Return which rows of the files have a key of the source; ``schema`` is the table's.

    ``others``  files without such rows, which are part of the result

    Reads the key columns. Raises VersionIncomplete if a file is gone, MergeTooLarge.
    """
    matches = join_keys(source, key_rows(store, files, schema, source.key, source.carrier))
    return Matches([*files, *others] if others else files, matches, source.scratch)


def join_keys(source: MergeSource, keys: Iterator[pa.RecordBatch]) -> str:
    """Join rows of :func:`key_rows` with the source's keys; return the table of :class:`Matches`.

    Raises MergeTooLarge.
    """
    scratch, carrier = source.scratch, source.carrier
    there = scratch.register("there", pa.RecordBatchReader.from_batches(keys_schema(carrier), keys))
    matches = scratch.new_name("matches")
    same = " AND ".join(f"t.{name} = k.{name}" for name in carrier.inside.names)
    held = source.keys
    # The keys are the side that is hashed: of the files' rows DuckDB knows no number.
    scratch.run("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    scratch.run(
        f"CREATE TABLE {matches} AS SELECT t.{_FILE}, t.{_AT}, k.{ROW} "  # noqa: S608  # names of our own
        f"FROM {there} t JOIN {held} k ON {same}"
    )
    scratch.run("RESET disabled_optimizers")
    scratch.forget(there)
    return matches


def keys_schema(carrier: Carrier) -> pa.Schema:
    """Return the schema of :func:`key_rows`: the keys, the number of the file, and the position in it."""
    return pa.schema([*carrier.inside, *PLACE])


def key_rows(
    store: Store, files: Sequence[PlannedFile], schema: pa.Schema, key: Sequence[str], carrier: Carrier, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the keys of all rows as ``carrier`` converts them, and where they are. ``first`` numbers the first file.

    Raises VersionIncomplete if a file is gone.
    """
    inside = keys_schema(carrier)
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = files[start : start + _FILES_AT_ONCE]
        numbers = {file.key: first + start + number for number, file in enumerate(some)}
        dataset = open_files(store, list(numbers), schema)
        try:
            scanner = dataset.scanner(
                columns=list(key), batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD
            )
            path, row = "", 0
            for tagged in scanner.scan_batches():
                batch: Any = tagged.record_batch
                fragment: Any = tagged.fragment  # the stubs know no file's path
                if fragment.path != path:
                    path, row = fragment.path, 0
                rows = batch.num_rows
                keys = carrier.carry(batch)
                file = pa.array(np.full(rows, numbers[path], np.int32))
                at = pa.array(np.arange(row, row + rows, dtype=np.int64))
                yield pa.RecordBatch.from_arrays([*keys.columns, file, at], schema=inside)
                row += rows
        except (OSError, pa.ArrowException) as error:
            raise read_failure(store, dataset, error) from error


# --- files that may hold a key ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Values in the keys without NULL of some rows of a source; plain data that a task can return.

    ``values``  by key column that has a range: its distinct values and True, or its least and greatest and False;
                None = there is no such key
    """

    values: Mapping[str, tuple[pa.Table, bool]] | None

    @classmethod
    def of(cls, source: MergeSource, most: int) -> KeyValues:
        """Return the values of these rows, all values of the columns that have at most ``most``."""
        if source.is_empty:
            return cls(None)
        found: dict[str, tuple[pa.Table, bool]] = {}
        for column in source.key:
            if has_range(source.schema.field(column).type):
                values = source.distinct(column, most + 1) if most else None
                is_complete = values is not None and values.num_rows <= most
                found[column] = (values if values is not None and is_complete else source.ends(column), is_complete)
        return cls(found)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """What the keys of a source have in common, by column: terms of a filter that hold for all of them.

    ``few``   the columns of which it knows each value
    ``none``  there is no key without NULL
    """

    terms: Mapping[str, tuple[Term, ...]]
    few: Mapping[str, pa.Table]
    none: bool = False

    @classmethod
    def of(cls, source: MergeSource) -> KeyRange:
        """Return what the source's keys without NULL have in common."""
        return cls.joined([KeyValues.of(source, _MOST_LISTED if source.count <= _MOST_LISTED else 0)])

    @classmethod
    def joined(cls, parts: Sequence[KeyValues]) -> KeyRange:
        """Return what the keys of all parts of a source have in common."""
        some = [part.values for part in parts if part.values is not None]
        if not some:
            return cls({}, {}, none=True)
        terms: dict[str, tuple[Term, ...]] = {}
        few = {}
        for column in some[0]:
            values = pa.concat_tables([part[column][0] for part in some])
            if all(part[column][1] for part in some):
                distinct = values.group_by(column).aggregate([]) if len(some) > 1 else values
                if distinct.num_rows <= _MOST_LISTED:
                    few[column] = values = distinct
            terms[column] = _terms(column, values, listed=column in few)
        return cls({column: found for column, found in terms.items() if found}, few)

    def files(self, store: Store, snapshot: Snapshot) -> Sequence[PlannedFile]:
        """Return the files of the snapshot that may hold one of the keys."""
        schema, head = snapshot.schema, snapshot.head
        if schema is None or not head.partitions or self.none:
            return ()
        left = dict(self.terms)
        for column, values in self.few.items():
            labels = labels_of(store, snapshot, schema, Stored.of(values, column, schema))
            if labels is not None:
                snapshot = replace(snapshot, head=replace(head, partitions={n: head.partitions[n] for n in labels}))
                head = snapshot.head
                left.pop(column, None)  # the index has answered
        return plan(store, snapshot, Predicate((tuple(term for some in left.values() for term in some),))).files

    def reads(self, snapshot: Snapshot) -> Matching:
        """Return the dependency on the files that may hold one of the keys, as far as partition paths show."""
        schema = snapshot.schema if snapshot.schema is not None else pa.schema([])
        keys = snapshot.head.partition_keys if len(schema) else ()
        terms = [self._short(column) for column in keys if column in self.terms]
        where = FALSE if self.none else Predicate((tuple(term for some in terms for term in some),)).bind(schema)
        return Matching.of(where, schema, keys)

    def _short(self, column: str) -> tuple[Term, ...]:
        (first, *_) = self.terms[column]
        if first.op is Op.IN and len(first.value) > _MOST_IN_RECORD:
            return _terms(column, self.few[column], listed=False)
        return self.terms[column]


def _terms(column: str, values: pa.Table, *, listed: bool) -> tuple[Term, ...]:
    stored = Stored(column, values.column(0).combine_chunks())
    try:
        if stored.strange:
            return ()
        return (Term(column, Op.IN, tuple(stored.values.to_pylist())),) if listed else tuple(stored.range())
    except (ValueError, OverflowError):  # a time that Python does not have
        return ()
