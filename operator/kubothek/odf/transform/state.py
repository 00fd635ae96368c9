"""The state of a run's operators: tables by key. A run reads and changes only the rows of the keys that it meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kubothek.errors import FormatInvalid
from kubothek.odf.transform.checkpoint import Reader, Stored, Writer, rewrite
from kubothek.odf.transform.session import Session, listed

SEGMENT: Final = "__segment"
ID: Final = "__id"
_SORT: Final = "__sort"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of the state: ``columns`` with DuckDB's types, in sort order; the first ``keys`` are the key."""

    name: str
    columns: Mapping[str, str]
    keys: int

    @property
    def key(self) -> list[str]:
        """The columns of the key."""
        return list(self.columns)[: self.keys]


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of keys, as the bytes by which they are sorted; None: unbounded."""

    first: bytes | None = None
    end: bytes | None = None

    def holds(self, key: str) -> str:
        """Return SQL that tests whether a key, or a sort key that begins with it, is in the range."""
        bounds = (
            f"{key} {sign} {_blob(cut)}" for sign, cut in ((">=", self.first), ("<", self.end)) if cut is not None
        )
        return " AND ".join(bounds) or "true"


ALL: Final = Span()


@dataclass(frozen=True, slots=True)
class Changed:
    """A table of the state that a run changes: its columns, and the numbers of the segments with the keys of the run.

    ``given``  the segments whose new rows the run gives, as far as they are in its span
    """

    name: str
    columns: Mapping[str, str]
    segments: tuple[int, ...]
    given: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A loaded table: what was stored, the segments with the keys, those of the span to write, and the rows."""

    stored: Stored | None = None
    segments: Sequence[int] = ()
    given: Sequence[int] = ()
    rows: str | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    shape: Shape
    loaded: _Loaded
    keys: str
    rows: str


