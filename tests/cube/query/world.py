"""Random cubes, queries of them, and the answers in the plainest way: a dict of cells, one row after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kubothek.table.log.multi.spec import CubeSpec
from tests.properties.filters import COMPARISONS, Filter, Literal

Row = dict[str, Any]

DIMENSIONS: dict[str, list[Any]] = {"x": [0, 1, 2], "y": ["a", "é", "b"], "z": [date(2024, 2, 29), date(1999, 1, 1)]}
PARTITIONS: dict[str, list[Any]] = {"p": [10, 9, 2], "q": ["u/v", "w"]}
PAYLOAD: dict[str, list[Any]] = {
    "i": [None, 1, 2, 3],
    "f": [None, 0.5, -1.5, 2.0],
    "s": [None, "a", "b", ""],
    "d": [None, date(2024, 2, 29), date(2024, 3, 1)],
}
"""Payload columns are named by kind and dataset: ``i_seed``."""
TYPES: dict[str, pa.DataType] = {
    "x": pa.int64(),
    "y": pa.string(),
    "z": pa.date32(),
    "p": pa.int64(),
    "q": pa.string(),
    "i": pa.int64(),
    "f": pa.float64(),
    "s": pa.string(),
    "d": pa.date32(),
}


def values_of(column: str) -> list[Any]:
    """What a column's values are taken from."""
    return {**DIMENSIONS, **PARTITIONS, **PAYLOAD}[column.partition("_")[0]]


def type_of(column: str) -> pa.DataType:
    return TYPES[column.partition("_")[0]]


@dataclass(frozen=True)
class Table:
    """A dataset of the cube; ``partition_on`` columns of the cube's, and perhaps others."""

    name: str
    dimensions: tuple[str, ...]
    partition_on: tuple[str, ...]
    payload: tuple[str, ...]
    indexed: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.partition_on, *self.dimensions, *self.payload)))

    def table(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=pa.schema([(name, type_of(name)) for name in self.columns]))

    def cell(self, spec: CubeSpec, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What makes a cell of the dataset: the cube's partition columns that it has, and its dimensions."""
        return tuple(row[name] for name in self._keys(spec))

    def _keys(self, spec: CubeSpec) -> list[str]:
        return [n for n in (*spec.partition_columns, *spec.dimension_columns) if n in self.columns]


@dataclass(frozen=True)
class Shape:
    """A cube before it is built."""

    spec: CubeSpec
    tables: dict[str, Table]

    @property
    def seed(self) -> Table:
        return self.tables["seed"]


@dataclass
class Content:
    """What was written to a cube: rows by dataset, in order."""

    shape: Shape
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def write(self, name: str, rows: Iterable[Row]) -> None:
        self.rows.setdefault(name, []).extend(rows)

    def remove(self, names: Iterable[str], keep: Mapping[str, Any]) -> None:
        """Take away partitions with these values; a dataset that has none of the columns loses all rows."""
        for name in names:
            columns = [column for column in keep if column in self.shape.tables[name].partition_on]
            self.rows[name] = [row for row in self.rows[name] if not all(row[c] == keep[c] for c in columns)]

    def cells(self, name: str) -> dict[tuple[Any, ...], Row]:
        """The last row of each cell."""
        table = self.shape.tables[name]
        return {table.cell(self.shape.spec, row): row for row in self.rows[name]}


@dataclass(frozen=True)
class Question:
    """The arguments of a query; ``conditions`` None = all rows."""

    conditions: Filter | None
    datasets: tuple[str, ...] | None
    dimension_columns: tuple[str, ...] | None
    partition_by: tuple[str, ...] | None
    payload_columns: tuple[str, ...] | None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "conditions": None if self.conditions is None else self.conditions.text,
            "datasets": self.datasets,
            "dimension_columns": self.dimension_columns,
            "partition_by": self.partition_by,
            "payload_columns": self.payload_columns,
        }


class Refused(Exception):
    """The query cannot be answered, by the rules of Kartothek Cube, "Seed-Based Join System"."""


