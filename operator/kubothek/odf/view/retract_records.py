"""Files that hold retracted records, and the rest of their rows.

A record is found by its offset, which is unique. Planning narrows the files down by partitions and by the range of
offsets. Of the rest, only the column of offsets is read, of several files at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.errors import RowsLost
from kubothek.odf.merge import RETRACTS
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.log.records import parallel
from kubothek.table.operations.rows import stored_after
from kubothek.table.scan.plan import PlannedFile, plan
from kubothek.table.scan.read import open_files, read_failure
from kubothek.table.schema import conform

_Numbers = npt.NDArray[np.int64]
_MOST_VALUES: Final = 1000
"""The most values of a partition column that are looked up one by one."""
_BATCHES_AHEAD: Final = 8


@dataclass(frozen=True, slots=True)
class Holder:
    """A file with the number of its rows, and of those that are retracted."""

    label: str
    key: str
    rows: int
    hits: int


class Hints:
    """What is known of the retracted records: their offsets, and their partitions."""

    def __init__(self, vocabulary: Vocabulary, partition_on: Sequence[str]) -> None:
        self._offset = vocabulary.offset
        self._partition_on = partition_on
        self._offsets: list[_Numbers] = []
        self._values: dict[str, pa.Table | None] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add retractions and first halves of corrections, with the column ``RETRACTS``. Raises RowsLost without it."""
        if RETRACTS not in batch.schema.names or batch.column(RETRACTS).null_count:
            raise RowsLost("a record is taken back without a word on which; the view is rebuilt from the chain instead")
        self._offsets.append(batch.column(RETRACTS).to_numpy(zero_copy_only=False).astype(np.int64))
        for column in self._partition_on:
            new = pa.Table.from_batches([batch]).select([column])
            known = self._values.get(column, new.slice(0, 0))
            if known is not None:
                both = pa.concat_tables([known, new]).group_by(column).aggregate([])
                self._values[column] = both if both.num_rows <= _MOST_VALUES else None

    @property
    def offsets(self) -> _Numbers:
        """The offsets, ascending."""
        return np.sort(np.concatenate(self._offsets)) if self._offsets else np.zeros(0, np.int64)

    def where(self) -> Predicate:
        """Return a filter on the table that holds for all of them."""
        offsets = self.offsets
        terms = [
            Term(self._offset, Op.GE, int(offsets[0])),
            Term(self._offset, Op.LE, int(offsets[-1])),
        ]
        for column, values in self._values.items():
            if values is not None:
                stored = stored_after(values.schema, None, Layout(), evolve=True)
                terms.append(Term(column, Op.IN, tuple(conform(values, stored).column(0).to_pylist())))
        return Predicate((tuple(terms),))


def holders(store: Store, snapshot: Snapshot, hints: Hints) -> list[Holder]:
    """Return the files of the table that hold some of the records."""
    if snapshot.schema is None:
        return []
    wanted, schema = hints.offsets, snapshot.schema
    column = hints.where().conjunctions[0][0].column
    found = parallel(
        lambda file: _counted(store, file, schema, column, wanted), list(plan(store, snapshot, hints.where()).files)
    )
    return [holder for holder in found if holder.hits]


def kept_rows(
    store: Store, holder: Holder, schema: pa.Schema, offset: str, taken: _Numbers
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that stay, in the stored types of the table after the commit."""
    if holder.hits == holder.rows:
        return
    position = schema.get_field_index(offset)
    for batch in _batches(store, holder.key, schema, schema.names):
        stays = ~_among(batch.column(position), taken)
        yield batch if stays.all() else batch.filter(pa.array(stays))


def _counted(store: Store, file: PlannedFile, schema: pa.Schema, offset: str, taken: _Numbers) -> Holder:
    rows = hits = 0
    for batch in _batches(store, file.key, schema, [offset]):
        rows += batch.num_rows
        hits += int(np.count_nonzero(_among(batch.column(0), taken)))
    return Holder(file.label, file.key, rows, hits)


def _among(column: Any, taken: _Numbers) -> npt.NDArray[np.bool_]:
    offsets = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    places = np.minimum(np.searchsorted(taken, offsets), len(taken) - 1)
    found: npt.NDArray[np.bool_] = taken[places] == offsets
    return found


def _batches(store: Store, key: str, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    dataset = open_files(store, [key], schema)
    try:
        yield from dataset.scanner(columns=list(columns), batch_readahead=_BATCHES_AHEAD).to_batches()
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error
