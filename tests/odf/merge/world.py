"""A small ledger: records merged, numbered, written as slices and into a table, and committed; and what it should be.

The model is Python lists and says what the strategies mean (ODF 0.34.1, "Merge Strategies") one record at a time.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.errors import DatasetNotFound
from kubothek.odf.merge import RETRACTS, Merged, merge
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
)
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view import History, Part, ViewChange, ViewWriter, as_of, rebuild, seen_of, wanted_indices
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import Change, DatasetLog, Operation, Snapshot, Transaction
from kubothek.table.log.history.snapshot import snapshot_of
from kubothek.table.scan.read import scan
from kubothek.table.scratch import Scratch

START = datetime(2024, 1, 1, tzinfo=UTC)
MS: pa.DataType = pa.timestamp("ms", "UTC")
Record = dict[str, Any]


def columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in types.items()])


def moment(number: int) -> datetime:
    return START + timedelta(minutes=number)


def canonical(value: Any) -> Any:
    """Equal for what the strategies take for equal: NaN is NaN, 0.0 is -0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list | tuple):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return tuple((name, canonical(each)) for name, each in sorted(value.items()))
    return value


def shown(rows: Iterable[Record], *names: str) -> list[tuple[Any, ...]]:
    """Records as they compare; of these columns, or all but the offset and the system time."""
    return [
        tuple(canonical(row[n]) for n in (names or [n for n in row if n not in ("offset", "system_time")]))
        for row in rows
    ]


def a_set(rows: Iterable[Record], *names: str) -> list[tuple[Any, ...]]:
    return sorted(shown(rows, *names), key=repr)


_MERGES_A_DATABASE = 25
_opened: dict[int, tuple[Scratch, int]] = {}


def _scratch(in_memory: int) -> Scratch:
    """Several merges share a database, because opening one takes as long as a merge of a few rows."""
    scratch, merges = _opened.get(in_memory, (None, 0))
    if scratch is None or merges == _MERGES_A_DATABASE:
        close_databases()
        scratch, merges = Scratch(memory="256MB", in_memory=in_memory), 0
    _opened[in_memory] = scratch, merges + 1
    return scratch


def close_databases() -> None:
    """Close the databases of all merges so far."""
    for scratch, _ in _opened.values():
        scratch.__exit__(None, None, None)
    _opened.clear()


