"""Lookup of keys, and of the records that have them, for Ledger merges and those of streams.

An index on the first key column names the files that may hold a key; ranges of the other columns and statistics exclude
more. Of the remaining files, the key columns are read and compared. For a key of one column no file is read: the index
has all its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import ObjectNotFound
from kubothek.odf.view.types import as_in_slices, common_to
from kubothek.storage import Store
from kubothek.table.carried import Carrier, name_of
from kubothek.table.expressions import Predicate
from kubothek.table.indexes.lookup import values_held, with_both_zeros
from kubothek.table.log import Snapshot
from kubothek.table.scan.keys import MOST_LISTED, Stored, is_strange, labels_of, listed
from kubothek.table.scan.plan import plan
from kubothek.table.scan.read import open_files, read_failure
from kubothek.table.scan.statistics import worth_a_dictionary
from kubothek.table.scratch import Scratch
from kubothek.table.untrusted_parquet import DAMAGED, checked_footer

_BATCHES_AHEAD: Final = 8
_FILES_AHEAD: Final = 4
_NUMBER: Final = "n"


class KeySearch:
    """A search for keys; ``found`` says for each key whether it exists."""

    def __init__(self, keys: pa.Table, scratch: Scratch) -> None:
        self.keys = keys
        self.found: npt.NDArray[np.bool_] = np.zeros(keys.num_rows, np.bool_)
        self._scratch = scratch

    @property
    def missing(self) -> npt.NDArray[np.int64]:
        """The numbers of the keys that are not found yet."""
        return np.flatnonzero(~self.found)

    def part(self, numbers: npt.NDArray[np.int64]) -> KeySearch:
        """Return a search for some of the keys, by their numbers."""
        return KeySearch(self.keys.take(numbers), self._scratch)

    def look_through(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Find the keys that are among these rows; ``schema`` is theirs, the key columns in the order of the keys."""
        missing = self.missing
        if not len(missing) or not self.keys.num_columns:
            return
        wanted = self._scratch.register("wanted", self._inside(missing))
        carrier = Carrier(schema)
        reader = pa.RecordBatchReader.from_batches(carrier.inside, map(carrier.carry, batches))
        there = self._scratch.register("there", reader)
        same = " AND ".join(f"w.{name} IS NOT DISTINCT FROM t.{name}" for name in carrier.inside.names)
        hits = self._scratch.table(
            f"SELECT DISTINCT w.{_NUMBER} FROM {there} t JOIN {wanted} w ON {same}"  # noqa: S608  # names of our own
        )
        self.found[hits.column(_NUMBER).to_numpy()] = True

    def _inside(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        return _carried(self.keys.take(numbers)).append_column(_NUMBER, pa.array(numbers))


def _carried(keys: pa.Table) -> pa.Table:
    carrier = Carrier(keys.schema)
    return pa.Table.from_batches(map(carrier.carry, keys.combine_chunks().to_batches()), carrier.inside)


def rows_of_keys(rows: pa.RecordBatchReader, keys: pa.Table, scratch: Scratch) -> pa.Table:
    """Return those of the rows that have one of these keys; they must fit into memory."""
    carrier = Carrier(rows.schema)
    there = scratch.register("there", pa.RecordBatchReader.from_batches(carrier.inside, map(carrier.carry, rows)))
    wanted = scratch.register("wanted", _carried(keys))
    same = " AND ".join(
        f"w.{name_of(n)} IS NOT DISTINCT FROM t.{name_of(rows.schema.get_field_index(name))}"
        for n, name in enumerate(keys.schema.names)
    )
    columns = ", ".join(carrier.inside.names)
    found = scratch.table(f"SELECT {columns} FROM {there} t SEMI JOIN {wanted} w ON {same}")  # noqa: S608  # our names
    return carrier.restored(rows.schema.names, found)


def in_table(store: Store, snapshot: Snapshot, search: KeySearch) -> None:
    """Find the keys that rows of the table have; those that begin with NULL or NaN, which no index has, separately."""
    if snapshot.schema is None or not snapshot.head.partitions:
        return
    strange = is_strange(search.keys.column(0))
    for numbers in map(np.flatnonzero, (~strange, strange)):
        if len(numbers):
            part = search.part(numbers)
            _in_table(store, snapshot, snapshot.schema, part)
            search.found[numbers] = part.found


def table_rows(store: Store, snapshot: Snapshot, keys: pa.Table, schema: pa.Schema, scratch: Scratch) -> pa.Table:
    """Return the rows of the table that have one of these keys, with the columns ``schema`` in the types of slices.

    They must fit into memory.
    """
    found = [pa.Table.from_batches([], schema)]
    if snapshot.schema is not None and snapshot.head.partitions:
        strange = is_strange(keys.column(0))
        for numbers in map(np.flatnonzero, (~strange, strange)):
            if len(numbers):
                part = keys.take(numbers)
                stored = [Stored.of(part, name, snapshot.schema) for name in part.schema.names]
                labels = labels_of(store, snapshot, snapshot.schema, stored[0])
                near = _near(store, snapshot, snapshot.schema, stored, labels, schema)
                found.append(rows_of_keys(pa.RecordBatchReader.from_batches(schema, near), part, scratch))
    return pa.concat_tables(found)


def _in_table(store: Store, snapshot: Snapshot, schema: pa.Schema, search: KeySearch) -> None:
    stored = [Stored.of(search.keys, name, schema) for name in search.keys.schema.names]
    labels = _by_index(store, snapshot, schema, stored, search)
    if len(search.missing):
        search.look_through(_near(store, snapshot, schema, stored, labels, search.keys.schema), search.keys.schema)


def _near(
    store: Store,
    snapshot: Snapshot,
    schema: pa.Schema,
    key: Sequence[Stored],
    labels: Set[str] | None,
    wanted: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the range of the keys, of files with these labels; None: of all."""
    if labels is not None and not labels:
        return
    if labels is not None:
        head = snapshot.head
        snapshot = replace(snapshot, head=replace(head, partitions={n: head.partitions[n] for n in labels}))
    where, others = (Predicate((tuple(term for each in some for term in each.range()),)) for some in (key, key[1:]))
    # Labels are the index's answer for the first column: planning by its range would read the whole index again.
    files = [file.key for file in plan(store, snapshot, where if labels is None else others).files]
    if not files:
        return
    names = common_to(wanted.names, schema)
    values = [name for name in names if all(name != each.name for each in key)]
    dataset = open_files(store, files, schema, dictionaries=_few_texts(store, files, schema, values))
    condition = _condition(where, schema, key[0])
    try:
        scanner = dataset.scanner(
            columns=names,
            filter=condition,
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        )
        for batch in scanner.to_batches():
            yield as_in_slices(batch, wanted)
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _few_texts(store: Store, files: Sequence[str], schema: pa.Schema, names: Sequence[str]) -> list[str]:
    """Return the text columns that have few values, as far as the first file's footer shows, and are read faster as
    dictionaries; none of few files, which take no longer to read than one more footer.
    """
    texts = [name for name in names if pa.types.is_string(schema.field(name).type)]
    if not texts or len(files) <= _FILES_AHEAD:
        return []
    try:
        with store.open(files[0]) as source:
            few = worth_a_dictionary(checked_footer(source)) or ()
    except (ObjectNotFound, *DAMAGED):
        return []  # which the scan reports
    return [name for name in texts if name in few]


def _condition(where: Predicate, schema: pa.Schema, first: Stored) -> pc.Expression | None:
    condition = None if where.conjunctions == ((),) else where.bind(schema).expression()
    if first.strange or len(first.values) > MOST_LISTED:
        return condition
    among = pc.field(first.name).isin(with_both_zeros(first.values))
    return among if condition is None else condition & among


def _by_index(
    store: Store, snapshot: Snapshot, schema: pa.Schema, key: Sequence[Stored], search: KeySearch
) -> set[str] | None:
    """Return the labels of the files that may hold keys which are still missing; None = any may.

    Marks the keys as found that the index alone decides.
    """
    head, first = snapshot.head, key[0]
    if first.strange:
        return None
    if len(key) == 1:
        held = values_held(store, head, schema, first.name, first.values, head.partitions.keys())
        if held is not None:
            values, uncovered = held
            search.found |= np.asarray(pc.is_in(first.column, value_set=values).to_numpy(zero_copy_only=False))
            return set(uncovered)
    return listed(store, snapshot, schema, first.name, first.values)
