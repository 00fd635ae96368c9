"""Records of a delta: operations, their order, and the types of files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.errors import InputError, TransformInvalid
from kubothek.in_memory_database import quoted
from kubothek.odf.sources.readers.coerce import uuids_of
from kubothek.odf.transform.delta import Delta
from kubothek.odf.transform.scan import INPUT, KEY, RECORD, WEIGHT
from kubothek.odf.transform.session import Session, listed
from kubothek.odf.transform.state import sort_key
from kubothek.odf.validation.columns import column_problems
from kubothek.odf.validation.row_checks import APPEND, CORRECT_FROM, CORRECT_TO, RETRACT
from kubothek.odf.validation.state import Vocabulary

OP: Final = "__op"
ORDER: Final = "__order"
"""A column of bytes that sort the records of different keys; records of one key are already in order."""
BATCH_ROWS: Final = 65_536
"""Rows of each batch of an output except the last; the encoding of a slice depends on it."""
_ORIGIN: Final = [INPUT, RECORD]
_MOMENT: Final = pa.timestamp("ms", "UTC")
_CASTS: Final = {"HUGEINT": "BIGINT", "UHUGEINT": "UBIGINT", "TIMESTAMP WITH TIME ZONE": "TIMESTAMP"}


class Output:
    """The output of the last query; ``schema`` is [event_time, data…]. Raises TransformInvalid for invalid columns."""

    def __init__(self, session: Session, delta: Delta, vocabulary: Vocabulary) -> None:
        self._session = session
        self._delta = delta
        self._names = _ordered(list(delta.columns), vocabulary)
        self._items = [_item(name, delta.columns[name]) for name in self._names]
        relation = session.relation(f"SELECT {listed(self._items)} FROM {delta.name} LIMIT 0")
        kinds = list(map(str, relation.types))
        self._uuids = [kind == "UUID" for kind in kinds]
        fields = []
        for name, kind, field in zip(self._names, kinds, relation.to_arrow_table().schema, strict=True):
            fields.append(pa.field(name, _type(kind, field.type, moment=name == vocabulary.event_time)))
        self.schema = pa.schema(fields)
        _check(self.schema, vocabulary)

    def rows(self, op: str) -> pa.RecordBatchReader:
        """Return the records ``[op, event_time, data…]`` in their order, to be read once."""
        schema = pa.schema([pa.field(op, pa.int32(), nullable=False), *self.schema])
        query = self._of_keys() if self._delta.keyed else self._of_records()
        shaped = self._shaped(self._session.rows(query), schema)
        return pa.RecordBatchReader.from_batches(schema, even(shaped, schema))

    def rows_with_order(self, op: str) -> pa.RecordBatchReader:
        """Return the rows of a keyed answer, to be merged with other parts' by the last column, :data:`ORDER`."""
        plain = pa.schema([pa.field(op, pa.int32(), nullable=False), *self.schema])
        schema = plain.append(pa.field(ORDER, pa.binary()))
        batches = self._session.rows(self._of_keys(f", {_MERGED} AS {ORDER}"))

        def shaped() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                *columns, order = batch.columns
                (made,) = self._shaped(iter([pa.RecordBatch.from_arrays(columns, names=plain.names)]), plain)
                yield pa.RecordBatch.from_arrays([*made.columns, order], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, shaped())

    def origins(self, wanted: str, named: Mapping[str, str]) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
        """Yield ``[event_time, data…]`` as :meth:`rows` does, with ``__input`` and ``__record``, in the order of these.

        ``wanted``  a relation; only rows that are in it are yielded
        ``named``   the columns that are compared, with their names in ``wanted``
        """
        alike = " AND ".join(
            f"{item} IS NOT DISTINCT FROM w.{named[name]}"
            for name, item in zip(self._names, self._items, strict=True)
            if name in named
        )
        query = (
            f"SELECT {listed([*self._items, INPUT, RECORD])} FROM {self._delta.name} SEMI JOIN {wanted} w "
            f"ON {alike or 'true'} ORDER BY {INPUT}, {RECORD}"
        )
        count = len(self._names)
        for batch in self._session.rows(query):
            columns = [
                _cast(uuids_of(column) if uuid else column, field.type)
                for column, field, uuid in zip(batch.columns[:count], self.schema, self._uuids, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema), pa.table(batch.columns[count:], _ORIGIN)

    def _shaped(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        uuids = [False, *self._uuids]
        for batch in batches:
            columns = [
                _cast(uuids_of(column) if uuid else column, field.type)
                for column, field, uuid in zip(batch.columns, schema, uuids, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    # --- records of records ------------------------------------------------------------------------------------

    def _of_records(self) -> str:
        """Return the query in record order: sorted by time, a retraction could precede its record (OP-02)."""
        names = [f"c{n}" for n in range(len(self._names))]
        items = [f"{item} AS {name}" for item, name in zip(self._items, names, strict=True)]
        kept = self._session.keep(
            "changes",
            f"SELECT {listed([*items, WEIGHT, INPUT, RECORD])} FROM {self._delta.name}",
        )
        (least,) = self._session.first(f"SELECT coalesce(min({WEIGHT}), 1) FROM {kept}")
        if least == 1:
            order = "" if self._delta.whole else f" ORDER BY {listed([INPUT, RECORD, *_sorted(names)])}"
            return f"SELECT {APPEND} AS {OP}, {listed(names)} FROM {kept}{order}"
        net = (
            f"SELECT {listed(names)}, sum({WEIGHT})::BIGINT AS {WEIGHT}, {INPUT}, {RECORD} FROM {kept} "
            f"GROUP BY {listed([*names, INPUT, RECORD])} HAVING sum({WEIGHT}) <> 0"
        )
        pair = f"PARTITION BY {INPUT}, {RECORD}"
        marked = (
            f"SELECT *, sum(greatest({WEIGHT}, 0)) OVER ({pair}) = 1 AND sum(greatest(-{WEIGHT}, 0)) OVER ({pair}) = 1 "
            f"AS __pair FROM ({net})"
        )
        return (
            f"SELECT {_operation('__pair')} AS {OP}, {listed(names)} FROM ({marked}), range(abs({WEIGHT})) "
            f"ORDER BY {listed([INPUT, RECORD, f'sign({WEIGHT})', *_sorted(names)])}"
        )

    # --- records of keys ---------------------------------------------------------------------------------------

    def _of_keys(self, more: str = "") -> str:
        """Return the query by event time, then key; the n-th removed and n-th added row of a key are a correction."""
        names = [f"c{n}" for n in range(len(self._names))]
        items = [f"{item} AS {name}" for item, name in zip(self._items, names, strict=True)]
        net = (
            f"SELECT {listed(names)}, sum({WEIGHT})::BIGINT AS {WEIGHT}, {KEY} FROM "
            f"(SELECT {listed([*items, WEIGHT, KEY])} FROM {self._delta.name}) "
            f"GROUP BY {listed([*names, KEY])} HAVING sum({WEIGHT}) <> 0"
        )
        numbered = (
            f"SELECT *, row_number() OVER (PARTITION BY {KEY}, {WEIGHT} > 0 ORDER BY {listed(_sorted(names))}, __copy) "
            f"AS __n FROM (SELECT *, unnest(range(abs({WEIGHT}))) AS __copy FROM ({net}))"
        )
        pair = f"PARTITION BY {KEY}, __n"
        marked = (
            f"SELECT *, {KEY} IS NOT NULL AND count(*) OVER ({pair}) = 2 AS __pair, "
            f"arg_max(c0, {WEIGHT} > 0) OVER ({pair}) AS __time, "
            f"arg_max(c0 IS NULL, {WEIGHT} > 0) OVER ({pair}) AS __none "
            f"FROM ({numbered})"
        )
        order = [
            f"{_NONE} DESC",
            f"{_TIME} ASC NULLS FIRST",
            KEY,
            "__n",
            f"sign({WEIGHT})",
            *_sorted(names),
        ]
        columns = listed([f"{_operation('__pair')} AS {OP}", *names])
        return f"SELECT {columns}{more} FROM ({marked}) ORDER BY {listed(order)}"


_NONE: Final = "CASE WHEN __pair THEN __none ELSE c0 IS NULL END"
_TIME: Final = "CASE WHEN __pair THEN __time ELSE c0 END"
_MERGED: Final = sort_key([f"NOT ({_NONE})", _TIME, KEY])


def even(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of :data:`BATCH_ROWS`, whatever their batches were."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= BATCH_ROWS:
            table = pa.Table.from_batches(held, schema)
            whole = rows // BATCH_ROWS * BATCH_ROWS
            yield from (_one(table.slice(start, BATCH_ROWS)) for start in range(0, whole, BATCH_ROWS))
            held, rows = table.slice(whole).to_batches(), rows - whole
    if rows:
        yield _one(pa.Table.from_batches(held, schema))


def _one(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _operation(pair: str) -> str:
    return (
        f"CASE WHEN {pair} THEN CASE WHEN {WEIGHT} < 0 THEN {CORRECT_FROM} ELSE {CORRECT_TO} END "
        f"WHEN {WEIGHT} < 0 THEN {RETRACT} ELSE {APPEND} END"
    )


def _sorted(names: Sequence[str]) -> list[str]:
    return [f"{name} ASC NULLS FIRST" for name in names]


def _ordered(names: list[str], vocabulary: Vocabulary) -> list[str]:
    """Return the names with the event time first. Raises TransformInvalid for reserved, duplicate and missing names."""
    folded = [name.casefold() for name in names]
    if vocabulary.event_time not in names:
        raise TransformInvalid(
            f"the last query gives no column {vocabulary.event_time}, the event time of its records; it gives "
            + ", ".join(names)
        )
    if taken := [name for name in names if name in vocabulary.names[:3]]:
        raise TransformInvalid(
            f"the last query gives a column {taken[0]}, which is the ledger's own; name it otherwise"
        )
    if alike := [name for name in names if folded.count(name.casefold()) > 1]:
        raise TransformInvalid(f"the last query gives column {alike[0]!r} twice; name one otherwise with AS")
    return [vocabulary.event_time, *(name for name in names if name != vocabulary.event_time)]


def _item(name: str, kind: str) -> str:
    return f"CAST({quoted(name)} AS {_CASTS[kind]})" if kind in _CASTS else quoted(name)


def _type(kind: str, found: Any, *, moment: bool) -> pa.DataType:
    if kind == "UUID":
        return pa.binary(16)
    if pa.types.is_timestamp(found):
        return _MOMENT if moment else pa.timestamp(found.unit, "UTC")
    if pa.types.is_dictionary(found):
        return pa.string()
    kept: pa.DataType = found
    return kept


def _cast(column: Any, wanted: pa.DataType) -> Any:
    if column.type == wanted:
        return column
    return column.cast(wanted, safe=not pa.types.is_timestamp(wanted))


def _check(schema: pa.Schema, vocabulary: Vocabulary) -> None:
    """Raise TransformInvalid for columns that no slice may have."""
    kind = schema.field(0).type
    if kind not in (_MOMENT, pa.date32()):
        raise TransformInvalid(
            f"column {vocabulary.event_time} is {kind}; event times are timestamps or dates: cast it in the query"
        )
    system = [pa.int64(), pa.int32(), _MOMENT]
    common = [pa.field(name, kind) for name, kind in zip(vocabulary.names[:3], system, strict=True)]
    try:
        problems = list(column_problems(pa.schema([*common, *schema]), vocabulary))
    except InputError as error:
        raise TransformInvalid(str(error)) from error
    if problems:
        column = f"column {problems[0].column}: " if problems[0].column else ""
        raise TransformInvalid(f"the last query: {column}{problems[0].message}; cast it in the query")
