"""Small ledgers in memory, cut into runs, and what the outputs of the runs add up to."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from kubothek.odf import DatasetId, Timestamp, Vocabulary
from kubothek.odf.spec.sources import SqlQueryStep, TemporalTable, TransformSql
from kubothek.odf.transform import TransformInput, TransformRequest, TransformResult, execute

Row = tuple[Any, ...]
NAMES = Vocabulary()
START = datetime(2026, 1, 1, tzinfo=UTC)
_COMMON = [("offset", pa.int64()), ("op", pa.int32()), ("system_time", pa.timestamp("ms", "UTC"))]


def at(hours: float) -> datetime:
    """So long after the first moment of these tests."""
    return START + timedelta(hours=hours)


def sql(*queries: str | tuple[str, str], engine: str = "duckdb", tables: Sequence[TemporalTable] = ()) -> TransformSql:
    """A transformation of steps; all but the last are pairs of alias and query."""
    steps = [
        SqlQueryStep(query=each) if isinstance(each, str) else SqlQueryStep(alias=each[0], query=each[1])
        for each in queries
    ]
    return TransformSql(engine=engine, queries=tuple(steps), temporal_tables=tuple(tables) or None)


@dataclass
class Stream:
    """A ledger: ``columns`` are event_time and data, ``records`` are (op, values).

    ``watermarks``  (number of records after which the block ends, watermark)
    """

    name: str
    columns: list[tuple[str, pa.DataType]]
    records: list[tuple[int, Row]] = field(default_factory=list)
    watermarks: list[tuple[int, datetime]] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*_COMMON, *self.columns])

    def table(self, first: int, end: int) -> pa.Table:
        """Records of an interval as a slice has them."""
        chosen = self.records[first:end]
        columns: list[Any] = [list(range(first, first + len(chosen))), [op for op, _ in chosen]]
        columns.append([START] * len(chosen))
        columns += [[values[n] for _, values in chosen] for n in range(len(self.columns))]
        arrays = [pa.array(values, kind.type) for values, kind in zip(columns, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)

    def standing(self, end: int | None = None) -> list[Row]:
        """What the records amount to."""
        counted: Counter[Row] = Counter()
        for op, values in self.records[:end]:
            counted[values] += 1 if op in (0, 3) else -1
        assert all(count >= 0 for count in counted.values())
        return list(counted.elements())

    def state(self, end: int | None = None) -> pa.Table:
        """The same as plain SQL sees it."""
        rows = self.standing(end)
        kinds = [
            (name, pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind) for name, kind in self.columns
        ]
        naive = [
            tuple(value.replace(tzinfo=None) if isinstance(value, datetime) else value for value in row) for row in rows
        ]
        arrays = [pa.array([row[n] for row in naive], kind) for n, (_, kind) in enumerate(kinds)]
        return pa.table(arrays, schema=pa.schema(kinds))


def run(
    transform: TransformSql,
    streams: Sequence[Stream],
    cuts: Sequence[Mapping[str, int]],
    *,
    threads: int | None = None,
    checkpoints: list[bytes] | None = None,
    first: bytes | None = None,
    by: Callable[..., TransformResult] = execute,
) -> list[pa.Table]:
    """The output of each run; a cut says how many records of each input have been read after it.

    ``checkpoints``  gets what each run left
    ``first``        the checkpoint before the first run
    ``by``           runs each request
    """
    done = {stream.name: 0 for stream in streams}
    before: dict[str, Timestamp | None] = {stream.name: None for stream in streams}
    outputs: list[pa.Table] = []
    watermark: Timestamp | None = None
    with tempfile.TemporaryDirectory() as directory:
        checkpoint: Path | None = None
        if first is not None:
            checkpoint = Path(directory) / "checkpoint-first"
            checkpoint.write_bytes(first)
        for number, cut in enumerate(cuts):
            inputs = [
                _input(stream, done[stream.name], cut[stream.name], before, n) for n, stream in enumerate(streams)
            ]
            new, scratch = Path(directory) / f"checkpoint-{number}", Path(directory) / f"scratch-{number}"
            scratch.mkdir()
            result = by(
                TransformRequest(
                    transform=transform,
                    vocabulary=NAMES,
                    inputs=inputs,
                    system_time=Timestamp.of(at(1000 + number)),
                    previous_watermark=watermark,
                    checkpoint=checkpoint,
                    new_checkpoint=new,
                    scratch=scratch,
                ),
                threads=threads,
            )
            outputs.append(result.rows.read_all())
            assert new.exists() == result.checkpoint
            checkpoint = new if result.checkpoint else None
            if checkpoints is not None and checkpoint is not None:
                checkpoints.append(checkpoint.read_bytes())
            watermark = result.watermark
            for each in inputs:
                before[each.query_alias] = each.watermarks[-1][1] if each.watermarks else before[each.query_alias]
            done = dict(cut)
    return outputs


def given(streams: Sequence[Stream]) -> list[TransformInput]:
    """All of them, as one run takes them."""
    before: dict[str, Timestamp | None] = {stream.name: None for stream in streams}
    return [_input(stream, 0, len(stream.records), before, n) for n, stream in enumerate(streams)]


def _input(stream: Stream, first: int, end: int, before: Mapping[str, Timestamp | None], number: int) -> TransformInput:
    blocks, watermarks, start = [], [], first
    marks = [(at_, mark) for at_, mark in stream.watermarks if first < at_ <= end]
    for position, mark in marks:
        moment = Timestamp.of(at(position))
        if position > start:
            blocks.append((moment, start, position - 1))
        watermarks.append((moment, Timestamp.of(mark)))
        start = position
    if end > start:
        blocks.append((Timestamp.of(at(end)), start, end - 1))
    return TransformInput(
        id=DatasetId(bytes([number]) * 32),
        alias=stream.name,
        query_alias=stream.name,
        vocabulary=NAMES,
        schema=stream.schema,
        rows=(lambda: stream.table(first, end).to_reader()) if end > first else None,
        watermarks=watermarks,
        blocks=blocks,
        previous_watermark=before[stream.name],
    )


def whole(streams: Sequence[Stream]) -> list[dict[str, int]]:
    """All in one run."""
    return [{stream.name: len(stream.records) for stream in streams}]


def batches(streams: Sequence[Stream], size: int) -> list[dict[str, int]]:
    """So many records of each input in a run."""
    most = max(len(stream.records) for stream in streams)
    ends = [*range(size, most, size), most]
    return [{stream.name: min(end, len(stream.records)) for stream in streams} for end in ends]


def added_up(outputs: Sequence[pa.Table]) -> Counter[Row]:
    """The state that the records of all runs amount to; asserts that none takes back what is not there (OP-02)."""
    counted: Counter[Row] = Counter()
    for output in outputs:
        rows = list(zip(*(column.to_pylist() for column in output.columns), strict=True))
        for at_, (op, *values) in enumerate(rows):
            counted[freeze(values)] += 1 if op in (0, 3) else -1
            assert counted[freeze(values)] >= 0, (op, values)
            assert (op == 2) == (at_ + 1 < len(rows) and rows[at_ + 1][0] == 3), "halves of a correction are neighbours"
    return +counted


def freeze(values: Sequence[Any]) -> Row:
    """Rows that can be counted; NaN equals itself."""
    return tuple(
        "NaN"
        if value != value
        else tuple(value)
        if isinstance(value, list)
        else repr(value)
        if isinstance(value, dict)
        else value
        for value in values
    )


def plainly(query: str, streams: Sequence[Stream]) -> Counter[Row]:
    """What plain SQL makes of the states of the inputs; its first column is the event time."""
    with duckdb.connect(":memory:") as database:
        for stream in streams:
            database.register(stream.name, stream.state())
        found = database.sql(query).to_arrow_table()
    columns = [
        column.cast(pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
        if pa.types.is_timestamp(column.type)
        else column
        for column in found.columns
    ]
    return Counter(freeze(row) for row in zip(*(column.to_pylist() for column in columns), strict=True))
