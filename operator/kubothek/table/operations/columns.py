"""Changes of columns: which are allowed, and the schema and rows after them.

Kartothek finds a column by its name in each data file (Kartothek specification, "Table schema"). A column that files
lack is null in them, so adding one changes metadata only. A rename or removal that changed metadata only would leave
the old name in the files, which other libraries read; it rewrites them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from kubothek.errors import InputError, SchemaMismatch
from kubothek.table.layout import Layout
from kubothek.table.log import Change, Everything, Operation, Snapshot
from kubothek.table.operations.filters import require_table
from kubothek.table.operations.written import Written
from kubothek.table.partitioning import check_new_columns
from kubothek.table.schema import merge, normalise, require_distinct, without_time_zones
from kubothek.table.time_zones import zones_in, zones_of


def add_columns(snapshot: Snapshot, columns: pa.Schema, *, by: str = "") -> Change:
    """Return the change that adds these columns, null in all rows; their types may have time zones.

    Raises InputError for no columns, and for a table whose columns are not known yet; SchemaMismatch for a column that
    the table has, or a name or type that no table can have.
    """
    schema = _known(snapshot)
    if not columns.names:
        raise InputError("no columns to add: name each column and its type")
    require_distinct(columns.names)
    if there := [name for name in columns.names if name in schema.names]:
        raise SchemaMismatch(f"dataset {snapshot.head.uuid!r} has a column {there[0]!r} already; choose another name")
    # With the partition columns, which come first: plateau compares the order of columns, too.
    everything = normalise(pa.schema([*schema, *without_time_zones(columns)]), snapshot.head.partition_keys)
    merged = merge(schema, everything, evolve=True)
    check_new_columns(schema, merged)
    return Change(
        operation=Operation.LAYOUT,
        schema=merged,
        evolves=True,
        zones=zones_in(columns),
        by=by,
    )


def renamed(snapshot: Snapshot, names: Mapping[str, str]) -> dict[str, str]:
    """Return the names of all columns after these, by their old name, get new ones.

    Raises InputError for a column that is missing or that something depends on, SchemaMismatch for a name that is taken
    or that no table can have.
    """
    schema = _known(snapshot)
    _require_free(snapshot, names, "renamed")
    after = [names.get(name, name) for name in schema.names]
    if twice := [name for name in names.values() if after.count(name) > 1]:
        raise SchemaMismatch(f"dataset {snapshot.head.uuid!r} would have two columns {twice[0]!r}; choose another name")
    check_new_columns(schema, pa.schema([pa.field(name, pa.null()) for name in after]))
    return dict(zip(schema.names, after, strict=True))


def without(snapshot: Snapshot, names: Sequence[str]) -> dict[str, str]:
    """Return the names of all columns but these, by themselves.

    Raises InputError for a column that is missing or that something depends on, and if none would be left.
    """
    schema = _known(snapshot)
    _require_free(snapshot, names, "dropped")
    if set(schema.names) <= set(names):
        raise InputError(f"dataset {snapshot.head.uuid!r} has no other columns; kubothek drop deletes a whole dataset")
    return {name: name for name in schema.names if name not in names}


def with_columns(rows: pa.RecordBatchReader, names: Mapping[str, str]) -> pa.RecordBatchReader:
    """Return the rows with the columns ``names``, by their old name, under their new names, and no others."""
    schema = pa.schema([rows.schema.field(old).with_name(new) for old, new in names.items()])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield pa.RecordBatch.from_arrays([batch.column(old) for old in names], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def rewritten(snapshot: Snapshot, names: Mapping[str, str], written: Written | None, *, by: str = "") -> Change:
    """Return the change that replaces all files by ``written``, which has the columns of :func:`with_columns`.

    ``written``  None: the table has no rows
    """
    zones = {names[old]: zone for old, zone in zones_of(snapshot.head.metadata).items() if old in names}
    change = Change(
        operation=Operation.OVERWRITE,
        removed=tuple(snapshot.head.partitions),
        reads=Everything(),
        schema=written.schema if written else _renamed(snapshot, names),
        replaces_schema=True,
        zones=zones,
        by=by,
    )
    if written is None:
        return change
    return replace(change, added=written.files, index=written.index, skipping=written.skipping)


def _renamed(snapshot: Snapshot, names: Mapping[str, str]) -> pa.Schema:
    schema = _known(snapshot)
    fields = [schema.field(old).with_name(new) for old, new in names.items()]
    return normalise(pa.schema(fields), snapshot.head.partition_keys)


def _known(snapshot: Snapshot) -> pa.Schema:
    require_table(snapshot)
    if snapshot.schema is None:
        raise InputError(f"dataset {snapshot.head.uuid!r} has no columns yet; its first rows define them")
    return snapshot.schema


def _require_free(snapshot: Snapshot, names: Collection[str], what: str) -> None:
    """Check that the columns exist, and that nothing but the rows depends on them."""
    schema, head = _known(snapshot), snapshot.head
    if not names:
        raise InputError(f"no columns to be {what}: name at least one")
    if unknown := [name for name in names if name not in schema.names]:
        raise InputError(
            f"dataset {head.uuid!r} has no column {unknown[0]!r}; its columns are {', '.join(schema.names)}"
        )
    layout = Layout.of(head)
    described = {column.partition(".")[0].lower() for index in head.skipping.indices for column in index.columns}
    users = {
        "partitions the table; copy the rows to a new dataset": head.partition_keys,
        "sorts the files; set another layout first": layout.sort_by,
        "defines the buckets; set another layout first": layout.bucket_by,
        "is in the layout's dictionary_columns; set another layout first": layout.dictionary_columns or (),
        f"has an index; drop it first: kubothek index {head.uuid} --drop": tuple(head.index_state.wanted()),
        f"has skipping metadata; drop it first: kubothek skipping drop {head.uuid}": tuple(
            name for name in schema.names if name.lower() in described
        ),
    }
    for reason, columns in users.items():
        for name in names:
            if name in columns:
                raise InputError(f"column {name!r} of {head.uuid!r} cannot be {what}: it {reason}")
