"""Records of the inputs as a weighted table: +1 for what an input adds, -1 for what it retracts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kubothek.errors import TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.duckdb_rows import cast, for_duckdb
from kubothek.odf.transform.allowed import HIDDEN
from kubothek.odf.transform.contract import Records
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.validation.row_checks import APPEND, CORRECT_TO
from kubothek.odf.validation.state import Vocabulary

WEIGHT: Final = "__weight"
INPUT: Final = "__input"
RECORD: Final = "__record"
HORIZON: Final = "__horizon"
"""In microseconds: what ends at or before this is late for the row; NULL: nothing is."""
KEY: Final = "__key"


def visible(schema: pa.Schema, vocabulary: Vocabulary) -> list[str]:
    """Return the columns that queries see: all but offset, op and system time."""
    return [name for name in schema.names if name not in vocabulary.names[:3]]


def check_input(alias: str, schema: pa.Schema, vocabulary: Vocabulary) -> None:
    """Raise TransformInvalid for columns that SQL cannot tell apart, reserved names or a missing event time."""
    names = visible(schema, vocabulary)
    folded = [name.casefold() for name in names]
    if alike := [name for name in names if folded.count(name.casefold()) > 1]:
        raise TransformInvalid(f"input {alias}: columns {' and '.join(alike)} are one to SQL, which sees no case")
    if own := [name for name in names if name.startswith(HIDDEN)]:
        raise TransformInvalid(f"input {alias}: column {own[0]}: names that begin with {HIDDEN} are the engine's own")
    if vocabulary.event_time not in names:
        raise TransformInvalid(f"input {alias} has no column {vocabulary.event_time} for its event times")


def scan(
    session: Session,
    position: int,
    schema: pa.Schema,
    vocabulary: Vocabulary,
    rows: Records | None,
    blocks: Sequence[tuple[int, int | None]],
    *,
    again: bool,
) -> str:
    """Return the records of one input as a relation.

    ``blocks``  (first offset, horizon), if records can be late
    ``again``   whether it is read more than once
    A correction is one record: -1 and +1 under the offset of its first half (OP-02).
    """
    inside = pa.schema([pa.field(field.name, for_duckdb(field.type)) for field in schema])
    batches = iter(rows()) if rows is not None else iter(())
    reader = pa.RecordBatchReader.from_batches(inside, _cast(batches, inside))
    name = session.register("records", reader)
    offset, op = quoted(vocabulary.offset), quoted(vocabulary.op)
    columns = [quoted(column) for column in visible(schema, vocabulary)]
    hidden = [
        f"CASE WHEN {op} IN ({APPEND}, {CORRECT_TO}) THEN 1 ELSE -1 END::BIGINT AS {WEIGHT}",
        f"{position}::INTEGER AS {INPUT}",
        f"({offset}::BIGINT - ({op} = {CORRECT_TO})::BIGINT) AS {RECORD}",
        f"{HORIZON if blocks else 'NULL::BIGINT'} AS {HORIZON}",
    ]
    query = f"SELECT {listed([*columns, *hidden])} FROM {_judged(session, name, offset, blocks)}"
    return session.keep("input", query) if again else session.view("input", query)


def _judged(session: Session, name: str, offset: str, blocks: Sequence[tuple[int, int | None]]) -> str:
    """Join each record with the horizon of its block."""
    if not blocks:
        return name
    firsts, horizons = zip(*blocks, strict=True)
    table = pa.table({"__first": pa.array(firsts, pa.int64()), HORIZON: pa.array(horizons, pa.int64())})
    return f"{name} r ASOF JOIN {session.register('blocks', table)} b ON r.{offset} >= b.__first"


def _cast(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (cast(batch, schema) for batch in batches)
