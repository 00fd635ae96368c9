"""The large objects that the records of blocks link to (RFC-017), read from the columns of their slices.

Blocks say how many links there are, not which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import ChainCorrupt, FormatInvalid, InputError, ObjectNotFound
from kubothek.odf.chain import ADVICE, Stored
from kubothek.odf.spec.events import AddData, ExecuteTransform, SetDataSchema
from kubothek.odf.spec.layout import Layout
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.object_links import LinkPath, link_columns, links_nothing
from kubothek.odf.validation.slice_columns import SliceColumns
from kubothek.storage import Store
from kubothek.storage.hashed import hashed
from kubothek.table.untrusted_parquet import UNREADABLE

_TOGETHER: Final = 1000
"""Links that are transferred together."""
_SEEN: Final = 1 << 17
"""Links that are remembered, so that one which recurs comes once."""
MOST_MISSING: Final = 1 << 17
"""The most missing objects of a chain that are listed, for later pulls."""


@dataclass(frozen=True, slots=True)
class Linking:
    """A slice with links in some of its ``columns``, or of fields within them."""

    physical_hash: Multihash
    columns: tuple[LinkPath, ...]


def linking(blocks: Iterable[Stored], before: SetDataSchema | None) -> list[Linking]:
    """Return the slices of sound blocks that have links; ``before``: the schema in force before the blocks."""
    columns = link_columns(None if before is None else before.schema)
    found: list[Linking] = []
    for stored in blocks:
        event = stored.decode().content.event
        if isinstance(event, SetDataSchema):
            columns = link_columns(event.schema)
        elif columns and isinstance(event, AddData | ExecuteTransform) and event.new_data and not links_nothing(event):
            found.append(Linking(event.new_data.physical_hash, columns))
    return found


def links_in(store: Store, layout: Layout, slices: Sequence[Linking]) -> Iterator[list[Multihash]]:
    """Yield the links of slices, up to 1,000 at a time; texts that are no links are left to verification.

    Memory does not grow with the slices, so a link can come again after many others. Raises ChainCorrupt for a slice
    that cannot be read, StoreError, and OSError if there is no disk space for a large slice.
    """
    seen: set[Multihash] = set()
    waiting: list[Multihash] = []
    for each in slices:
        with hashed(store, layout.data(each.physical_hash)) as found:
            for text in _texts(found.file, each):
                try:
                    link = Multihash.parse(text)
                except FormatInvalid:
                    continue
                if link in seen:
                    continue
                if len(seen) == _SEEN:
                    seen.clear()
                seen.add(link)
                waiting.append(link)
                if len(waiting) == _TOGETHER:
                    yield waiting
                    waiting = []
    if waiting:
        yield waiting


# Objects that the source of a chain lacked.


def listed_missing(store: Store, layout: Layout) -> Iterator[list[Multihash]]:
    """Yield the linked objects that no source of the chain had, up to 1,000 at a time."""
    try:
        texts = iter(store.get(layout.missing_links).decode("ascii", "replace").split())
    except ObjectNotFound:
        return
    while portion := [*islice(texts, _TOGETHER)]:
        links = list[Multihash]()
        for text in portion:
            with suppress(FormatInvalid):
                links.append(Multihash.parse(text))
        yield links


def list_missing(store: Store, layout: Layout, links: Sequence[Multihash]) -> None:
    """Replace the list of missing objects, at most :data:`MOST_MISSING`; delete it if there are none."""
    if links:
        store.put(layout.missing_links, "".join(f"{link}\n" for link in dict.fromkeys(links)).encode())
    else:
        store.delete([layout.missing_links])


def _texts(file: Any, linking: Linking) -> Iterator[str]:
    try:
        columns = SliceColumns(file)
        names = columns.schema.names
        paths = [path for path in linking.columns if path[0] in names]
        numbers = [names.index(name) for name in dict.fromkeys(path[0] for path in paths)]
        for batch in columns.batches(numbers) if numbers else ():
            for path in paths:
                yield from texts_of(values_at(batch, path))
    except (*UNREADABLE, InputError) as error:
        raise ChainCorrupt(f"the links of slice {linking.physical_hash} cannot be read: {error}; {ADVICE}") from error


def values_at(batch: pa.RecordBatch, path: LinkPath) -> pa.Array[Any]:
    """Return a column, or a field within it, which is NULL where a struct around it is."""
    column: pa.Array[Any] = batch.column(path[0])
    return pc.struct_field(column, [*path[1:]]) if path[1:] else column


def texts_of(column: pa.Array[Any]) -> list[str]:
    """Return the different texts of a column, which can be dictionary-encoded."""
    return [str(text) for text in pc.unique(column.cast(pa.string()).drop_null()).to_pylist()]
