"""Cache of entries for the next query, in bounded memory; entries are immutable."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import SkippingUnreadable
from kubothek.storage import Store
from kubothek.storage.immutable_cache import Kept, by_store
from kubothek.table.skipping.bloom.filters import Filters
from kubothek.table.skipping.entries import KEY
from kubothek.table.skipping.files.reading import load
from kubothek.table.skipping.model import IndexDefinition, Part

log = logging.getLogger(__name__)

BUDGET: Final = 256 << 20
"""Cached bytes for each store."""
_BLOOM: Final = "bloomfilter"
_FIXED_BYTES: Final = 1 << 10


def as_asked(definition: IndexDefinition, entries: pa.Array[Any]) -> Any:
    """Return the entries of an index in the form that its clause takes."""
    return Filters.of(entries) if definition.name == _BLOOM else entries


class Opened:
    """The most recently used columns of the parts of one store."""

    def __init__(self, store: Store, budget: int = BUDGET) -> None:
        self._store = store
        self._kept: Kept[tuple[Part, str], Any] = Kept(budget)

    def keys(self, part: Part) -> pa.Array[Any] | None:
        """Return the keys of the files of a part; None if it is unreadable, which only costs time."""
        found: pa.Array[Any] | None = self.entries(part, ())[KEY]
        return found

    def entries(self, part: Part, definitions: Sequence[IndexDefinition]) -> Mapping[str, Any]:
        """Return the keys of the files, and the entries of these indices in the form of their clauses, by column name.

        None for entries that the part lacks or that cannot be read.
        """
        names = [KEY, *(each.column for each in definitions)]
        found = {name: kept[0] for name in names if (kept := self._kept.recall((part, name))) is not None}
        if missing := [name for name in names if name not in found]:
            wanted = [each for each in definitions if each.column in missing]
            found |= self._read(part, missing, wanted)
        return found

    def _read(self, part: Part, names: Sequence[str], wanted: Sequence[IndexDefinition]) -> dict[str, Any]:
        try:
            table = load(self._store, part, columns=wanted)
        except SkippingUnreadable as error:
            log.warning("reading without skipping metadata: %s", error)
            return dict.fromkeys(names)
        by_column = {each.column: each for each in wanted}
        found = {}
        for name in names:
            column: Any = table.column(name).combine_chunks() if name in table.column_names else None
            made = as_asked(by_column[name], column) if column is not None and name in by_column else column
            self._kept.keep((part, name), made, _FIXED_BYTES + (0 if column is None else column.nbytes))
            found[name] = made
        return found


opened = by_store(Opened)
"""The cache of a store, for the lifetime of the store object."""
