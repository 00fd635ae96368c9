"""Overwrite: new rows replace all others. It depends on everything, so it conflicts with any other commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from kubothek.errors import SchemaMismatch
from kubothek.table.log import Change, Everything, Operation, Snapshot
from kubothek.table.operations.compatibility import misfit
from kubothek.table.operations.written import Written
from kubothek.table.time_zones import zones_after, zones_of

_HINT: Final = "allowSchemaChange: true puts the new columns in the place of the table's"


@contextmanager
def fitting(snapshot: Snapshot, *, allow_schema_change: bool) -> Iterator[pa.Schema | None]:
    """Yield the stored schema that the rows must fit, None if any will do; rows are written in the ``with`` block.

    A SchemaMismatch in the block gets a hint how to allow the change.
    """
    table = None if allow_schema_change else snapshot.schema
    try:
        yield table
    except SchemaMismatch as error:
        if table is None:
            raise
        raise SchemaMismatch(f"{error}; {_HINT}") from error


def overwrite(snapshot: Snapshot, written: Written, *, allow_schema_change: bool = False, by: str = "") -> Change:
    """Return the change that replaces all files by these.

    A schema that fits the table's is merged with it. Another one replaces it if ``allow_schema_change`` is set, and
    else raises SchemaMismatch.
    """
    problem = misfit(snapshot, written.schema, written.partition_on, evolve=written.evolves)
    try:
        zones_after(snapshot.schema, zones_of(snapshot.head.metadata), written.zones)
    except SchemaMismatch as error:
        problem = problem or str(error)
    if problem is not None and not allow_schema_change:
        raise SchemaMismatch(f"{problem}; {_HINT}")
    return Change(
        operation=Operation.OVERWRITE,
        added=written.files,
        removed=tuple(snapshot.head.partitions),
        reads=Everything(),
        schema=written.schema,
        evolves=written.evolves,
        replaces_schema=problem is not None,
        partition_keys=written.partition_on,
        layout=written.layout,
        zones=written.zones,
        index=written.index,
        skipping=written.skipping,
        by=by,
    )
