"""Rows that a predicate selects from files on a local disk: late materialisation.

DuckDB decodes the columns of the predicate first, and values of other columns only where rows stay. Arrow decodes all
columns before it filters. DuckDB reads flat columns whose types in the files are those of the table; Arrow reads the
other files, files of which all rows match, and what DuckDB fails to read. The rows and their order are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.in_memory_database import quoted
from kubothek.storage.base import Store
from kubothek.table.expressions import Predicate, Range, Term
from kubothek.table.expressions.parameters import (
    condition,
    has_condition,
    is_sure,
    is_true_for_nan,
    is_undecided,
)
from kubothek.table.expressions.ranges import verdict
from kubothek.table.filesystem import local_path
from kubothek.table.log.model.paths import parse_path
from kubothek.table.scan.local_parquet import columns_of, cursor, exact, is_pattern
from kubothek.table.scan.plan import PlannedFile
from kubothek.table.scan.row_groups import (
    MOST_BYTES,
    MOST_FILES,
    MOST_ROW_GROUPS,
    MOST_VALUES,
    VALUES_A_FILE,
    RowGroups,
)
from kubothek.table.scan.statistics import footers, verdicts_of_row_groups

FEWEST_VALUES: Final = 1 << 17
"""The fewest values, rows by columns, for which a query pays: Arrow takes 2 ms for so many, and a query 1 ms to begin.
"""
_PART_VALUES: Final = 1 << 22
_PART_FILES: Final = 32
"""Most values and files of a query; one row group may exceed the values."""
_BATCH_ROWS: Final = 1 << 16
_HELD_BYTES: Final = 32 << 20
"""Bytes of selected rows of a part after which it waits for its consumer."""
_MOST_THREADS: Final = 8
_FILE: Final = "file_index"
_NOWHERE: Final = -1
_VIRTUAL: Final = frozenset({_FILE, "file_row_number", "filename"})
"""Columns that DuckDB adds to those of a file, unless the file has one of this name."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive files of a scan, or some row groups of one file.

    ``query``       selects their rows with DuckDB; None: Arrow reads them
    ``row_groups``  of the one file; None = all
    ``rows``        of the row groups: the first, and the one after the last
    ``small``       for each file the row groups to decode without a query; None if there are too many
    """

    files: Sequence[PlannedFile]
    query: Query | None = None
    row_groups: tuple[int, ...] | None = None
    rows: tuple[int, int] | None = None
    small: Sequence[RowGroups] | None = None

    @property
    def is_selectable(self) -> bool:
        """Whether :meth:`LocalFilter.start` selects the rows; Arrow's scanner does so otherwise."""
        return self.query is not None or self.small is not None


@dataclass(frozen=True, slots=True)
class Query:
    """How DuckDB selects rows of files with equal columns.

    ``columns``    that are decoded, in this order
    ``again``      the predicate by which Arrow filters the rows again; None if they are right
    """

    columns: tuple[str, ...]
    condition: str
    parameters: tuple[Any, ...]
    again: Predicate | None


class _Layout(NamedTuple):
    """The columns of a file, with their positions in its row groups; None if DuckDB cannot read them."""

    columns: pq.ParquetSchema
    positions: Mapping[str, int] | None


class _Found(NamedTuple):
    """A file, with its row groups' numbers of rows; ``query`` None: Arrow reads it."""

    file: PlannedFile
    query: Query | None
    groups: list[int]


