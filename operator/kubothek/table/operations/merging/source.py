"""The source of a merge: its rows in the working space, once, in the types of the table, and its keys in a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kubothek.errors import DuplicateKeys, InputError, SchemaMismatch
from kubothek.table.carried import Carrier
from kubothek.table.layout import Layout
from kubothek.table.log import Snapshot
from kubothek.table.operations.merging.model import Merge
from kubothek.table.operations.merging.rows import Positions
from kubothek.table.operations.rows import stored_after
from kubothek.table.partitioning import check_without_time_zones
from kubothek.table.schema import conform, fitted, normalise, type_name, without_time_zones
from kubothek.table.schema import merge as merged_schema
from kubothek.table.scratch import ROW, Scratch
from kubothek.table.time_zones import zones_after, zones_in, zones_of

_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Fitted:
    """How a source fits a table.

    ``table``   stored schema of the table before the merge
    ``schema``  stored schema of the table after it
    ``source``  columns of the source that are kept, in the types in which they are merged
    ``zones``   time zones of the columns that the table takes over
    """

    table: pa.Schema | None
    schema: pa.Schema
    source: pa.Schema
    zones: Mapping[str, str]


def fit_source(merge: Merge, snapshot: Snapshot, given: pa.Schema, *, evolve: bool) -> Fitted:
    """Return how data of this schema fits the table, or raise SchemaMismatch, PartitionInvalid or InputError.

    If a clause takes all columns, the source must have the table's, as an append: with ``evolve`` it may have others
    and lack some. If none does, it may have any columns, for expressions.
    """
    table, layout = snapshot.schema, Layout.of(snapshot.head)
    if merge.takes_all_columns or table is None:
        schema = stored_after(given, table, layout, evolve=evolve)
        source = pa.schema([schema.field(name) for name in schema.names if name in given.names])
        zones = zones_in(given)
        zones_after(table, zones_of(snapshot.head.metadata), zones)
    else:
        check_without_time_zones(given, [name for name in layout.partition_on if name in given.names])
        schema, source, zones = table, normalise(without_time_zones(given)), {}
    for name in merge.key:
        _require_key(name, schema, source)
    keys = pa.schema([source.field(name) for name in merge.key])
    table_keys = pa.schema([schema.field(name) for name in merge.key])
    merged_schema(table_keys, fitted(table_keys, keys))
    types = {name: schema.field(name).type for name in merge.key}
    source = pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in source])
    return Fitted(table, schema, source, zones)


def _require_key(name: str, schema: pa.Schema, source: pa.Schema) -> None:
    for what, columns in (("the table", schema), ("the source", source)):
        if name not in columns.names:
            raise InputError(f"key: no column {name!r} in {what}; it has {', '.join(columns.names)}")
    if pa.types.is_nested(schema.field(name).type):
        raise InputError(
            f"key: column {name!r} is {type_name(schema.field(name).type)}; a key is a number, a text, a time, "
            "bytes or a boolean"
        )


class MergeSource:
    """The rows of a source.

    ``key``    the key columns
    ``count``  number of rows
    """

    def __init__(self, held: pa.Table, key: Sequence[str], scratch: Scratch) -> None:
        self.key = tuple(key)
        self.count = held.num_rows
        self.scratch = scratch
        position = held.num_columns - 1
        self._batches = held.remove_column(position).to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self.schema = held.schema.remove(position)
        self.carrier = Carrier(pa.schema([self.schema.field(name) for name in key]))

    @classmethod
    def read(
        cls,
        pieces: Iterable[pa.Table | pa.RecordBatch],
        given: pa.Schema,
        schema: pa.Schema,
        key: Sequence[str],
        scratch: Scratch,
    ) -> MergeSource:
        """Read data of the schema ``given``, once, in the types of ``schema``.

        Raises DuplicateKeys, SchemaMismatch, DataTypeMismatch, MergeTooLarge.
        """

        def batches() -> Iterator[pa.RecordBatch]:
            for piece in pieces:
                if piece.schema is not given and not piece.schema.equals(given):
                    raise SchemaMismatch(
                        f"all pieces must have one schema; the first has\n{given}\na later one\n{piece.schema}"
                    )
                table = piece if isinstance(piece, pa.Table) else pa.Table.from_batches([piece])
                yield from conform(table, schema).to_batches()

        source = cls(scratch.hold(batches(), schema), key, scratch)
        source.require_distinct()
        return source

    def take(self, numbers: Positions) -> pa.Table:
        """Return the rows of these numbers, in their order. Reads only their batches, which may be on disk."""
        if len(self._batches) == 1:
            taken: Any = self._batches[0].take(_indices(numbers))
            return pa.Table.from_batches([taken])
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        parts = []
        bounds = np.searchsorted(ascending, self._starts)
        for number in np.flatnonzero(np.diff(bounds)):
            some = ascending[bounds[number] : bounds[number + 1]] - self._starts[number]
            parts.append(self._batches[number].take(_indices(some)))
        found = pa.Table.from_batches(parts, self.schema).combine_chunks()
        if (np.diff(numbers) >= 0).all():
            return found
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return found.take(_indices(back))

    @cached_property
    def keys(self) -> str:
        """Table of the database with the keys, as :class:`Carrier` converts them, and ``n``, the number of the row."""
        name = self.scratch.new_name("keys")
        inside = self.carrier.inside.append(pa.field(ROW, pa.int64()))
        reader = pa.RecordBatchReader.from_batches(inside, self._carried(inside))
        given = self.scratch.register("given", reader)
        self.scratch.run(f"CREATE TABLE {name} AS SELECT * FROM {given}")  # noqa: S608  # names of our own
        self.scratch.forget(given)
        return name

    @property
    def complete(self) -> str:
        """The SQL condition for a key without NULL."""
        return " AND ".join(f"{name} IS NOT NULL" for name in self.carrier.inside.names)

    @property
    def is_empty(self) -> bool:
        """Whether there is no key without NULL."""
        return self.scratch.first(f"SELECT 1 FROM {self.keys} WHERE {self.complete} LIMIT 1") is None  # noqa: S608

    def distinct(self, column: str, most: int) -> pa.Table:
        """Return at most ``most`` distinct values of a key column among keys without NULL."""
        name = self.carrier.inside.names[self.key.index(column)]
        query = f"SELECT DISTINCT {name} FROM {self.keys} WHERE {self.complete} LIMIT {most}"  # noqa: S608
        found = self.scratch.table(query)
        return self.carrier.restored([column], found)

    def ends(self, column: str) -> pa.Table:
        """Return the least and the greatest value of a key column among keys without NULL."""
        name = self.carrier.inside.names[self.key.index(column)]
        ends = " UNION ALL ".join(
            f"SELECT {end}({name}) AS {name} FROM {self.keys} WHERE {self.complete}"  # noqa: S608
            for end in ("min", "max")
        )
        return self.carrier.restored([column], self.scratch.table(ends))

    def _carried(self, inside: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch, start in zip(self._batches, self._starts, strict=False):
            keys = self.carrier.carry(batch.select(list(self.key)))
            numbers = pa.array(np.arange(start, start + batch.num_rows, dtype=np.int64))
            yield pa.RecordBatch.from_arrays([*keys.columns, numbers], schema=inside)

    def require_distinct(self) -> None:
        """Raise DuplicateKeys if a key without NULL occurs twice."""
        columns = ", ".join(self.carrier.inside.names)
        found = self.scratch.table(
            f"SELECT {columns}, count(*) AS rows, count(*) OVER () AS keys FROM {self.keys} "  # noqa: S608
            f"WHERE {self.complete} GROUP BY {columns} HAVING count(*) > 1 ORDER BY rows DESC, {columns} LIMIT 1"
        )
        if not found.num_rows:
            return
        key = self.carrier.restored(self.key, found).to_pylist()[0]
        rows, keys = (found.column(name)[0].as_py() for name in ("rows", "keys"))
        named = ", ".join(f"{name} = {value!r}" for name, value in key.items())[:_SHOWN_CHARACTERS]
        others = f" ({keys:,} keys occur several times)" if keys > 1 else ""
        raise DuplicateKeys(
            f"{rows:,} rows of the source have the key {named}{others}, and a row of the table can take values from "
            "one only; leave one row for each key. Nothing was committed"
        )


def _indices(numbers: Positions) -> Any:
    return pa.array(numbers, pa.int64())
