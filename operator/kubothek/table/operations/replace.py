"""Replace: new rows replace whole partitions.

A filter on partition columns selects the partitions, or the rows do: those that they touch.
"""

from __future__ import annotations

import pyarrow as pa

from kubothek.errors import FilterInvalid, FilterMatchesAll, FilterNotMet
from kubothek.storage import Store
from kubothek.table.expressions import FALSE, TRUE, Predicate
from kubothek.table.log import Change, Matching, Operation, Partitions, Snapshot, partition_path
from kubothek.table.log.model.paths import parse_path
from kubothek.table.operations.filters import require_entire_files, require_not_everything, surely
from kubothek.table.operations.written import Written
from kubothek.table.scan.plan import PlannedFile, plan
from kubothek.table.schema import conform

_HINT = ", or leave where out to replace just the partitions that the rows touch"
_ROW = "__row"


def check_replace(
    store: Store, snapshot: Snapshot, schema: pa.Schema, partition_on: tuple[str, ...], where: Predicate | None
) -> Predicate | None:
    """Return the bound filter, after all checks that are possible before a row is read; plain data for executors.

    ``schema`` is the stored schema of the new rows. Raises FilterInvalid for a filter that does not fit the columns, or
    names others than partition columns. Raises FilterMatchesAll for a filter other than ``TRUE`` that selects the
    whole table, and for a table without partitions if there is no filter.
    """
    if where is None:
        if not partition_on and snapshot.head.partitions:
            raise FilterMatchesAll(
                f"dataset {snapshot.head.uuid!r} has no partitions, so its rows would all be replaced; if that is "
                "meant, use Overwrite, or where: TRUE"
            )
        return None
    bound = where.bind(schema)
    if bound == FALSE:
        raise FilterInvalid(f"where {where} selects nothing, so no row can satisfy it; correct it")
    if others := sorted(bound.columns - set(partition_on)):
        raise FilterInvalid(
            f"where names {', '.join(map(repr, others))}; rows replace whole partitions, so it may only name partition "
            f"columns: {', '.join(map(repr, partition_on)) or 'there are none'}"
        )
    if snapshot.schema is not None:
        _selected(store, snapshot, bound)
    return bound


def require_met(where: Predicate, rows: pa.Table | pa.RecordBatch, what: str, first_row: int | None) -> None:
    """Raise FilterNotMet if one of the rows does not satisfy the bound filter.

    ``what``       the origin of the rows, for the message
    ``first_row``  number of the first row, if known
    """
    if where == TRUE:
        return
    columns = sorted(where.columns)
    types = {term.column: term.type for terms in where.conjunctions for term in terms if term.type is not None}
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    known = conform(table, pa.schema([pa.field(name, types[name]) for name in columns]))
    unmet = ~surely(where.expression())
    if not known.filter(unmet).num_rows:
        return
    numbered = known.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    row = numbered.filter(unmet).slice(0, 1).to_pylist()[0]
    at = "" if first_row is None else f", row {first_row + row[_ROW]}"
    values = ", ".join(f"{column} = {row[column]!r}" for column in columns)
    raise FilterNotMet(
        f"{what}{at}: {values} does not satisfy where {where}, which names what is replaced; correct the rows or "
        "where. Nothing was committed"
    )


def replace(
    store: Store, snapshot: Snapshot, written: Written, where: Predicate | None = None, *, by: str = ""
) -> Change:
    """Return the change that replaces the partitions that ``where`` selects, or that the files touch, by these files.

    Raises what :func:`check_replace` raises, and FilterNotMet for a file outside of what ``where`` selects.
    """
    bound = check_replace(store, snapshot, written.schema, written.partition_on, where)
    if bound is None:
        paths = frozenset(partition_path(file.key) for file in written.files)
        removed = tuple(k for k, key in snapshot.head.files().items() if partition_path(key) in paths)
        return _change(written, removed, Partitions(paths), by)
    for file in written.files:
        path = partition_path(file.key)
        if bound.verdict(parse_path(path, written.schema)) is not True:
            raise FilterNotMet(
                f"{file.rows} rows of partition {path} do not satisfy where {bound}, which names what is replaced; "
                "correct the rows or where. Nothing was committed"
            )
    labels = () if snapshot.schema is None else tuple(file.label for file in _selected(store, snapshot, bound))
    return _change(written, labels, Matching.of(bound, written.schema, written.partition_on), by)


def _selected(store: Store, snapshot: Snapshot, bound: Predicate) -> tuple[PlannedFile, ...]:
    files = tuple(plan(store, snapshot, bound).files)
    require_entire_files(bound, [file for file in files if not file.all_rows])
    require_not_everything(bound, len(files), len(snapshot.head.partitions), hint=_HINT)
    return files


def _change(written: Written, removed: tuple[str, ...], reads: Partitions | Matching, by: str) -> Change:
    return Change(
        operation=Operation.REPLACE,
        added=written.files,
        removed=removed,
        reads=reads,
        schema=written.schema,
        partition_keys=written.partition_on,
        layout=written.layout,
        zones=written.zones,
        evolves=written.evolves,
        index=written.index,
        skipping=written.skipping,
        by=by,
    )
