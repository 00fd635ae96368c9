"""Check whether rows of one schema fit into a table of another."""

from __future__ import annotations

import pyarrow as pa

from kubothek.errors import SchemaMismatch
from kubothek.table.log import Snapshot
from kubothek.table.schema import merge


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
