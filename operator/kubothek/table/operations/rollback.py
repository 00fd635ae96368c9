"""Rollback: restores the table at a version, as a new version. It depends on everything."""

from __future__ import annotations

from kubothek.errors import SchemaMismatch
from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Everything, Operation, Snapshot, Version
from kubothek.table.log.file_sizes import measure
from kubothek.table.log.model.deltas import difference
from kubothek.table.operations.compatibility import misfit
from kubothek.table.operations.filters import require_table
from kubothek.table.schema import merge
from kubothek.table.skipping.change import SkippingChange


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
