"""Match entries with the existing files, and prune files by a filter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingUnreadable
from kubothek.external.files import keys_of
from kubothek.external.metadata import VERSIONS, as_part, location, versions_of
from kubothek.external.state import PlainIndex
from kubothek.storage import Store
from kubothek.table.expressions import Term
from kubothek.table.skipping.bloom.filters import Filters
from kubothek.table.skipping.files.reading import Metadata, current, load_location
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.names import object_path
from kubothek.table.skipping.prune.clauses import Mask, may_match
from kubothek.table.skipping.prune.entry_cache import opened
from kubothek.table.skipping.prune.implied import implied

log = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
_NONE: Final = -1


def versions_listed(listed: pa.Table) -> pa.Table:
    """Return the versions of files of a listing, as ``VERSIONS``."""
    moments = listed.column("modified").cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    columns = [listed.column("key"), moments, listed.column("size"), listed.column("etag")]
    return pa.table(columns, schema=VERSIONS)


@dataclass(frozen=True, slots=True)
class _Source:
    """Entries of one source.

    ``rows``     for each file the row of its entry, -1 if it has none
    ``entries``  function that returns the entries of some indices, by column
    """

    rows: Rows
    definitions: Sequence[IndexDefinition]
    entries: Callable[[Sequence[IndexDefinition]], Mapping[str, Any]]


class Matched:
    """The files of a listing with their entries."""

    def __init__(self, sources: Sequence[_Source], count: int) -> None:
        self._sources = sources
        self._count = count

    @property
    def described(self) -> int:
        """The number of files with an entry."""
        has = np.zeros(self._count, np.bool_)
        for source in self._sources:
            has |= source.rows >= 0
        return int(has.sum())

    @property
    def columns(self) -> frozenset[str]:
        """The columns with an index, in lower case."""
        return frozenset(name for source in self._sources for each in source.definitions for name in _names(each))

    def may(self, terms: Sequence[Term]) -> Mask:
        """Return which files may hold a row for which all of the bound terms are TRUE."""
        may = np.ones(self._count, np.bool_)
        asked = {term.column.lower() for term in terms}
        for source in self._sources:
            about = [each for each in source.definitions if asked & _names(each)]
            entries = source.entries(about)
            for definition in about:
                found = entries[definition.column]
                mask = None if found is None else may_match(definition, implied(terms), found)
                may &= True if mask is None else np.append(mask, True)[source.rows]
        return may


def _names(definition: IndexDefinition) -> set[str]:
    return {column.lower() for column in definition.columns}


def matched(metadata: Store, name: str, index: PlainIndex, versions: pa.Table) -> Matched:
    """Return the entries that the metadata of this name has for these versions of files.

    Kubothek's entries are matched by path, time, size and ETag. If one of their objects is missing, as after real
    Xskipper's REFRESH, the present files of Xskipper's directory are matched by path and time, as Xskipper does.
    """
    sources = []
    for part in index.parts:
        try:
            rows = _rows(versions, versions_of(metadata, part))
        except SkippingUnreadable as error:
            log.warning("reading without this skipping metadata: %s", error)
            continue
        found = opened(metadata)
        if found.keys(as_part(part)) is None:
            return _of_xskipper(metadata, location(name), index.url, versions)
        sources.append(_Source(rows, index.definitions.indices, partial(found.entries, as_part(part))))
    return Matched(sources, versions.num_rows)


def _of_xskipper(metadata: Store, prefix: str, url: str, versions: pa.Table) -> Matched:
    try:
        return by_path_and_time(load_location(metadata, prefix), url, versions)
    except SkippingUnreadable as error:
        log.warning("reading without this skipping metadata: %s", error)
        return Matched((), versions.num_rows)


def by_path_and_time(found: Metadata, url: str, versions: pa.Table) -> Matched:
    """Return the entries of any writer's metadata for these files, which are in the store of this URL."""
    moments: Any = versions.column("modified").to_pylist()
    pairs = zip(keys_of(versions), moments, strict=True)
    numbers: Any = current(found, [(object_path(url, key), moment) for key, moment in pairs])
    rows: Any = pc.fill_null(numbers, _NONE)
    columns: dict[str, Any] = {}

    def entries(definitions: Sequence[IndexDefinition]) -> Mapping[str, Any]:
        for each in definitions:
            if each.column not in columns:
                column: Any = found.rows.column(each.column).combine_chunks()
                columns[each.column] = Filters.of(column) if each.name == "bloomfilter" else column
        return columns

    source = _Source(rows.to_numpy(zero_copy_only=False).astype(np.int64), found.definitions, entries)
    return Matched([source], versions.num_rows)


def _rows(versions: pa.Table, described: pa.Table) -> Rows:
    """Return for each version the number of the row that describes exactly it, or -1."""
    found: Any = pc.fill_null(pc.index_in(identity(versions), value_set=identity(described)), _NONE)
    rows: Rows = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def identity(versions: pa.Table) -> Any:
    """Return a text for each version that identifies it."""
    columns: list[Any] = [versions.column(name).combine_chunks().cast(pa.string()) for name in VERSIONS.names]
    return pc.binary_join_element_wise(*columns, "\0")
