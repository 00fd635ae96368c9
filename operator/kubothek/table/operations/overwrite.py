"""Overwrite: new rows replace all others. It depends on everything, so it conflicts with any other commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from kubothek.errors import SchemaMismatch
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Everything, Operation, Snapshot, Version
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model.deltas import difference
from kubothek.table.operations.filters import require_table
from kubothek.table.operations.written import Written
from kubothek.table.schema import merge
from kubothek.table.skipping.model import SkippingChange
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


# Check whether rows of one schema fit into a table of another.


def misfit(
    snapshot: Snapshot, schema: pa.Schema | None, partition_on: tuple[str, ...], *, evolve: bool = False
) -> str | None:
    """Return why files of this schema and partitioning cannot be part of the table; None if they can.

    Columns of type null fit every type; ``evolve`` as for :func:`~kubothek.table.schema.merge`.
    """
    if snapshot.schema is None or schema is None:
        return None
    if partition_on != snapshot.head.partition_keys:
        return f"the table is partitioned on {list(snapshot.head.partition_keys)}, not on {list(partition_on)}"
    try:
        merge(snapshot.schema, schema, evolve=evolve)
    except SchemaMismatch as error:
        return str(error)
    return None


# Rollback: restores the table at a version, as a new version. It depends on everything.


def rollback(
    store: Store,
    log: DatasetLog,
    snapshot: Snapshot,
    to: Version,
    *,
    allow_schema_change: bool = False,
    by: str = "",
) -> Change:
    """Return the change that restores the files of a version, each under its label and in its position.

    ``to``  a version, a time at which it was current, or a tag of it

    The current schema stays if it fits that version's files: columns may have been added since, or gained a type. A
    schema that does not fit is restored if ``allow_schema_change`` is set, and else raises SchemaMismatch. Layout,
    indices and user metadata stay. Raises VersionNotFound for a version that never existed or has expired;
    VersionIncomplete if files of it are gone; DatasetNotFound.
    """
    require_table(snapshot)
    target = log.snapshot(to)
    problem = _misfit(snapshot, target)
    if problem is not None and not allow_schema_change:
        raise SchemaMismatch(
            f"version {target.version} has another schema: {problem}; allowSchemaChange: true restores it as well"
        )
    labels, positions, removed = difference(snapshot.head, target.head)
    return Change(
        operation=Operation.ROLLBACK,
        added=measure(store, [(label, target.head.file(label)) for label in labels]),
        positions=positions,
        removed=tuple(label for label, _ in removed),
        reads=Everything(),
        schema=None if problem is None else target.schema,
        replaces_schema=problem is not None,
        restores=target.version,
        partition_keys=target.head.partition_keys,
        skipping=SkippingChange(written=target.head.skipping.parts),
        by=by,
    )


def _misfit(snapshot: Snapshot, target: Snapshot) -> str | None:
    """Return why the old files cannot be read with the current schema; None if they can."""
    problem = misfit(snapshot, target.schema, target.head.partition_keys, evolve=True)
    if problem is not None or snapshot.schema is None or target.schema is None:
        return problem
    merged = merge(snapshot.schema, target.schema, evolve=True)
    other = [field.name for field in merged if field not in list(snapshot.schema)]
    return f"the table has no such column any more: {', '.join(map(repr, other))}" if other else None
