"""Update of file times in the skipping metadata after a copy of a store, for the original Xskipper.

Xskipper takes a file with another time for another file, and reads it. Our own planner goes by keys.
"""

from __future__ import annotations

from typing import Any

from kubothek.storage import Store
from kubothek.table.log import Change, DatasetLog, Operation
from kubothek.table.skipping.collect.collectors import entry_schema
from kubothek.table.skipping.entries import KEY, MODIFIED
from kubothek.table.skipping.files.reading import load
from kubothek.table.skipping.files.writing import modified
from kubothek.table.skipping.model import SkippingChange
from kubothek.table.skipping.refresh import merged


def retime(store: Store, log: DatasetLog, *, by: str = "") -> int | None:
    """Write the current times of files into their entries, in one commit that changes no row.

    Return its version, None if all times are right. One request for each file. Raises SkippingUnreadable, and what
    commits raise.
    """
    started = log.begin_new("skipping")
    head, schema, state = started.snapshot.head, started.snapshot.schema, started.snapshot.head.skipping
    if schema is None or not state.parts:
        return None
    known: dict[str, int] = {}
    for part in state.parts:
        entries = load(store, part, columns=())
        keys: Any = entries.column(KEY).to_pylist()
        moments: Any = entries.column(MODIFIED).to_pylist()
        known |= dict(zip(keys, moments, strict=True))
    files = set(head.files().values()) & known.keys()
    times = modified(store, sorted(files))
    if all(known[key] == moment for key, moment in times.items()):
        return None
    written = merged(
        store,
        head.uuid,
        head.table,
        entry_schema(state, schema, head.partition_keys),
        state.parts,
        holds=files.__contains__,
        times=times,
        encryption=state.encryption,
    )
    obsolete = frozenset(key for part in state.parts if part not in written for key in part.keys)
    change = Change(operation=Operation.INDEX, skipping=SkippingChange(written=written, instead_of=obsolete), by=by)
    return started.commit(change).version