def answer(
    content: Content, asked: Question, *, newest_only: bool
) -> tuple[list[str], dict[tuple[Any, ...], list[Row]]]:
    """The columns, and the rows of each group in order. Raises Refused."""
    spec, names = content.shape.spec, asked.datasets or tuple(content.shape.tables)
    tables = {name: content.shape.tables[name] for name in content.shape.tables if name in names}
    dimensions = asked.dimension_columns or spec.dimension_columns
    by = asked.partition_by or ()
    there = {column for table in tables.values() for column in table.columns}
    fixed = {*spec.dimension_columns, *spec.partition_columns}
    payload = there - {*spec.dimension_columns} if asked.payload_columns is None else {*asked.payload_columns}
    # Who groups by a column asks for rows that have it.
    known: list[Literal] = [(column, "is not null", None) for column in by if column not in fixed]
    dnf = Filter(tuple((*each, *known) for each in (asked.conditions.dnf if asked.conditions else ((),))))
    looked_at = {literal[0] for each in dnf.dnf for literal in each}
    indexed = {column for table in tables.values() for column in (*table.partition_on, *table.indexed)}
    if not {*by, *looked_at, *payload} <= there or not {*by} <= indexed:
        raise Refused("unknown or without index")
    if payload & ({*spec.dimension_columns} - {*dimensions, *by}):
        raise Refused("a dimension that is left out")
    for table in tables.values():
        needed = ({*table.columns} - fixed) & {*payload, *by, *looked_at}
        if needed and not {*table.dimensions} <= {*dimensions}:
            raise Refused("projection")
    columns = sorted({*by, *dimensions, *payload, *spec.partition_columns})
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in _joined(content, tables, None if newest_only else dnf, by):
        if dnf.holds(row):
            shown = {column: row[column] for column in columns}
            group = groups.setdefault(tuple(row[column] for column in by), [])
            if shown not in group:
                group.append(shown)
    order = [*dimensions, *spec.partition_columns]
    return columns, {
        group: sorted(groups[group], key=lambda row: _sortable(row[column] for column in order))
        for group in sorted(groups, key=_sortable)
    }


def _joined(content: Content, tables: Mapping[str, Table], chosen: Filter | None, by: tuple[str, ...]) -> Iterable[Row]:
    """The seed's cells with those of the others; ``chosen``: what rows must meet to be a cell's, None = nothing."""
    cells = {name: _cells(content, table, chosen, by) for name, table in tables.items()}
    for versions in cells.pop("seed").values():
        for seed in versions:
            rows = [seed]
            for name, theirs in cells.items():
                found = theirs.get(tables[name].cell(content.shape.spec, seed), [{}])
                new = [column for column in tables[name].columns if column not in seed]
                rows = [{**row, **{column: each.get(column) for column in new}} for row in rows for each in found]
            yield from rows


def _cells(
    content: Content, table: Table, chosen: Filter | None, by: tuple[str, ...]
) -> dict[tuple[Any, ...], list[Row]]:
    """The last row of each cell; with ``chosen``, the last that it leaves, for each value of the dataset's groups."""
    spec = content.shape.spec
    if chosen is None:
        return {cell: [row] for cell, row in content.cells(table.name).items()}
    own = {*table.columns} - {*spec.dimension_columns, *spec.partition_columns}
    split = [column for column in by if column in own]
    found: dict[tuple[Any, ...], dict[tuple[Any, ...], Row]] = {}
    for row in content.rows[table.name]:
        if any(_counts(table, own, conjunction, row) for conjunction in chosen.dnf):
            versions = found.setdefault(table.cell(spec, row), {})
            versions[tuple(row[column] for column in split)] = row
    return {cell: list(versions.values()) for cell, versions in found.items()}


def _counts(table: Table, own: set[str], conjunction: tuple[Literal, ...], row: Row) -> bool:
    """Whether the dataset's own columns let the conjunction be TRUE; not by payload where a missing row would do."""
    missing_would_do = all(op == "is null" for column, op, _ in conjunction if column in own)
    skipped = own if table.name != "seed" and missing_would_do else set()
    here = tuple(literal for literal in conjunction if literal[0] in table.columns and literal[0] not in skipped)
    return Filter((here,)).holds(row)


