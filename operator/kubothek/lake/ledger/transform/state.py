"""The state of a run's operators: tables by key, of which a run reads and changes those rows whose keys it meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kubothek.lake.errors import FormatInvalid
from kubothek.lake.ledger.transform.checkpoint import Reader, Stored, Writer
from kubothek.lake.ledger.transform.session import Session, listed

SEGMENT: Final = "__segment"
ID: Final = "__id"
_SORT: Final = "__sort"


@dataclass(frozen=True, slots=True)
class Shape:
    """A table of the state: ``columns`` with DuckDB's types, by which its rows are sorted, the first ``keys`` first."""

    name: str
    columns: Mapping[str, str]
    keys: int

    @property
    def key(self) -> list[str]:
        """The columns by which rows are found."""
        return list(self.columns)[: self.keys]


@dataclass(slots=True)
class _Change:
    shape: Shape
    segments: list[int]
    loaded: str | None
    keys: str
    rows: str


class State:
    """What the previous run left, and what this one will leave."""

    def __init__(self, session: Session, path: Path | None, fingerprint: str) -> None:
        self._session = session
        self._reader = Reader(path) if path is not None else None
        self.header: Mapping[str, Any] = self._reader.header if self._reader is not None else {}
        self._fingerprint = fingerprint
        self._loaded: dict[str, tuple[list[int], str | None]] = {}
        self._changes: dict[str, _Change] = {}
        if self._reader is not None and self.header.get("fingerprint") != fingerprint:
            raise FormatInvalid("the checkpoint is of another query: a derivative with a new query is built anew")

    @property
    def used(self) -> bool:
        """Whether an operator has a state."""
        return bool(self._changes)

    def old(self, shape: Shape, keys: str) -> str:
        """The rows under some keys, as a relation: its columns and the ``__id`` of their key.

        ``keys``  a relation with the columns of the key, no two rows alike, and ``__id``
        """
        stored = self._stored(shape)
        if stored is None:
            columns = [f"NULL::{kind} AS {name}" for name, kind in shape.columns.items()]
            self._loaded[shape.name] = ([], None)
            return self._session.keep("old", f"SELECT {listed(columns)}, 0::BIGINT AS {ID} WHERE false")
        numbers = self._find(shape, stored, keys)
        loaded = self._load(shape, stored, numbers)
        self._loaded[shape.name] = (numbers, loaded)
        columns = [f"s.{name}" for name in shape.columns]
        return self._session.keep(
            "old",
            f"SELECT {listed(columns)}, k.{ID} FROM {loaded} s JOIN {keys} k ON {same('s', 'k', shape.key)}",
        )

    def keys(self, shape: Shape) -> str:
        """All keys that there are, as a relation."""
        stored = self._stored(shape)
        if stored is None:
            columns = [f"NULL::{shape.columns[name]} AS {name}" for name in shape.key]
            return self._session.view("keys", f"SELECT {listed(columns) or '1'} WHERE false")
        loaded = self._load(shape, stored, list(range(stored.index.num_rows)))
        return self._session.view("keys", f"SELECT DISTINCT {listed(shape.key) or '1'} FROM {loaded}")

    def put(self, shape: Shape, keys: str, rows: str) -> None:
        """What there will be under the keys for which :meth:`old` was asked, instead of what there was."""
        segments, loaded = self._loaded[shape.name]
        self._changes[shape.name] = _Change(shape, segments, loaded, keys, rows)

    def write(self, path: Path, header: Mapping[str, Any]) -> None:
        """Leave the new state."""
        with Writer(path) as writer:
            for change in self._changes.values():
                self._write(writer, change)
            writer.finish({**header, "fingerprint": self._fingerprint})

    # --- finding -----------------------------------------------------------------------------------------------

    def _stored(self, shape: Shape) -> Stored | None:
        if self._reader is None or (stored := self._reader.tables.get(shape.name)) is None:
            return None
        if dict(stored.columns) != dict(shape.columns):
            raise FormatInvalid("the checkpoint is of inputs with other columns: build the derivative anew")
        return stored

    def _find(self, shape: Shape, stored: Stored, keys: str) -> list[int]:
        """Where rows with these keys can be: the last segment that begins before a key, those that begin with it."""
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

    def _load(self, shape: Shape, stored: Stored, numbers: list[int]) -> str:
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

    # --- writing -----------------------------------------------------------------------------------------------

    def _write(self, writer: Writer, change: _Change) -> None:
        shape, columns = change.shape, list(change.shape.columns)
        table = writer.table(shape.name, shape.columns)
        stored = self._stored(shape)
        order = sort_key([f"r.{column}" for column in columns])
        new = f"SELECT {listed([f'r.{column}' for column in columns])}, {order} AS {_SORT} FROM {change.rows} r"
        if stored is None:
            for batch in self._session.rows(f"SELECT {listed(columns)} FROM ({new}) ORDER BY {_SORT}"):
                table.add(batch)
            table.close()
            return
        assert self._reader is not None, "there is a table in it"
        runs = _runs(change.segments)
        steps = iter(self._steps(change, stored, new, runs))
        waiting = next(steps, None)
        copied = 0
        for number, first in [*sorted(runs.items()), (stored.index.num_rows, stored.index.num_rows)]:
            if copied < number:
                table.copy(self._reader.raw(shape.name, copied, number), stored, copied, number)
            copied = number + 1
            while first == number and waiting is not None and waiting[0] == number:
                table.add(waiting[1])
                waiting = next(steps, None)
        table.close()

    def _steps(
        self, change: _Change, stored: Stored, new: str, runs: Mapping[int, int]
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of segments that change, run by run, each in order."""
        columns = list(change.shape.columns)
        places = pa.table({SEGMENT: list(runs), "__run": list(runs.values())})
        place = self._session.register("runs", places)
        index = self._indexed(change.shape, stored)
        first = sort_key([f"i.{column}" for column in columns])
        firsts = f"SELECT {SEGMENT}, {first} AS {_SORT} FROM {index} i"
        old = [f"s.{column}" for column in columns]
        kept = (
            f"SELECT {listed(old)}, {sort_key(old)} AS {_SORT}, s.{SEGMENT} FROM {change.loaded} s "
            f"ANTI JOIN {change.keys} k ON {same('s', 'k', change.shape.key)}"
        )
        routed = (
            f"SELECT n.* , coalesce(i.{SEGMENT}, 0) AS {SEGMENT} FROM ({new}) n "
            f"ASOF LEFT JOIN ({firsts}) i ON n.{_SORT} >= i.{_SORT}"
        )
        query = (
            f"SELECT {listed(columns)}, __run FROM (SELECT * FROM ({kept}) UNION ALL SELECT * FROM ({routed})) "
            f"JOIN {place} USING ({SEGMENT}) ORDER BY __run, {_SORT}"
        )
        for batch in self._session.rows(query):
            numbers = batch.column(len(columns)).to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1), len(numbers)]
            rows = batch.select(columns)
            for start, end in pairwise(cuts):
                yield int(numbers[start]), rows.slice(start, end - start)


def _runs(segments: Sequence[int]) -> dict[int, int]:
    """For each segment the first of those around it that change as well."""
    found: dict[int, int] = {}
    for number in segments:
        found[number] = found.get(number - 1, number)
    return found


def sort_key(columns: Sequence[str]) -> str:
    """Bytes that sort as the columns do."""
    if not columns:
        return "''::BLOB"
    return f"create_sort_key({listed([part for column in columns for part in (column, _ORDER)])})"


_ORDER: Final = "'ASC NULLS FIRST'"


def same(one: str, other: str, columns: Sequence[str]) -> str:
    """That two rows have one key."""
    parts = [f"{one}.{column} IS NOT DISTINCT FROM {other}.{column}" for column in columns]
    return " AND ".join(parts) or "true"