class State:
    """What the previous run left, and what this one will leave; with a ``span``, for a part of the keys.

    ``here``  whether the current operator has its state here; if not, nothing is stored and :meth:`put` does nothing
    """

    def __init__(self, session: Session, reader: Reader | None, fingerprint: str, span: Span = ALL) -> None:
        self._session = session
        self._reader = reader
        self._span = span
        self.header: Mapping[str, Any] = self._reader.header if self._reader is not None else {}
        self._fingerprint = fingerprint
        self.here = True
        self._loaded: dict[str, _Loaded] = {}
        self._changes: dict[str, _Change] = {}
        require_same(reader, fingerprint)

    @property
    def used(self) -> bool:
        """Whether an operator has a state."""
        return bool(self._changes)

    def old(self, shape: Shape, keys: str) -> str:
        """Return the rows of some keys, as a relation: its columns and the ``__id`` of their key.

        ``keys``  a relation with the columns of the key, without duplicates, and ``__id``
        """
        stored = self._stored(shape)
        if stored is None:
            columns = [f"NULL::{kind} AS {name}" for name, kind in shape.columns.items()]
            self._loaded[shape.name] = _Loaded()
            return self._session.keep("old", f"SELECT {listed(columns)}, 0::BIGINT AS {ID} WHERE false")
        numbers, own = self._find(shape, stored, keys), self._own(shape, stored)
        cut = {own.start, own.stop - 1} if self._span != ALL and own else set()
        given = sorted({*(number for number in numbers if number in own), *cut})
        loaded = self._load(shape, stored, sorted({*numbers, *given}))
        self._loaded[shape.name] = _Loaded(stored, numbers, given, loaded)
        columns = [f"s.{name}" for name in shape.columns]
        return self._session.keep(
            "old",
            f"SELECT {listed(columns)}, k.{ID} FROM {loaded} s JOIN {keys} k ON {same('s', 'k', shape.key)}",
        )

    def keys(self, shape: Shape) -> str:
        """Return all stored keys, as a relation."""
        stored = self._stored(shape)
        if stored is None:
            columns = [f"NULL::{shape.columns[name]} AS {name}" for name in shape.key]
            return self._session.view("keys", f"SELECT {listed(columns) or '1'} WHERE false")
        loaded = self._load(shape, stored, self._own(shape, stored))
        return self._session.view(
            "keys", f"SELECT DISTINCT {listed(shape.key) or '1'} FROM {loaded} WHERE {self.holds(shape.key)}"
        )

    def holds(self, key: Sequence[str]) -> str:
        """Return SQL that tests whether a key is in the span."""
        return self._span.holds(sort_key(key))

    def put(self, shape: Shape, keys: str, rows: str) -> None:
        """Replace the rows of the keys that :meth:`old` was called with; rows outside of the span are ignored."""
        if self.here:
            self._changes[shape.name] = _Change(shape, self._loaded[shape.name], keys, rows)

    def write(self, path: Path, header: Mapping[str, Any]) -> None:
        """Write the new state to a file."""
        with Writer(path) as writer:
            for changed, rows in self.changes():
                table = writer.table(changed.name, changed.columns)
                rewrite(table, self._reader, changed.name, changed.segments, rows)
            writer.finish({**header, "fingerprint": self._fingerprint})

    def changes(self) -> Iterator[tuple[Changed, Iterator[tuple[int, pa.RecordBatch]]]]:
        """Yield each changed table and its new rows, in order, with the number of the segment that they replace.

        With a span, these are its own rows, also those in the segments at its ends, which it shares with other spans.
        """
        for change in self._changes.values():
            loaded = change.loaded
            changed = Changed(change.shape.name, change.shape.columns, (*loaded.segments,), (*loaded.given,))
            yield changed, self._rows(change)

    # --- finding -----------------------------------------------------------------------------------------------

    def _stored(self, shape: Shape) -> Stored | None:
        if not self.here or self._reader is None or (stored := self._reader.tables.get(shape.name)) is None:
            return None
        if dict(stored.columns) != dict(shape.columns):
            raise FormatInvalid("the checkpoint is of inputs with other columns; reset the dataset to rebuild its data")
        return stored

    def _find(self, shape: Shape, stored: Stored, keys: str) -> list[int]:
        """Return the segments that can hold these keys: the last one before a key, and those that begin with it."""
        index = self._indexed(shape, stored)
        key = sort_key([f"i.{name}" for name in shape.key])
        wanted = sort_key([f"k.{name}" for name in shape.key])
        firsts = f"SELECT {SEGMENT}, {key} AS {_SORT} FROM {index} i"
        lasts = f"SELECT max({SEGMENT}) AS {SEGMENT}, {_SORT} FROM ({firsts}) GROUP BY {_SORT}"
        asked = f"SELECT {wanted} AS {_SORT} FROM {keys} k"
        found = self._session.table(
            f"SELECT DISTINCT {SEGMENT} FROM (SELECT coalesce(i.{SEGMENT}, 0) AS {SEGMENT} FROM ({asked}) k "
            f"ASOF LEFT JOIN ({lasts}) i ON k.{_SORT} > i.{_SORT} UNION ALL "
            f"SELECT i.{SEGMENT} FROM ({asked}) k JOIN ({firsts}) i ON k.{_SORT} = i.{_SORT})"
        )
        numbers: list[Any] = found.column(0).to_pylist()
        return sorted(numbers)

    def _indexed(self, shape: Shape, stored: Stored) -> str:
        numbered = stored.index.append_column(SEGMENT, pa.array(range(stored.index.num_rows), pa.int64()))
        name = self._session.register("index", numbered)
        columns = [f"{column}::{kind} AS {column}" for column, kind in shape.columns.items()]
        return self._session.view("index", f"SELECT {listed(columns)}, {SEGMENT} FROM {name}")

    def _load(self, shape: Shape, stored: Stored, numbers: Sequence[int]) -> str:
        assert self._reader is not None, "there is a table in it"
        reader = self._reader
        schema = stored.index.select(list(shape.columns)).schema.append(pa.field(SEGMENT, pa.int64()))

        def batches() -> Iterator[pa.RecordBatch]:
            for number, batch in reader.segments(shape.name, numbers):
                there = pa.repeat(pa.scalar(number, pa.int64()), batch.num_rows)
                yield pa.RecordBatch.from_arrays([*batch.columns, there], schema=schema)

        name = self._session.register("stored", pa.RecordBatchReader.from_batches(schema, batches()))
        columns = [f"{column}::{kind} AS {column}" for column, kind in shape.columns.items()]
        loaded = self._session.keep("stored", f"SELECT {listed(columns)}, {SEGMENT} FROM {name}")
        self._session.forget(name)
        return loaded

    def _own(self, shape: Shape, stored: Stored) -> range:
        """Return the segments that can hold rows of the span, up to the last that begins before its end.

        The first and the last of them can hold rows of other spans as well.
        """
        cuts, count = (self._span.first, self._span.end), stored.index.num_rows
        if self._span == ALL:
            return range(count)
        index = self._indexed(shape, stored)
        key = sort_key([f"i.{name}" for name in shape.key])
        wanted = [
            "NULL::BIGINT" if cut is None else f"max({SEGMENT}) FILTER ({key} < {_blob(cut)})::BIGINT" for cut in cuts
        ]
        first, last = self._session.first(f"SELECT {listed(wanted)} FROM {index} i")
        if self._span.end is None:
            last = count - 1
        return range(first or 0, 0 if last is None else last + 1)

    # --- writing -----------------------------------------------------------------------------------------------

    def _rows(self, change: _Change) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the new rows of the segments that change, and of those at the ends of the span, in order."""
        shape, columns = change.shape, list(change.shape.columns)
        stored = change.loaded.stored
        order = sort_key([f"r.{column}" for column in columns])
        new = (
            f"SELECT {listed([f'r.{column}' for column in columns])}, {order} AS {_SORT} FROM {change.rows} r "
            f"WHERE {self._span.holds(order)}"
        )
        if stored is None:
            rows = self._session.rows(f"SELECT {listed(columns)} FROM ({new}) ORDER BY {_SORT}")
            yield from ((0, batch) for batch in rows)
            return
        index = self._indexed(shape, stored)
        first = sort_key([f"i.{column}" for column in columns])
        firsts = f"SELECT {SEGMENT}, {first} AS {_SORT} FROM {index} i"
        old = [f"s.{column}" for column in columns]
        kept = (
            f"SELECT * FROM (SELECT {listed(old)}, {sort_key(old)} AS {_SORT}, s.{SEGMENT} FROM {change.loaded.rows} s "
            f"ANTI JOIN {change.keys} k ON {same('s', 'k', shape.key)}) WHERE {self._span.holds(_SORT)}"
        )
        routed = (
            f"SELECT n.* , coalesce(i.{SEGMENT}, 0) AS {SEGMENT} FROM ({new}) n "
            f"ASOF LEFT JOIN ({firsts}) i ON n.{_SORT} >= i.{_SORT}"
        )
        query = (
            f"SELECT {listed([*columns, SEGMENT])} FROM (SELECT * FROM ({kept}) UNION ALL SELECT * FROM ({routed})) "
            f"ORDER BY {SEGMENT}, {_SORT}"
        )
        yield from chain.from_iterable(by_segment(batch) for batch in self._session.rows(query))


def require_same(before: Reader | None, fingerprint: str) -> None:
    """Raise FormatInvalid for a checkpoint of another query."""
    if before is not None:
        require_query(before.header.get("fingerprint"), fingerprint)


def require_query(before: object, fingerprint: str) -> None:
    """Raise FormatInvalid unless ``before``, the fingerprint in a checkpoint, is that of the query."""
    if before != fingerprint:
        raise FormatInvalid("the checkpoint is of another query; reset the dataset to rebuild its data")


def by_segment(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows by segment, without their last column, which is the number of the segment."""
    *columns, last = batch.schema.names
    numbers = batch.column(last).to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
    rows = batch.select(columns)
    for start, end in pairwise(cuts):
        if end > start:
            yield int(numbers[start]), rows.slice(start, end - start)


def _blob(value: bytes) -> str:
    return f"unhex('{value.hex()}')"


def sort_key(columns: Sequence[str]) -> str:
    """Return SQL for bytes that sort as the columns do, and begin with those of the first columns."""
    if not columns:
        return "''::BLOB"
    return f"create_sort_key({listed([part for column in (_TEXT, *columns) for part in (column, _ORDER)])})"


_ORDER: Final = "'ASC NULLS FIRST'"
_TEXT: Final = "''"
"""Precedes all columns: for a few short numbers alone, DuckDB returns a number instead of bytes."""


def same(one: str, other: str, columns: Sequence[str]) -> str:
    """Return SQL that tests whether two rows have the same key."""
    parts = [f"{one}.{column} IS NOT DISTINCT FROM {other}.{column}" for column in columns]
    return " AND ".join(parts) or "true"