def _sortable(values: Iterable[Any]) -> Any:
    """Text is ordered by its bytes."""
    return [value.encode() if isinstance(value, str) else value for value in values]


# --- strategies ------------------------------------------------------------------------------------------------------


def _some(values: Iterable[str], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    pool = list(values)
    if not pool:
        return st.just(())
    return st.lists(st.sampled_from(pool), unique=True, min_size=least, max_size=len(pool)).map(tuple)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """A cube of one to four datasets with one to three dimensions."""
    dimensions = tuple(draw(st.permutations(list(DIMENSIONS))))[: draw(st.integers(1, 3))]
    partitions = tuple(draw(st.permutations(list(PARTITIONS))))[: draw(st.integers(1, 2))]
    suppressed = draw(_some(dimensions))
    tables = {}
    for name in ("seed", "a", "b", "c")[: draw(st.integers(1, 4))]:
        own = dimensions if name == "seed" else tuple(sorted(draw(_some(dimensions, 1))))
        # What is partitioned by all of its columns has nothing left for its files.
        payload = tuple(f"{kind}_{name}" for kind in draw(_some(PAYLOAD, 0 if name == "seed" else 1)))
        on = partitions if name == "seed" else draw(_some(partitions))
        if name != "seed" and draw(st.booleans()) and len(own) > 1:
            on = (*on, own[0])
        able = [column for column in payload if not column.startswith("f")]
        tables[name] = Table(name, own, on, payload, draw(_some(able)))
    # The cube's own index columns may not be NULL; others with an index may.
    spec = CubeSpec("c", dimensions, partitions, "seed", frozenset(), frozenset(suppressed))
    seed = tables["seed"]
    known = (*seed.indexed, *spec.indexed_dimensions)
    tables["seed"] = Table("seed", seed.dimensions, seed.partition_on, seed.payload, known)
    return Shape(spec, tables)


@st.composite
def rows_of(draw: st.DrawFn, shape: Shape, table: Table, most: int = 8) -> list[Row]:
    """Rows of different cells, at least one."""
    row = st.fixed_dictionaries({name: st.sampled_from(values_of(name)) for name in table.columns})
    return draw(st.lists(row, min_size=1, max_size=most, unique_by=lambda row: table.cell(shape.spec, row)))


@st.composite
def questions(draw: st.DrawFn, shape: Shape) -> Question:
    """A query, that can be answered more often than not."""
    columns = sorted({column for table in shape.tables.values() for column in table.columns})
    indexed = sorted({c for table in shape.tables.values() for c in (*table.partition_on, *table.indexed)})
    projected = draw(st.integers(0, 3)) == 0
    return Question(
        draw(st.none() | _filters(columns)),
        draw(st.none() | _some(shape.tables).map(lambda names: tuple(dict.fromkeys(("seed", *names))))),
        draw(_some(shape.spec.dimension_columns, 1)) if projected else None,
        draw(st.none() | st.none() | _some(indexed, 1).map(lambda names: names[:2])),
        draw(_some(columns)) if projected or draw(st.booleans()) else None,
    )


def _filters(columns: list[str]) -> st.SearchStrategy[Filter]:
    literals = st.sampled_from(columns).flatmap(_literals)
    conjunctions = st.lists(literals, min_size=1, max_size=2).map(tuple)
    return st.lists(conjunctions, min_size=1, max_size=2).map(lambda dnf: Filter(tuple(dnf)))


def _literals(column: str) -> st.SearchStrategy[Literal]:
    values = st.sampled_from([value for value in values_of(column) if value is not None])
    return st.one_of(
        st.tuples(st.just(column), st.sampled_from(COMPARISONS), values),
        st.tuples(st.just(column), st.sampled_from(["in", "not in"]), st.lists(values, min_size=1, max_size=2)),
        st.tuples(st.just(column), st.sampled_from(["is null", "is not null"]), st.none()),
    )
