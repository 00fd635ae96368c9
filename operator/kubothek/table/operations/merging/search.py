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


class FileMatches(NamedTuple):
    """The matches of one file: positions of its rows, ascending, and the number of the source row of each."""

    file: PlannedFile
    at: Positions
    numbers: Positions


@dataclass(frozen=True, slots=True)
class Matches:
    """All matches in some files; ``table`` of the database has a row for each."""

    files: Sequence[PlannedFile]
    table: str
    scratch: Scratch

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.scratch.first(f"SELECT 1 FROM {self.table} LIMIT 1") is not None  # noqa: S608  # our names

    def by_file(self, *, all_files: bool) -> Iterator[FileMatches]:
        """Yield the files with matches, in their order; with ``all_files`` the others as well."""
        query = f"SELECT {_FILE}, {_AT}, {ROW} FROM {self.table} ORDER BY {_FILE}, {_AT}"  # noqa: S608
        nothing = np.empty(0, np.int64)
        following = 0
        for number, at, rows in _runs(self.scratch.rows(query)):
            if all_files:
                yield from (FileMatches(file, nothing, nothing) for file in self.files[following:number])
            following = number + 1
            yield FileMatches(self.files[number], at, rows)
        if all_files:
            yield from (FileMatches(file, nothing, nothing) for file in self.files[following:])

    def missing(self, source: MergeSource, rows: int) -> Iterator[Positions]:
        """Yield the numbers of the source rows without a match, ascending, at most ``rows`` at a time."""
        query = f"SELECT k.{ROW} FROM {source.keys} k ANTI JOIN {self.table} h ON k.{ROW} = h.{ROW} ORDER BY 1"  # noqa: S608
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


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Positions, Positions]]:
    """Yield the rows of each file, of rows that are sorted by it."""
    waiting: list[tuple[Positions, Positions]] = []
    current = -1
    for batch in batches:
        files, at, rows = (np.asarray(column.to_numpy()) for column in batch.columns)
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
    scratch, carrier = source.scratch, source.carrier
    inside = pa.schema([*carrier.inside, pa.field(_FILE, pa.int32()), pa.field(_AT, pa.int64())])
    batches = _key_rows(store, files, schema, source, inside)
    there = scratch.register("there", pa.RecordBatchReader.from_batches(inside, batches))
    matches = scratch.new_name("matches")
    same = " AND ".join(f"t.{name} = k.{name}" for name in carrier.inside.names)
    # The keys are the side that is hashed: of the files' rows DuckDB knows no number.
    scratch.run("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    scratch.run(
        f"CREATE TABLE {matches} AS SELECT t.{_FILE}, t.{_AT}, k.{ROW} "  # noqa: S608  # names of our own
        f"FROM {there} t JOIN {source.keys} k ON {same}"
    )
    scratch.run("RESET disabled_optimizers")
    scratch.forget(there)
    return Matches([*files, *others] if others else files, matches, scratch)


def _key_rows(
    store: Store, files: Sequence[PlannedFile], schema: pa.Schema, source: MergeSource, inside: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the keys of all rows, with the number of their file and of the row in it."""
    for start in range(0, len(files), _FILES_AT_ONCE):
        some = files[start : start + _FILES_AT_ONCE]
        numbers = {file.key: start + number for number, file in enumerate(some)}
        dataset = open_files(store, list(numbers), schema)
        try:
            scanner = dataset.scanner(
                columns=list(source.key), batch_readahead=_BATCHES_AHEAD, fragment_readahead=_FILES_AHEAD
            )
            key, row = "", 0
            for tagged in scanner.scan_batches():
                batch: Any = tagged.record_batch
                fragment: Any = tagged.fragment  # the stubs know no file's path
                if fragment.path != key:
                    key, row = fragment.path, 0
                rows = batch.num_rows
                keys = source.carrier.carry(batch)
                file = pa.array(np.full(rows, numbers[key], np.int32))
                at = pa.array(np.arange(row, row + rows, dtype=np.int64))
                yield pa.RecordBatch.from_arrays([*keys.columns, file, at], schema=inside)
                row += rows
        except (OSError, pa.ArrowException) as error:
            raise read_failure(store, dataset, error) from error


# --- files that may hold a key ----------------------------------------------------------------------------------------


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
        if source.is_empty:
            return cls({}, {}, none=True)
        terms: dict[str, tuple[Term, ...]] = {}
        few = {}
        for column in source.key:
            data_type = source.schema.field(column).type
            if not has_range(data_type):
                continue
            if source.count <= _MOST_LISTED:
                few[column] = source.distinct(column)
            terms[column] = _terms(column, few[column] if column in few else source.ends(column), listed=column in few)
        return cls({column: some for column, some in terms.items() if some}, few)

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
