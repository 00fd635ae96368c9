"""Between two wishes: files with other columns in one directory would make real Xskipper lose rows.

It takes the columns from the first file in the order of names and reads null for those that another file has not,
which to it says that the data file holds no values (seen with Xskipper 1.7). So before the first file of a new wish is
written, an empty one without indices comes before all: Xskipper then has no index, and skips nothing, until the
files of the old wish are gone.
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
    """Before anything is written for a new wish; nothing is done if there is nothing of another one to pause."""
    there = list(store.list_names(names.location(uuid)))
    if not there or names.is_pause(there[0]):
        return
    fields = pause_fields(schema)
    nothing = pa.table({field.name: pa.array([], field.type) for field in fields})
    data = render(fields, pa.array([], pa.string()), nothing, f"{uuid}/{table}")
    store.put(names.new_pause_key(names.location(uuid)), memoryview(data))


def resume(
    store: Store, uuid: str, wish: str | None, kept: Collection[str], *, now: datetime, grace: timedelta
) -> bool:
    """Once the new wish is committed, and in maintenance: delete what stands in Xskipper's way; True if nothing does.

    ``wish``   that of the head; None: it wants no indices
    ``kept``   keys of the parts that the head names: they stay, whichever wish they are of
    ``grace``  of the store: for so long a writer that does not know of the new wish may still come

    Older versions may name what is deleted: they are then read without it.
    """
    found = list(store.list(names.location(uuid)))
    others = [o for o in found if not names.is_pause(o.key) and (wish is None or names.wish_of(o.key) != wish)]
    store.delete(o.key for o in others if o.key not in kept and names.is_own_key(uuid, o.key))
    in_the_way = [o for o in others if o.key in kept or not names.is_own_key(uuid, o.key)]
    pauses = [o for o in found if names.is_pause(o.key)]
    if in_the_way or any(now - o.modified <= grace for o in pauses):
        return False
    store.delete(o.key for o in pauses)
    return True
