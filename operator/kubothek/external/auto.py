"""Choice of indices for plain files, from a sample of them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from kubothek.errors import SourceCorrupt
from kubothek.external.files import PlainFiles, PlainTable, keys_of, table_of
from kubothek.external.refresh import Place
from kubothek.external.state import read
from kubothek.storage import Store
from kubothek.table.skipping.model import SkippingState
from kubothek.table.skipping.prune.auto import SAMPLE_ROWS, Seen, choose, profile, sampled


def chosen_for_files(place: Place, files: PlainFiles, wish: SkippingState, seen: Seen = ()) -> SkippingState:
    """Return ``wish`` with the indices that the rule adds; an earlier choice for the same definitions is kept.

    Raises InputError if there are no files, SourceCorrupt for an unreadable file.
    """
    before = read(place.metadata, place.name).index
    if before is not None and not seen and before.wish.encryption == wish.encryption:
        chosen = before.wish.indices[len(wish.indices) :]
        if before.wish.indices[: len(wish.indices)] == wish.indices and chosen:
            return before.wish
    keys = keys_of(files.listed(place.files))
    table = table_of(place.files, files, keys)
    samples = [_first_rows(place.files, table, key) for key in sampled(keys)]
    inside = [name for name in table.schema.names if name not in table.partitions]
    schema = pa.schema([table.schema.field(name) for name in inside])
    return replace(wish, indices=choose(profile(samples, schema), seen, wish.indices, schema))


def _first_rows(store: Store, table: PlainTable, key: str) -> pa.Table:
    columns = [name for name in table.schema.names if name not in table.partitions]
    found, rows = [], 0
    try:
        for batch in table.batches(store, key, columns):
            found.append(batch)
            rows += batch.num_rows
            if rows >= SAMPLE_ROWS:
                break
    except (pa.ArrowException, OSError) as error:
        raise SourceCorrupt(f"{key} cannot be read as {table.files.format}: {error}") from error
    return pa.Table.from_batches(found, pa.schema([table.schema.field(name) for name in columns]))