@dataclass(slots=True)
class LocalFilter:
    """Reads files of one scan. ``where`` is bound."""

    store: Store
    path: Callable[[str], Path]
    schema: pa.Schema
    names: Sequence[str]
    where: Predicate
    _columns: Sequence[str]
    _beyond_bounds: Sequence[Term]
    _layouts: list[_Layout] = field(default_factory=list)
    _queries: dict[tuple[Any, ...], Query | None] = field(default_factory=dict)
    _same: dict[Query, Query] = field(default_factory=dict)
    _constants: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, schema: pa.Schema, names: Sequence[str], where: Predicate) -> Self | None:
        """Return the reader; None if DuckDB cannot read such files, or not filter them by such a predicate."""
        path = local_path(store)
        needed = pa.schema([schema.field(name) for name in dict.fromkeys((*names, *where.fields))])
        if path is None or not names or not exact(needed) or where.fields != where.columns:
            return None
        beyond = dict.fromkeys(filter(is_true_for_nan, chain.from_iterable(where.conjunctions)))
        return cls(store, path, schema, names, where, sorted(where.columns), list(beyond))

    def parts(self, files: Sequence[PlannedFile]) -> Iterator[Part]:
        """Yield the files in parts, in their order. Reads footers. Raises PartitionInvalid, AccessDenied for a link."""
        needed = [file for file in files if not file.all_rows or len(files) <= MOST_FILES]
        self.store.check_no_links([file.key for file in needed])
        read = dict(zip(needed, footers(self.store, [file.key for file in needed]), strict=True))
        if len(files) <= MOST_FILES and (small := self._small(read)) is not None:
            yield Part(files, small=small)
            return
        found = [self._found(file, None if file.all_rows else read.get(file)) for file in files]
        runs = [(query, list(run)) for query, run in groupby(found, key=lambda each: each.query)]
        worth = [None if query is None or not self._is_worth(run) else query for query, run in runs]
        for query, several in groupby(zip(worth, runs, strict=True), key=lambda each: each[0]):
            run = list(chain.from_iterable(run for _, (_, run) in several))
            if query is None:
                yield Part([each.file for each in run])
            else:
                yield from _divided(query, run, _PART_VALUES // len(self.names))

    def start(self, part: Part) -> Iterator[pa.RecordBatch] | None:
        """Select the rows of a selectable part; some of them are in memory then. None if that fails."""
        if part.small is not None:
            return self._decoded(part.small)
        batches = self._rows(part)
        held, size = [], 0
        try:
            for batch in batches:
                held.append(batch)
                if (size := size + batch.get_total_buffer_size()) > _HELD_BYTES:
                    return chain(held, batches)
        except unreadable():
            return None
        return iter(held)

    def _small(self, files: Mapping[PlannedFile, pq.FileMetaData | None]) -> list[RowGroups] | None:
        """Return the row groups to decode without a query; None if a query or a scanner pays, or has to read a file."""
        read = [footer for footer in files.values() if footer is not None]
        if len(read) < len(files) or sum(footer.num_row_groups for footer in read) > MOST_ROW_GROUPS:
            return None
        found = []
        for file, footer in zip(files, read, strict=True):
            if (one := self._row_groups(file, footer)) is None:
                return None
            found.append(one)
        columns = len(set(self.names).union(self._columns))
        values = sum(each.rows for each in found) * columns + VALUES_A_FILE * len(found)
        return found if values <= MOST_VALUES and sum(each.size for each in found) <= MOST_BYTES else None

    def _row_groups(self, file: PlannedFile, footer: pq.FileMetaData) -> RowGroups | None:
        constants = self._constants_of(file.key.rpartition("/")[0])
        positions = self._layouts[self._layout(footer.schema)].positions
        if constants is None or positions is None:
            return None
        left = self._left(positions, constants)
        if left is None:
            return None
        where = Predicate(tuple(left))
        known = {name: Range.of(value) for name, value in constants.items()}
        verdicts = [
            (number, True if file.all_rows else found)
            for number, found in verdicts_of_row_groups(where, footer, self.schema, known)
            if file.all_rows or found is not False
        ]
        is_sure = all(found for _, found in verdicts)
        numbers = [number for number, _ in verdicts]
        path = str(self.path(file.key))
        return RowGroups(path, footer, numbers, positions, constants, None if is_sure else where)

    def _decoded(self, small: Iterable[RowGroups]) -> Iterator[pa.RecordBatch] | None:
        schema = pa.schema([self.schema.field(name) for name in self.names])
        try:
            return chain.from_iterable([each.select(schema).to_batches(_BATCH_ROWS) for each in small])
        except (pa.ArrowException, OSError):
            return None

    def _is_worth(self, run: Iterable[_Found]) -> bool:
        return sum(sum(each.groups) for each in run) * len(self.names) >= FEWEST_VALUES

    def _found(self, file: PlannedFile, footer: pq.FileMetaData | None) -> _Found:
        if footer is None or is_pattern(str(self.path(file.key))):
            return _Found(file, None, [])
        constants = self._constants_of(file.key.rpartition("/")[0])
        number = self._layout(footer.schema)
        positions = self._layouts[number].positions
        if constants is None or positions is None:
            return _Found(file, None, [])
        # Few of the directories differ in what the predicate leaves open.
        decided = self._decided(footer, positions)
        name = number, decided, tuple(constants), tuple(map(constants.get, self._columns))
        if name not in self._queries:
            self._queries[name] = self._query(positions, constants, decided)
        groups = footer.num_row_groups
        rows = [footer.num_rows] if groups == 1 else [footer.row_group(each).num_rows for each in range(groups)]
        return _Found(file, self._queries[name], rows)

    def _layout(self, columns: pq.ParquetSchema) -> int:
        """Return the number of the columns of a file; files of a table have few different ones."""
        for number, layout in enumerate(self._layouts):
            if columns.equals(layout.columns):
                return number
        there = columns_of(columns)
        positions: dict[str, int] | None = None
        if there is not None and _VIRTUAL.isdisjoint(name.casefold() for name in there.names):
            leaves = {columns.column(number).path: number for number in range(len(columns))}
            positions = {name: leaves.get(name, _NOWHERE) for name in there.names}
            if any(each.name in positions and there.field(each.name).type != each.type for each in self.schema):
                positions = None
        self._layouts.append(_Layout(columns, positions))
        return len(self._layouts) - 1

    def _decided(self, footer: pq.FileMetaData, positions: Mapping[str, int]) -> frozenset[Term]:
        """Return the terms that are TRUE for NaN, and that bounds without NaN decide in a row group of the file."""
        found = set()
        for term in self._beyond_bounds:
            position = positions.get(term.column, _NOWHERE)
            for number in range(footer.num_row_groups if position != _NOWHERE else 0):
                known: Any = footer.row_group(number).column(position).statistics
                if known is not None and known.has_min_max and not is_undecided(term, known.min, known.max):
                    found.add(term)
                    break
        return frozenset(found)

    def _query(self, there: Collection[str], constants: Mapping[str, Any], without: Collection[Term]) -> Query | None:
        """Return how to filter files that have these columns and constants; equal ways are one object.

        ``without``  terms by which DuckDB does not filter
        """
        if (left := self._left(there, constants)) is None:
            return None
        used = [tuple(term for term in terms if term not in without and has_condition(term)) for terms in left]
        if (found := condition(used)) is None:
            return None
        is_right = used == left and all(is_sure(term) for terms in left for term in terms)
        again = None if is_right else Predicate(tuple(left))
        needed = dict.fromkeys((*self.names, *(() if again is None else sorted(again.columns))))
        columns = tuple(name for name in needed if name in there and name not in constants)
        query = Query(columns, *found, again)
        return self._same.setdefault(query, query)

    def _left(self, there: Collection[str], constants: Mapping[str, Any]) -> list[tuple[Term, ...]] | None:
        """Return the conjunctions that rows of files with these columns and constants may match, of their columns.

        None if constants leave a term open.
        """
        absent = {name: None for name in self.schema.names if name not in there}
        known = {name: Range.of(value) for name, value in {**absent, **constants}.items()}
        left = []
        for terms in self.where.conjunctions:
            verdicts = {verdict(term, known[term.column]) for term in terms if term.column in known}
            if None in verdicts:
                return None
            if False not in verdicts:
                left.append(tuple(term for term in terms if term.column not in known))
        return left

    def _constants_of(self, directory: str) -> Mapping[str, Any] | None:
        """Return the values of partition columns in a directory; None if a column has several, or is no number."""
        if directory not in self._constants:
            segments = directory.split("/")[2:]
            found = [item for segment in segments for item in parse_path(segment, self.schema).items()]
            constants = dict(found)
            is_clear = len(constants) == len(found) and all(value == value for value in constants.values())
            self._constants[directory] = constants if is_clear else None
        return self._constants[directory]

    def _rows(self, part: Part) -> Iterator[pa.RecordBatch]:
        query = part.query
        assert query is not None, "Arrow reads the others"
        paths = [str(self.path(file.key)) for file in part.files]
        parameters = [*query.parameters, paths, *(part.rows or ())]
        number = len(query.parameters) + 1
        where = query.condition
        if part.rows is not None:
            where = f"({where}) AND file_row_number >= ${number + 1} AND file_row_number < ${number + 2}"
        selected = ", ".join(map(quoted, (*query.columns, _FILE)))
        source = f"read_parquet(${number}, hive_partitioning=false, union_by_name=false)"
        constants = [self._constants_of(file.key.rpartition("/")[0]) or {} for file in part.files]
        with cursor() as database:
            found = database.sql(f"SELECT {selected} FROM {source} WHERE {where}", params=parameters)  # noqa: S608
            for batch in found.to_arrow_reader(_BATCH_ROWS):
                yield self._complete(batch, query, constants)

    def _complete(self, batch: pa.RecordBatch, query: Query, constants: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Return the rows with the scan's columns: also those of paths, and those that the files lack."""
        if query.again is not None:
            batch = batch.filter(query.again.truth({name: batch.column(name) for name in query.columns}))
        files = batch.column(len(query.columns))
        columns: list[Any] = []
        for name in self.names:
            data_type = self.schema.field(name).type
            if name in query.columns:
                columns.append(batch.column(query.columns.index(name)))
            else:
                columns.append(pa.array([each.get(name) for each in constants], data_type).take(files))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([self.schema.field(name) for name in self.names]))


def ahead(
    parts: Iterable[Part], start: Callable[[Part], Iterator[pa.RecordBatch] | None]
) -> Generator[tuple[Part, Iterator[pa.RecordBatch] | None]]:
    """Yield each part in order with its rows, None if Arrow has to read it; some parts are selected ahead."""
    parts = iter(parts)
    first_parts = list(islice(parts, 2))
    if len(first_parts) < 2:  # a new thread costs as much as half of a small query
        yield from ((part, start(part) if part.is_selectable else None) for part in first_parts)
        return
    threads = min(pa.cpu_count(), _MOST_THREADS)
    running: deque[tuple[Part, Future[Iterator[pa.RecordBatch] | None] | None]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="scan")
    try:
        for part in chain(first_parts, parts):
            running.append((part, pool.submit(start, part) if part.is_selectable else None))
            if len(running) > threads + 1:
                yield _selected(*running.popleft())
        while running:
            yield _selected(*running.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _selected(
    part: Part, found: Future[Iterator[pa.RecordBatch] | None] | None
) -> tuple[Part, Iterator[pa.RecordBatch] | None]:
    return part, None if found is None else found.result()


def unreadable() -> tuple[type[Exception], ...]:
    """Return the errors of a query that fails to read files."""
    import duckdb  # a tenth of a second: not for scans that Arrow does

    return (duckdb.Error, pa.ArrowException, OSError)


def _divided(query: Query, run: Iterable[_Found], most_rows: int) -> Iterator[Part]:
    """Yield parts of about this many rows: several files, or row groups of a larger file."""
    files: list[PlannedFile] = []
    rows = 0
    for file, _, groups in run:
        count = sum(groups)
        if files and (rows + count > most_rows or len(files) == _PART_FILES):
            yield Part(files, query)
            files, rows = [], 0
        if count > most_rows and len(groups) > 1:
            yield from _of_row_groups(query, file, groups, most_rows)
        else:
            files.append(file)
            rows += count
    if files:
        yield Part(files, query)


def _of_row_groups(query: Query, file: PlannedFile, groups: Sequence[int], most_rows: int) -> Iterator[Part]:
    first = start = end = 0
    for number, count in enumerate(groups):
        if number > first and end + count - start > most_rows:
            yield Part([file], query, tuple(range(first, number)), (start, end))
            first, start = number, end
        end += count
    yield Part([file], query, tuple(range(first, len(groups))), (start, end))
