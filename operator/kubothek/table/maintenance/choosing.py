"""Choice of a table's skipping indices, from the first rows of some of its files and from filters of past queries."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.log import Snapshot
from kubothek.table.scan.read import open_files, read_failure
from kubothek.table.skipping.model import SkippingState
from kubothek.table.skipping.prune.auto import SAMPLE_ROWS, Seen, choose, profile, sampled


def with_chosen(store: Store, snapshot: Snapshot, wanted: SkippingState, seen: Seen = ()) -> SkippingState:
    """Return the definition with the indices that the rule of :mod:`~kubothek.table.skipping.prune.auto` adds.

    Indices of the table that the definition lacks were chosen before, and stay. Raises StoreError, VersionIncomplete.
    """
    head, schema = snapshot.head, snapshot.schema
    if schema is None:
        return wanted
    inside = pa.schema([each for each in schema if each.name not in head.partition_keys])
    samples = [_first_rows(store, key, inside) for key in sampled(list(head.files().values()))]
    asked = {(each.type, each.columns) for each in wanted.indices}
    before = [each for each in head.skipping.indices if (each.type, each.columns) not in asked and each.key is None]
    return replace(wanted, indices=choose(profile(samples, inside), seen, (*wanted.indices, *before), inside))


def _first_rows(store: Store, key: str, schema: pa.Schema) -> pa.Table:
    dataset = open_files(store, [key], schema)
    try:
        found: pa.Table = dataset.head(SAMPLE_ROWS, batch_readahead=1, fragment_readahead=1)
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error
    return found