@dataclass
class World:
    """One ledger. ``data``: the columns beside the common ones; ``types``: of offsets and operations."""

    store: Store
    data: pa.Schema
    layout: Layout = field(default_factory=Layout)
    table: bool = True
    names: Vocabulary = field(default_factory=Vocabulary)
    in_memory: int = 1 << 20
    types: tuple[pa.DataType, pa.DataType] = (pa.int64(), pa.int32())
    parts: list[Part] = field(default_factory=list)
    uuid: str = "ledger"

    def __post_init__(self) -> None:
        self.log = DatasetLog(self.store, self.uuid)
        self.next = self.times = 0
        self.keyed_by: tuple[str, ...] | None = None

    @property
    def columns(self) -> pa.Schema:
        return pa.schema([pa.field(self.names.event_time, MS), *self.data])

    @property
    def schema(self) -> pa.Schema:
        own = [
            pa.field(self.names.offset, self.types[0]),
            pa.field(self.names.op, self.types[1], nullable=False),
            pa.field(self.names.system_time, MS, nullable=False),
        ]
        return pa.schema([*own, *self.columns])

    @property
    def snapshot(self) -> Snapshot:
        try:
            return self.log.snapshot()
        except DatasetNotFound:
            return snapshot_of(self.log.journal, None)

    @property
    def history(self) -> History:
        return History(self.store, self.parts, self.names, self.schema if self.parts else None, self.next)

    def batch(self, rows: Sequence[Record]) -> pa.Table:
        """The records, with a column of operations if any has one."""
        schema = self.columns
        if any(self.names.op in row for row in rows):
            schema = schema.append(pa.field(self.names.op, self.types[1]))
        missing = {self.names.op: 0}
        columns = [pa.array([row.get(f.name, missing.get(f.name)) for row in rows], f.type) for f in schema]
        return pa.table(columns, schema=schema)

    # --- what a root does -----------------------------------------------------------------------------------------

    def merged(self, strategy: MergeStrategy, rows: Sequence[Record] | pa.Table) -> tuple[list[Record], Merged]:
        """What a merge gives, without writing it."""
        with self.scratch() as scratch:
            found = self.merge(strategy, rows, scratch)
            return found.rows.read_all().to_pylist(), found

    def ingest(self, strategy: MergeStrategy, rows: Sequence[Record] | pa.Table, rows_a_slice: int = 1000) -> int:
        """One commit; the number of records that it brought."""
        self.times += 1
        with self.scratch() as scratch:
            found = self.merge(strategy, rows, scratch)
            if found.rows_in_all or found.keyed_by:
                self.keyed_by = found.keyed_by
            if not found.rows_in_all:
                return 0
            pieces = list(self.numbered(found))
            assert sum(found.counts.values()) == sum(piece.num_rows for piece in pieces)
            self._slices(pa.Table.from_batches(pieces), rows_a_slice)
            if self.table:
                self.write(pieces, wanted_indices(strategy, self.schema, self.layout.partition_on))
        return found.rows_in_all

    def write(self, numbered: Sequence[pa.RecordBatch], wanted: Mapping[str, IndexKind] | None = None) -> None:
        """What records do to the table, committed."""
        with ViewWriter(
            self.store,
            self.snapshot,
            schema=self.schema,
            vocabulary=self.names,
            layout=self.layout,
            wanted=wanted,
        ) as view:
            for batch in numbered:
                view.write(batch)
            self.commit(view.finish())

    def commit(self, made: ViewChange) -> None:
        started = self.log.begin(f"commit {self.snapshot.version}", "0" * 64)
        assert isinstance(started, Transaction)
        started.commit(Change(operation=Operation.APPEND, **made.fields()))

    def rebuilt(self) -> None:
        """The table made anew."""
        with self.scratch() as scratch:
            self.commit(rebuild(self.store, self.snapshot, self.history, scratch))

    def scratch(self) -> AbstractContextManager[Scratch]:
        return nullcontext(_scratch(self.in_memory))

    def merge(self, strategy: MergeStrategy, rows: Sequence[Record] | pa.Table, scratch: Scratch) -> Merged:
        table = rows if isinstance(rows, pa.Table) else self.batch(rows)
        return merge(
            strategy,
            lambda: table.to_reader(max_chunksize=3 if table.num_rows < 100 else None),
            seen_of(self.store, self.snapshot, self.history, scratch, table=self.table, keyed_by=self.keyed_by),
            vocabulary=self.names,
            source_event_time=self.now,
            scratch=scratch,
        )

    @property
    def now(self) -> datetime:
        return moment(1000 + self.times)

    def numbered(self, found: Merged) -> Iterator[pa.RecordBatch]:
        schema = self.schema.append(pa.field(RETRACTS, pa.int64()))
        at = self.next
        for batch in found.rows:
            offsets: Any = pa.array(range(at, at + batch.num_rows), self.types[0])
            op = batch.column(0).cast(self.types[1])
            times = pa.array([self.now] * batch.num_rows, MS)
            yield pa.RecordBatch.from_arrays([offsets, op, times, *batch.columns[1:]], schema=schema)
            at += batch.num_rows

    def _slices(self, records: pa.Table, rows: int) -> None:
        records = records.drop_columns([RETRACTS])
        for start in range(0, records.num_rows, rows):
            piece, buffer = records.slice(start, rows), io.BytesIO()
            pq.write_table(piece, buffer, version="1.0", store_schema=False)
            physical = Multihash.sha3(buffer.getvalue())
            key = f"{self.uuid}-odf/data/{physical}"
            self.store.put(key, buffer.getvalue())
            first, last = self.next, self.next + piece.num_rows - 1
            self.parts.append(
                Part(key=key, start=first, end=last, vocabulary=self.names, system_time=self.now, block=physical)
            )
            self.next = last + 1

    # --- what is there --------------------------------------------------------------------------------------------

    def records(self) -> list[Record]:
        """All that was ever written, from the slices."""
        batches = self.history.scan(self.schema.names) if self.parts else []
        return [row for batch in batches for row in batch.to_pylist()]

    def shown_by_table(self) -> list[Record]:
        """The table, by offset, in the types of slices, with its columns in their order."""
        with self.scratch() as scratch:
            rows = as_of(self.history, scratch, table=self.snapshot).read_all().sort_by(self.names.offset)
        assert rows.num_rows == scan(self.store, self.snapshot).read_all().num_rows
        return rows.to_pylist()

    def shown_by_slices(self) -> list[Record]:
        """The same from the slices alone."""
        with self.scratch() as scratch:
            return as_of(self.history, scratch).read_all().to_pylist()


