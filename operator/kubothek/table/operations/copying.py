"""Rewrite of rows into new files of a table's layout: shared by row-level changes and compaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as ds

from kubothek.storage import Store, StoreConfig
from kubothek.table.files import MEMORY_BUDGET, Observer, PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import Head, Snapshot
from kubothek.table.log.model.head import TABLE
from kubothek.table.operations.written import Gatherer, Gathering
from kubothek.table.scan.read import open_files


@dataclass(frozen=True, slots=True)
class Copying:
    """The table to rewrite, and how; sent to executors.

    ``table``   an empty head of the table: its uuid, name and partition columns
    ``schema``  the stored schema
    ``gathering`` what is collected from the rows while they are written
    """

    store: StoreConfig
    table: Head
    schema: pa.Schema
    layout: Layout
    gathering: Gathering

    @classmethod
    def of(cls, store: Store, snapshot: Snapshot, layout: Layout | None = None, **more: Any) -> Self:
        """Create it for rows of this snapshot, which has a schema; ``layout`` None = the table's."""
        head, schema = snapshot.head, snapshot.schema
        assert schema is not None, "rows have columns"
        bare = Head(head.uuid, {}, head.partition_keys, metadata={TABLE: head.table})
        return cls(store.config, bare, schema, Layout.of(head, layout), Gathering.of(snapshot, schema), **more)

    def gatherer(self, store: Store) -> Gatherer:
        """Return an observer of the new rows, for the table's indices and its skipping metadata."""
        table = self.table
        return self.gathering.gatherer(store, table.uuid, table.table, self.schema, table.partition_keys)

    def writer(
        self, store: Store, observer: Observer, *, presorted: bool = False, memory_budget: int = MEMORY_BUDGET
    ) -> PartitionedWriter:
        """Return a writer of the table's files; ``presorted``: of rows that come in their order."""
        return PartitionedWriter(
            store,
            self.table.uuid,
            self.schema,
            self.layout,
            table=self.table.table,
            observer=observer,
            presorted=presorted,
            memory_budget=memory_budget,
        )

    def open(self, store: Store, keys: Collection[str]) -> ds.FileSystemDataset:
        """Return a dataset of these files."""
        return open_files(store, keys, self.schema)
