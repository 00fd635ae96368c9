"""Updates of the table: new records go into files of its layout, in the pass that makes the slices.

Files that hold retracted records are rewritten without these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import RowsLost
from kubothek.odf.merge import PASSING, RETRACTS
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategyUpsertStream,
)
from kubothek.odf.validation.row_checks import APPEND, CORRECT_TO
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view.change import ViewChange
from kubothek.odf.view.plan import ViewPlan
from kubothek.odf.view.retract_records import Hints, Holder, holders, kept_rows
from kubothek.odf.view.types import storable
from kubothek.storage import Store
from kubothek.table.indexes import Dialect, IndexKind
from kubothek.table.indexes.types import is_indexable
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile, Snapshot
from kubothek.table.operations.rows import stored_after
from kubothek.table.schema import with_nulls

_OPS: Final = pa.array([APPEND, CORRECT_TO], pa.int32())
_PASSING: Final = pa.array([PASSING], pa.int64())


def wanted_indices(strategy: MergeStrategy, schema: pa.Schema, partition_on: tuple[str, ...]) -> dict[str, IndexKind]:
    """Return the index for key lookups of merges: on the first key column, unless it partitions the table.

    A Snapshot reads the whole table anyway.
    """
    if not isinstance(strategy, MergeStrategyLedger | MergeStrategyUpsertStream | MergeStrategyChangelogStream):
        return {}
    first = strategy.primary_key[0]
    if first in partition_on or first not in schema.names:
        return {}
    stored = stored_after(storable(pa.schema([schema.field(first)])), None, Layout(), evolve=True).field(first).type
    return {first: IndexKind.NATIVE} if is_indexable(stored) else {}


class ViewWriter:
    """Writes the changes of the table for new records; nothing is visible before a commit. Use it as a context manager.

    ``schema``   of the slices
    ``layout``   of the table's files; None = as the head says
    ``wanted``   indexes to create, by column, where the column has none yet

    The attribute ``schema`` is the stored schema of the table.

    Raises what :class:`~kubothek.table.files.PartitionedWriter` raises, SchemaMismatch for types that a table
    cannot hold, RowsLost if a retracted record is not in the table.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        *,
        schema: pa.Schema,
        vocabulary: Vocabulary,
        layout: Layout | None = None,
        wanted: Mapping[str, IndexKind] | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._names = vocabulary
        self._plan = ViewPlan.of(
            snapshot, schema=schema, vocabulary=vocabulary, layout=layout, wanted=wanted, dialect=dialect
        )
        self.schema = self._plan.schema
        self._gatherer = self._plan.gatherer(store)
        self._writer = self._plan.writer(store, self._gatherer)
        self._hints = Hints(vocabulary, self._plan.layout.partition_on)
        self._rows = 0

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the next records, as slices have them, with the column ``RETRACTS`` if any retracts another one.

        Those with ``PASSING`` there never are in the table.
        """
        if RETRACTS in batch.schema.names and batch.column(RETRACTS).null_count < batch.num_rows:
            batch = batch.filter(pc.invert(pc.is_in(batch.column(RETRACTS), value_set=_PASSING)))
        op: Any = batch.column(self._names.op).cast(pa.int32())
        comes = pc.is_in(op, value_set=_OPS)
        here = pc.all(comes).as_py() is not False
        shown = batch.select([n for n in batch.schema.names if n not in (self._names.op, RETRACTS)])
        new = shown if here else shown.filter(comes)
        if not here:
            self._hints.add(batch.filter(pc.invert(comes)))
        if new.num_rows:
            self._rows += new.num_rows
            self._writer.write(with_nulls(new, self.schema))

    def finish(self) -> ViewChange:
        """Store all files, and return the change to commit."""
        taken = self._hints.offsets
        found: list[Holder] = holders(self._store, self._snapshot, self._hints) if len(taken) else []
        if (hits := sum(holder.hits for holder in found)) != len(taken):
            raise RowsLost(
                f"{len(taken)} records of {self._snapshot.head.uuid!r} were to be taken back, but {hits} of them are "
                "in its table: it is not the view of the chain any more; see kubothek heal"
            )
        for holder in found:
            for batch in kept_rows(self._store, holder, self.schema, self._names.offset, taken):
                self._writer.write(batch)
        added = tuple(self._writer.finish())
        self._require_all(added, sum(holder.rows - holder.hits for holder in found))
        return self._plan.change(added, self._gatherer.finish(), (holder.label for holder in found))

    def _require_all(self, added: tuple[PartitionFile, ...], kept: int) -> None:
        """Raise RowsLost unless the new files have the new records and the kept rows of others."""
        if (written := sum(file.rows for file in added)) != self._rows + kept:
            raise RowsLost(
                f"{self._rows + kept} rows of {self._snapshot.head.uuid!r} were to be written, but {written} were; try "
                "again"
            )
