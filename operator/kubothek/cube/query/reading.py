"""Reads of one dataset's files for some partitions; each row has the number of its combination."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence, Set
from concurrent.futures import Future
from functools import reduce
from operator import and_
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.cube.query.asking import Join, restricts
from kubothek.cube.query.model import DatasetPlan, Numbers, Plan
from kubothek.storage import Store
from kubothek.table.expressions import Predicate
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.log.model.paths import parse_path, partition_path
from kubothek.table.scan.read import read_failure

PART: Final = "__kubothek_part"
"""A cube cannot have a column of this name."""
_FILES_AHEAD: Final = 8
_KEPT: Final = 4


class Reading:
    """Thread-safe reader of a plan's files.

    It caches rows that several pieces of work need, such as those of a dataset without partitions.
    """

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store = store
        self._plan = plan
        self._filesystem = arrow_filesystem(store)
        self._kept: OrderedDict[tuple[str, bytes], Future[pa.Table]] = OrderedDict()
        self._lock = Lock()

    def read(self, dataset: DatasetPlan, combinations: Numbers) -> pa.Table:
        """Return the rows of these combinations, ascending, each in the order of the head's files.

        The last column is the number of the combination. Conditions on dimensions are applied; conditions on payload
        only without ``newest_only``.
        """
        if dataset.own_partitions:
            return self._read(dataset, combinations)
        name = dataset.name, combinations.tobytes()
        with self._lock:
            known = self._kept.get(name)
            mine = known is None
            future: Future[pa.Table] = Future() if known is None else known
            self._kept[name] = future
            self._kept.move_to_end(name)
            if len(self._kept) > _KEPT * len(self._plan.datasets):
                self._kept.popitem(last=False)
        if mine:
            try:
                future.set_result(self._read(dataset, combinations))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def _read(self, dataset: DatasetPlan, combinations: Numbers) -> pa.Table:
        schema, where = dataset.schema.append(pa.field(PART, pa.int32())), self._filter(dataset)
        in_paths = {*dataset.in_paths, *(where.columns & {*dataset.aligned_on})}
        form = ds.ParquetFileFormat()
        files = [(key, each) for each in combinations.tolist() for key in dataset.files_of(each)]
        self._store.check_no_links(key for key, _ in files)
        fragments = [
            form.make_fragment(key, self._filesystem, partition_expression=self._equalities(key, combination, in_paths))
            for key, combination in files
        ]
        if not fragments:
            return schema.empty_table()
        path_fields = [self._plan.types.field(name) for name in in_paths if name not in schema.names]
        found = ds.FileSystemDataset(fragments, pa.schema([*schema, *path_fields]), form, self._filesystem)
        try:
            return found.scanner(
                columns=schema.names,
                filter=None if () in where.conjunctions else where.expression(),
                fragment_readahead=_FILES_AHEAD,
            ).to_table()
        except (OSError, pa.ArrowException) as error:
            raise read_failure(self._store, found, error) from error

    def _filter(self, dataset: DatasetPlan) -> Predicate:
        """Return the part of the conditions that the dataset's own columns decide."""
        conjunctions = self._plan.where.conjunctions
        payload = frozenset(() if self._plan.newest_only else dataset.payload)
        # For a single conjunction, planning has decided the terms on partition columns.
        known = {*dataset.dimensions, *(dataset.aligned_on if payload and len(conjunctions) > 1 else ())}
        chosen = []
        for terms in conjunctions:
            # If the conditions can hold without a row of this dataset, its non-matching rows must stay.
            columns = known | payload if dataset.join is Join.SEED or restricts(terms, payload) else known
            chosen.append(tuple(term for term in terms if term.column in columns))
        return Predicate(tuple(chosen))

    def _equalities(self, key: str, combination: int, in_paths: Set[str]) -> pc.Expression:
        """Return what is true for all rows of a file."""
        equalities = [pc.field(PART) == pa.scalar(combination, pa.int32())]
        if in_paths:
            types = self._plan.types
            directories = partition_path(key).split("/")
            path = "/".join(each for each in directories if unquote(each.partition("=")[0]) in in_paths)
            for name, value in parse_path(path, types).items():
                equalities.append(pc.field(name) == pa.scalar(value, types.field(name).type))
        return reduce(and_, equalities)


def columns_of(table: pa.Table, names: Sequence[str]) -> dict[str, pa.Array[Any]]:
    """Return these columns, in one chunk each."""
    return {name: _combined(table.column(name)) for name in names}


def part_of(table: pa.Table) -> Numbers:
    """Return the combination number of each row."""
    found: Numbers = _combined(table.column(PART)).to_numpy().astype("int64")
    return found


def _combined(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    chunks: list[Any] = column.chunks
    if len(chunks) == 1:
        return cast("pa.Array[Any]", chunks[0])
    return cast("pa.Array[Any]", pa.concat_arrays(chunks) if chunks else pa.array([], column.type))
