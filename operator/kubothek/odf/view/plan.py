"""How new records get into the table of a ledger: plain data, which is sent to the processes that write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view.change import ViewChange
from kubothek.odf.view.history import OFFSET_TYPE
from kubothek.odf.view.types import storable
from kubothek.storage import Store
from kubothek.table.files import PartitionedWriter
from kubothek.table.indexes import Dialect, IndexChange, IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile, Snapshot
from kubothek.table.operations.rows import stored_after
from kubothek.table.operations.written import Gathered, Gatherer, Gathering
from kubothek.table.schema import with_nulls
from kubothek.table.skipping.model import SkippingChange


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """The target state of the table's files.

    ``schema``  the stored schema of the table with the new records
    ``names``   of the ledger's own columns
    ``given``   the layout, if it differs from that of the head
    ``wanted``  indexes to create, by column
    """

    uuid: str
    table: str
    names: Vocabulary
    schema: pa.Schema
    layout: Layout
    given: Layout | None
    wanted: Mapping[str, IndexKind]
    dialect: Dialect | None
    gathering: Gathering

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        *,
        schema: pa.Schema,
        vocabulary: Vocabulary,
        layout: Layout | None = None,
        wanted: Mapping[str, IndexKind] | None = None,
        dialect: Dialect | None = None,
    ) -> Self:
        """Build the plan for records with these columns. Raises SchemaMismatch for types that a table cannot hold."""
        head = snapshot.head
        decided = Layout.of(head, layout)
        stored = stored_after(storable(in_table(schema, vocabulary)), snapshot.schema, decided, evolve=True)
        there = head.index_state.wanted()
        new = {c: kind for c, kind in (wanted or {}).items() if c not in there and c in stored.names}
        return cls(
            uuid=head.uuid,
            table=head.table,
            names=vocabulary,
            schema=stored,
            layout=decided,
            given=layout,
            wanted=new,
            dialect=dialect,
            gathering=Gathering.of(snapshot, stored, new),
        )

    def gatherer(self, store: Store) -> Gatherer:
        """Return the observer of the rows that are written."""
        return self.gathering.gatherer(store, self.uuid, self.table, self.schema, self.layout.partition_on)

    def writer(self, store: Store, gatherer: Gatherer) -> PartitionedWriter:
        """Return a writer of the table's files."""
        return PartitionedWriter(store, self.uuid, self.schema, self.layout, table=self.table, observer=gatherer)

    def shown(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return records of slices with the columns of the table, but not yet in its types."""
        columns = [name for name in records.schema.names if name != self.names.op]
        return with_nulls(records.select(columns), self.schema)

    def change(self, added: Iterable[PartitionFile], gathered: Gathered, removed: Iterable[str] = ()) -> ViewChange:
        """Return the change that commits these files."""
        new, gone = tuple(added), tuple(removed)
        return ViewChange(
            added=new,
            removed=gone,
            schema=self.schema if new or gone else None,
            partition_keys=self.layout.partition_on,
            layout=None if self.given is None else self.given.to_json(),
            index=IndexChange(collected=gathered.index, wanted=self.wanted, dialect=self.dialect),
            skipping=SkippingChange(written=gathered.skipping),
        )


def in_table(schema: pa.Schema, names: Vocabulary) -> pa.Schema:
    """Return the columns of slices that the table has; offsets of either type become one type."""
    fields = (field for field in schema if field.name != names.op)
    return pa.schema([field.with_type(OFFSET_TYPE) if field.name == names.offset else field for field in fields])
