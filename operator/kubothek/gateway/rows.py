"""Rows as response bodies, made in workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from kubothek.odf.dataset import Root
from kubothek.sandbox.arrow import as_arrow
from kubothek.sandbox.limited import Ask
from kubothek.sql.read import json_lines
from kubothek.storage import Store
from kubothek.table.log import DatasetLog

_LINES = 4096


def json_part(limit: int, skip: int, rows: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield ``{"data":[…]}`` with a part of the rows, which are JSON already."""
    lead = '{"data":['
    for batch in _part(rows, limit, skip):
        lines = batch.column(0)
        for start in range(0, len(lines), _LINES):
            yield (lead + ",".join(map(str, lines.slice(start, _LINES).to_pylist()))).encode()
            lead = ","
    yield b'{"data":[]}' if lead != "," else b"]}"


def arrow_part(limit: int, skip: int, rows: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield a part of the rows in Arrow's stream format."""
    return as_arrow(pa.RecordBatchReader.from_batches(rows.schema, _part(rows, limit, skip)))


def tail(ask: Ask, store: Store, uuid: str, limit: int, skip: int) -> Iterator[bytes]:
    """Yield the last ``limit`` records of a ledger before its last ``skip``, in the form of :func:`json_part`."""
    root = Root(store, DatasetLog(store, uuid))
    if root.state.readable_schema() is None:
        empty = pa.RecordBatchReader.from_batches(pa.schema([("offset", pa.int64())]), [])
        return json_part(limit, 0, json_lines(empty))
    return json_part(limit, 0, json_lines(root.latest(limit + skip).last(limit, skip)))


def _part(rows: pa.RecordBatchReader, limit: int, skip: int) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        part = batch.slice(skip, limit)
        skip, limit = 0, limit - part.num_rows
        yield part
        if not limit:
            return
