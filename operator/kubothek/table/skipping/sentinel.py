"""Sentinel file that disables Xskipper while index definitions change.

Xskipper takes the columns from the first file in name order. It reads null for columns that another file lacks, and
null means that the data file holds no values (verified with Xskipper 1.7). Files with different columns in one
directory would thus make it lose rows. Before the first file of new definitions is written, an empty file without
indices is put before all others. Xskipper then has no index and skips nothing until the files of the old definitions
are deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import pyarrow as pa

from kubothek.storage import Store
from kubothek.table.skipping import names
from kubothek.table.skipping.entries import EntrySchema
from kubothek.table.skipping.files.metadata_file import pause_fields, render


def pause(store: Store, uuid: str, table: str, schema: EntrySchema) -> None:
    """Write the sentinel, before any file of new definitions, unless there is one or the directory is empty."""
    there = list(store.list_names(names.location(uuid)))
    if not there or names.is_pause(there[0]):
        return
    fields = pause_fields(schema)
    nothing = pa.table({field.name: pa.array([], field.type) for field in fields})
    data = render(fields, pa.array([], pa.string()), nothing, f"{uuid}/{table}")
    store.put(names.new_pause_key(names.location(uuid)), memoryview(data))


def resume(store: Store, uuid: str, tag: str | None, kept: Collection[str], *, now: datetime, grace: timedelta) -> bool:
    """Delete files of old definitions, then the sentinels, once new definitions are committed; True if all are gone.

    ``tag``    digest of the head's definitions; None: it has no indices
    ``kept``   keys of the parts that the head names: they stay, whatever their definitions
    ``grace``  grace period of the store: for that long, a writer unaware of the new definitions may still write

    Older versions may name deleted files: they are then read without them.
    """
    found = list(store.list(names.location(uuid)))
    others = [o for o in found if not names.is_pause(o.key) and (tag is None or names.definitions_tag_of(o.key) != tag)]
    store.delete(o.key for o in others if o.key not in kept and names.is_own_key(uuid, o.key))
    in_the_way = [o for o in others if o.key in kept or not names.is_own_key(uuid, o.key)]
    pauses = [o for o in found if names.is_pause(o.key)]
    if in_the_way or any(now - o.modified <= grace for o in pauses):
        return False
    store.delete(o.key for o in pauses)
    return True
