"""Select the files of a table that may hold a match, by the entries of its skipping metadata.

Entries are matched by the key of their file, relative to the store. Keys are unique and files are never rewritten, so
the modification time is not needed (commit-protocol, "Skipping entries"). A file without an entry may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.storage import Store
from kubothek.table.expressions import Predicate, Term
from kubothek.table.expressions.arrow import truth
from kubothek.table.skipping.model import IndexDefinition, Part, SkippingState
from kubothek.table.skipping.names import VIRTUAL
from kubothek.table.skipping.prune.clauses import Mask, clause_of, flags, may_match
from kubothek.table.skipping.prune.entry_cache import as_asked, opened
from kubothek.table.skipping.prune.implied import implied

T = TypeVar("T")

_NONE: Final = -1
_THREADS: Final = 16


class Described(Protocol):
    """The part of a head that skipping metadata needs."""

    @property
    def skipping(self) -> SkippingState:
        """Its metadata."""

    def files(self) -> Mapping[str, str]:
        """Return all keys by label, in order."""


class Skipping:
    """The entries of a head's files for the indices on these columns, read on first use."""

    def __init__(self, store: Store, head: Described, columns: Collection[str]) -> None:
        state = head.skipping
        wanted = {column.lower() for column in columns}
        self._store = store
        self._head = head
        self._parts = state.parts
        self._indices = [
            each for each in state.indices if wanted.intersection(_on(each)) and clause_of(each) is not None
        ]

    def may(self, terms: Sequence[Term], among: Mask) -> Mask:
        """Return which of ``among``, the files of the head in its order, may hold a row that all bound terms match."""
        may, terms = among, implied(terms)
        columns = {term.column.lower() for term in terms}
        for definition in self._indices:
            if columns.intersection(_on(definition)) and self._parts and may.any():
                positions, entries = self._entry_positions, self._entries
                masks = [
                    self._asked(definition, terms, part, found)
                    for part, found in zip(positions.parts, entries, strict=True)
                ]
                may = may & np.append(np.concatenate(masks), True)[positions.rows] if masks else may
        return may

    @staticmethod
    def _asked(definition: IndexDefinition, terms: Sequence[Term], part: Part, found: Mapping[str, Any]) -> Mask:
        entries = found[definition.column]
        mask = None if entries is None else may_match(definition, terms, entries)
        return np.ones(part.rows, np.bool_) if mask is None else mask

    @cached_property
    def _entry_positions(self) -> _EntryPositions:
        return _entry_positions(self._store, self._head, self._parts)

    @cached_property
    def _entries(self) -> list[Mapping[str, Any]]:
        """By part, and by the name of an index."""
        return _each(lambda part: opened(self._store).entries(part, self._indices), self._entry_positions.parts)


def may_hold(where: Predicate, definitions: Sequence[IndexDefinition], rows: pa.Table) -> Mask:
    """Return for each metadata row, in the form of :mod:`..files.reading`, whether its file may hold a match.

    ``where`` is bound. Its terms on partition columns are compared with the ``virtual_`` columns.
    """
    found = np.zeros(rows.num_rows, np.bool_)
    prepared = {each.column: as_asked(each, rows.column(each.column).combine_chunks()) for each in definitions}
    for terms in where.conjunctions:
        may = np.full(rows.num_rows, not any(term.never for term in terms))
        for term in terms:
            may &= _in_paths(term, rows)
        for definition in definitions:
            mask = may_match(definition, terms, prepared[definition.column])
            may = may if mask is None else may & mask
        found |= may
    return found


def _in_paths(term: Term, rows: pa.Table) -> Mask:
    """Return which files the known values of a partition column permit."""
    name = next((n for n in rows.column_names if n.lower() == VIRTUAL + term.column.lower()), None)
    everything = np.ones(rows.num_rows, np.bool_)
    if name is None or term.type is None:
        return everything
    values = rows.column(name).combine_chunks()
    try:
        typed = values if values.type == term.type else values.cast(term.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return everything
    mask: Mask = flags(truth(term, typed)) | flags(values.is_null())
    return mask


def _on(definition: IndexDefinition) -> list[str]:
    """Return the columns in lower case, as Xskipper ignores case; columns that differ only in case have no index."""
    return [column.lower() for column in definition.columns]


def _each(act: Callable[[Part], T], parts: Sequence[Part]) -> list[T]:
    """Run ``act`` on each part, several at a time, because it may wait for the store."""
    if len(parts) < 2:
        return [act(part) for part in parts]
    with ThreadPoolExecutor(min(_THREADS, len(parts))) as pool:
        return list(pool.map(act, parts))


# --- position of a file's entry ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EntryPositions:
    """``rows``: for each file of the head the row of its entry, counted through all ``parts``; -1 if it has none."""

    head: ref[Described]
    parts: tuple[Part, ...]
    rows: npt.NDArray[np.int64]


def _entry_positions(store: Store, head: Described, parts: Iterable[Part]) -> _EntryPositions:
    """Return the positions; computed once for each head in memory."""
    name = id(head)
    known = _KNOWN.get(name)
    if known is not None and known.head() is head:
        return known

    def forget(_: object) -> None:
        _KNOWN.pop(name, None)

    found = _KNOWN[name] = _worked_out(store, head, tuple(parts), ref(head, forget))
    return found


def _worked_out(store: Store, head: Described, parts: tuple[Part, ...], name: ref[Described]) -> _EntryPositions:
    """Compute the positions; of several entries of a file the newest counts."""
    newest_first = parts[::-1]
    keys = _each(lambda part: opened(store).keys(part), newest_first)
    readable = [(part, found) for part, found in zip(newest_first, keys, strict=True) if found is not None]
    everything = pa.chunked_array([found for _, found in readable], pa.string())
    wanted = pa.array(head.files().values(), pa.string())
    found: Any = pc.index_in(wanted, value_set=everything)
    rows = pc.fill_null(found, _NONE).to_numpy().astype(np.int64)
    return _EntryPositions(name, tuple(part for part, _ in readable), rows)


_KNOWN: Final[dict[int, _EntryPositions]] = {}
"""By the identity of the head, its cheapest key."""