# --- the model ------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The strategies, one record at a time."""

    records: list[Record] = field(default_factory=list)

    def ingest(self, strategy: MergeStrategy, rows: Sequence[Record], now: datetime) -> list[Record]:
        """The records that come, with their operations."""
        match strategy:
            case MergeStrategyAppend():
                new = [{"op": 0, **row} for row in _by_time(rows)]
            case MergeStrategyLedger():
                new = [{"op": 0, **row} for row in _by_time(self._unseen(strategy.primary_key, rows))]
            case MergeStrategySnapshot():
                new = self._differences(strategy, rows, now)
            case MergeStrategyUpsertStream():
                new = self._upserts(strategy.primary_key, rows, now)
            case MergeStrategyChangelogStream():
                new = self._changes(strategy.primary_key, rows)
            case _:
                raise AssertionError(strategy)
        filled = [{**row, "event_time": row["event_time"] or now} for row in new]
        self.records += filled
        return filled

    def state(self) -> list[Record]:
        """What stands: retractions take back the last equal record."""
        standing: list[Record] = []
        for record in self.records:
            if record["op"] in (0, 3):
                standing.append(record)
                continue
            alike = [n for n, each in enumerate(standing) if _exactly(each) == _exactly(record)]
            del standing[alike[-1]]
        return standing

    def _unseen(self, key: Sequence[str], rows: Sequence[Record]) -> list[Record]:
        seen = {_key(record, key) for record in self.records}
        found = []
        for row in rows:
            if _key(row, key) not in seen:
                seen.add(_key(row, key))
                found.append(row)
        return found

    def _differences(self, strategy: MergeStrategySnapshot, rows: Sequence[Record], now: datetime) -> list[Record]:
        key = strategy.primary_key
        last = {_key(record, key): record for record in self.records}
        state = {k: record for k, record in last.items() if record["op"] in (0, 3)}
        new = {_key(row, key): row for row in rows}
        found = []
        for each in {**state, **new}:
            if each not in new:
                found.append({**state[each], "op": 1})
            elif each not in state:
                found.append({"op": 0, **new[each]})
            elif self._changed(strategy, state[each], new[each]):
                found += [{**state[each], "op": 2}, {"op": 3, **new[each]}]
        return sorted(found, key=lambda row: (_sortable(row, key), row["op"]))

    def _upserts(self, key: Sequence[str], rows: Sequence[Record], now: datetime) -> list[Record]:
        """Each event is compared with the record that its key has then."""
        state = self._last(key)
        found: list[Record] = []
        for row in rows:
            of_key, new = _key(row, key), {**row, "op": 0}
            old = state.get(of_key)
            if row.get("op") == 1:
                if old is not None:
                    found.append({**old, "op": 1})
                    state[of_key] = None
            elif old is None:
                state[of_key] = {**new, "event_time": row["event_time"] or now}
                found.append(new)
            elif self._changed(MergeStrategySnapshot(primary_key=tuple(key)), old, new):
                found += [{**old, "op": 2}, {**new, "op": 3}]
                state[of_key] = {**new, "event_time": row["event_time"] or now}
        order = sorted({_key(row, key): row for row in rows}.values(), key=lambda row: _sortable(row, key))
        places = {_key(row, key): place for place, row in enumerate(order)}
        return sorted(found, key=lambda row: places[_key(row, key)])

    def _changes(self, key: Sequence[str], rows: Sequence[Record]) -> list[Record]:
        """The events as they come; what retracts has the record that it retracts."""
        state = self._last(key)
        found = []
        for row in rows:
            of_key = _key(row, key)
            found.append(row if row["op"] in (0, 3) else {**(state[of_key] or {}), "op": row["op"]})
            state[of_key] = row if row["op"] in (0, 3) else None
        return found

    def _last(self, key: Sequence[str]) -> dict[tuple[Any, ...], Record | None]:
        return {_key(record, key): record if record["op"] in (0, 3) else None for record in self.records}

    def _changed(self, strategy: MergeStrategySnapshot, old: Record, new: Record) -> bool:
        compared = strategy.compare_columns or [name for name in new if name not in strategy.primary_key]
        return any(
            canonical(old[name]) != canonical(new[name])
            for name in compared
            if name != "op" and (name != "event_time" or new["event_time"] is not None)
        )


def _by_time(rows: Sequence[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: (row["event_time"] is not None, row["event_time"] or START))


def _key(row: Record, key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(canonical(row[name]) for name in key)


def _sortable(row: Record, key: Sequence[str]) -> tuple[Any, ...]:
    """NULL last, NaN before it."""
    found = []
    for value in _key(row, key):
        rank = 2 if value is None else 1 if value == "NaN" else 0
        found.append((rank, "" if rank else value))
    return tuple(found)


def _exactly(record: Record) -> str:
    return repr([(name, value) for name, value in record.items() if name != "op"])
