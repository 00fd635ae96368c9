"""The new records of one merge, checked and held until their order is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import MergeInvalid, SchemaMismatch
from kubothek.table.carried import Carrier, name_of
from kubothek.table.scratch import Scratch

New: TypeAlias = Callable[[], pa.RecordBatchReader]
"""Returns a new reader of the new records at each call."""
OP: Final = "op"
RETRACTS: Final = "__retracts"
"""The column with the offset of the record that a retraction or the first half of a correction retracts."""
PASSING: Final = -1
"""The value in that column of a record that a later one of the same merge retracts, and of the one that retracts it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Buffered records, with columns named by :class:`Carrier`; ``n`` numbers them.

    ``table``    its name in the database
    ``ordered``  whether they came in the order of their event times, those without one first
    ``op``       the column with their operations, which is none of the columns; None: they have none
    """

    carrier: Carrier
    held: pa.Table
    table: str
    ordered: bool
    op: str | None = None

    @classmethod
    def of(cls, reader: pa.RecordBatchReader, scratch: Scratch, op: str | None = None) -> Self:
        """Buffer the rows of a reader; its first column is the event time, ``op`` that of operations, if it has one."""
        carrier = Carrier(without(reader.schema, op))
        order = Order()
        batches: Iterable[pa.RecordBatch] = map(carrier.carry, reader)
        inside, held_op = carrier.inside, None
        if op is not None and op in reader.schema.names:
            inside, held_op = inside.append(reader.schema.field(op).with_name(OP)), OP
            batches = (_with_operations(batch, carrier, op, inside) for batch in reader)
        held = scratch.hold(order.watched(batches), inside)
        return cls(carrier, held, scratch.register("rows", held), order.kept, held_op)

    @property
    def count(self) -> int:
        """The number of records."""
        return int(self.held.num_rows)

    @property
    def columns(self) -> str:
        """All columns but ``n``, for a SELECT."""
        return ", ".join(self.carrier.inside.names)

    def inside(self, column: str) -> str:
        """Return the internal name of a column."""
        return name_of(self.carrier.schema.get_field_index(column))

    def each_inside(self, columns: Sequence[str]) -> list[str]:
        """Return the internal names of columns."""
        return [self.inside(column) for column in columns]


def without(schema: pa.Schema, name: str | None) -> pa.Schema:
    """Return the columns but for this one."""
    return pa.schema([field for field in schema if field.name != name])


def _with_operations(batch: pa.RecordBatch, carrier: Carrier, op: str, inside: pa.Schema) -> pa.RecordBatch:
    columns = carrier.carry(batch.select(carrier.schema.names)).columns
    return pa.RecordBatch.from_arrays([*columns, batch.column(op)], schema=inside)


class Order:
    """A check whether event times, the first column, are in order; ``kept`` is the result."""

    def __init__(self) -> None:
        self.kept = True
        self._last: Any = None

    def watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches."""
        for batch in batches:
            if batch.num_rows and self.kept:
                self._look(batch.column(0))
            yield batch

    def _look(self, times: Any) -> None:
        first = times.null_count
        missing_first = not first or times.slice(0, first).null_count == first
        given = times.slice(first)
        if not missing_first or (first and self._last is not None):
            self.kept = False
        elif len(given):
            ascending = pc.all(pc.less_equal(given.slice(0, len(given) - 1), given.slice(1))).as_py()
            follows = self._last is None or given[0].as_py() >= self._last
            self.kept = follows and ascending is not False
            self._last = given[-1].as_py()


def check_columns(new: pa.Schema, event_time: str, before: pa.Schema | None) -> None:
    """Raise SchemaMismatch unless records of these columns may follow those with the columns ``before``."""
    if twice := [name for name in new.names if new.names.count(name) > 1]:
        raise SchemaMismatch(f"column {twice[0]!r} occurs more than once; rename or drop the duplicates")
    if event_time not in new.names:
        raise SchemaMismatch(f"the records have no column {event_time!r} for their event times")
    for field in before if before is not None else ():
        if field.name not in new.names:
            raise SchemaMismatch(f"column {field.name!r} ({field.type}) of the ledger is missing in the new records")
        if (found := new.field(field.name).type) != field.type:
            raise SchemaMismatch(
                f"column {field.name!r} is {found} in the new records and {field.type} in the ledger; cast it in "
                "preprocess"
            )


def check_key(new: pa.Schema, primary_key: Sequence[str], strategy: str) -> None:
    """Raise MergeInvalid unless these are columns with plain values, each named once."""
    if not primary_key:
        raise MergeInvalid(f"merge strategy {strategy}: the primary key names no column")
    for column in primary_key:
        if list(primary_key).count(column) > 1:
            raise MergeInvalid(f"merge strategy {strategy}: the primary key names column {column!r} twice")
        check_column(new, column, f"merge strategy {strategy}: the primary key")
        if pa.types.is_nested(found := new.field(column).type):
            raise MergeInvalid(
                f"merge strategy {strategy}: column {column!r} of the primary key is {found}; a key has plain values"
            )


def check_column(new: pa.Schema, column: str, where: str) -> None:
    """Raise MergeInvalid if there is no such column."""
    if column not in new.names:
        raise MergeInvalid(f"{where} names column {column!r}; the new records have {', '.join(map(repr, new.names))}")


def fill(column: Any, moment: datetime) -> Any:
    """Fill missing event times with this moment, or with its day in a column of days."""
    if not column.null_count:
        return column
    moment = moment.astimezone(UTC)
    if pa.types.is_date(column.type):
        return pc.fill_null(column, pa.scalar(moment.date(), column.type))
    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return pc.fill_null(column, pa.scalar(cut, column.type))


def filled(reader: pa.RecordBatchReader, event_time: str, moment: datetime) -> pa.RecordBatchReader:
    """Return the records with :func:`fill` applied."""
    position = reader.schema.get_field_index(event_time)
    field = reader.schema.field(position)
    batches = (batch.set_column(position, field, fill(batch.column(position), moment)) for batch in reader)
    return pa.RecordBatchReader.from_batches(reader.schema, batches)
