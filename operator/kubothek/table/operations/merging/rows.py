"""The rows of a table after a merge: a function of some rows of a file and of the source rows that match them.

It has no I/O and knows no other file, so that a task of any engine can run it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kubothek.errors import FilterInvalid, InputError, PartitionInvalid
from kubothek.table.expressions.computed import SOURCE, TARGET, Compiled, Evaluator, Read, compile_expression
from kubothek.table.operations.assignments import fit, patched
from kubothek.table.operations.merging.model import Merge, MergeAction, MergeClause
from kubothek.table.schema import type_name

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rule:
    """A checked clause. ``set``: by column of the table a column of the source, or an expression."""

    action: MergeAction
    where: Compiled | None
    set: tuple[tuple[str, str | Compiled], ...]

    @property
    def reads(self) -> frozenset[Read]:
        """The columns that its values read."""
        taken = {(SOURCE, value) for _, value in self.set if isinstance(value, str)}
        return frozenset(taken).union(*(value.reads for _, value in self.set if isinstance(value, Compiled)))


@dataclass(frozen=True, slots=True)
class Rules:
    """All clauses; sent to executors.

    ``schema``  stored schema of the table after the merge
    ``source``  schema of the source's rows
    """

    schema: pa.Schema
    source: pa.Schema
    matched: tuple[Rule, ...]
    inserts: tuple[Rule, ...]
    by_source: tuple[Rule, ...]

    @classmethod
    def of(cls, merge: Merge, schema: pa.Schema, source: pa.Schema, partition_on: Sequence[str]) -> Rules:
        """Check the clauses against the columns of both sides.

        Raises FilterInvalid, InputError, SchemaMismatch or PartitionInvalid, with the clause at the beginning.
        """
        both = {SOURCE: source, TARGET: schema}
        compiled = (
            _compiled(kind, clauses, schema, source, {side: both[side] for side in sides}, partition_on)
            for kind, clauses, sides in (
                ("whenMatched", merge.when_matched, (SOURCE, TARGET)),
                ("whenNotMatched", merge.when_not_matched, (SOURCE,)),
                ("whenNotMatchedBySource", merge.when_not_matched_by_source, (TARGET,)),
            )
        )
        return cls(schema, source, *compiled)

    @property
    def changes_matches(self) -> bool:
        """Whether rows with a source row are changed."""
        return any(rule.action is not MergeAction.NOTHING for rule in self.matched)

    @property
    def changes_others(self) -> bool:
        """Whether rows without a source row are changed."""
        return any(rule.action is not MergeAction.NOTHING for rule in self.by_source)

    @property
    def conditions(self) -> frozenset[str]:
        """The columns of the table that conditions on its rows read."""
        read = {each for rule in (*self.matched, *self.by_source) if rule.where for each in rule.where.reads}
        return frozenset(name for side, name in read if side == TARGET)


def _compiled(
    kind: str,
    clauses: Sequence[MergeClause],
    schema: pa.Schema,
    source: pa.Schema,
    sides: Mapping[str, pa.Schema],
    partition_on: Sequence[str],
) -> tuple[Rule, ...]:
    rules = []
    evaluator = Evaluator()
    try:
        for number, clause in enumerate(clauses):
            name = kind if len(clauses) == 1 else f"{kind}[{number}]"
            try:
                rules.append(_rule(clause, schema, source, sides, partition_on))
                _try(rules[-1], schema, sides, evaluator)
            except (FilterInvalid, InputError) as error:
                raise type(error)(f"{name}: {error}") from error
    finally:
        evaluator.close()
    return tuple(rules)


def _rule(
    clause: MergeClause,
    schema: pa.Schema,
    source: pa.Schema,
    sides: Mapping[str, pa.Schema],
    partition_on: Sequence[str],
) -> Rule:
    where = None if clause.where is None else compile_expression(clause.where, sides)
    values: dict[str, str | Compiled] = {}
    if clause.action in (MergeAction.UPDATE, MergeAction.INSERT):
        if clause.set is None:
            values = {name: name for name in schema.names if name in source.names}
        else:
            if unknown := [name for name in clause.set if name not in schema.names]:
                raise FilterInvalid(f"set: no column {unknown[0]!r} in the table; it has {', '.join(schema.names)}")
            values = {name: compile_expression(text, sides) for name, text in clause.set.items()}
    if clause.action is MergeAction.INSERT and (missing := [name for name in partition_on if name not in values]):
        raise PartitionInvalid(f"set: no value for the partition column {missing[0]!r}, which cannot be NULL")
    return Rule(clause.action, where, tuple(values.items()))


def _try(rule: Rule, schema: pa.Schema, sides: Mapping[str, pa.Schema], evaluator: Evaluator) -> None:
    """Evaluate the clause for no rows: raises for a wrong type."""
    columns = {(side, f.name): pa.chunked_array([], f.type) for side, its in sides.items() for f in its}
    if rule.where is not None:
        _truth(rule.where, columns, 0, evaluator)
    _values(rule, schema, columns, 0, evaluator)


# --- evaluation -----------------------------------------------------------------------------------------------------


class Rows:
    """Some rows of the sides, of which columns are taken when they are needed.

    ``numbers``  by side, the rows of its table; None = all, in order
    """

    def __init__(self, tables: Mapping[str, pa.Table], numbers: Mapping[str, Positions | None], count: int) -> None:
        self.count = count
        self._tables = tables
        self._numbers = numbers
        self._taken: dict[Read, Any] = {}

    def columns(self, wanted: frozenset[Read]) -> dict[Read, Any]:
        """Return these columns."""
        for side, name in wanted - self._taken.keys():
            column, numbers = self._tables[side].column(name), self._numbers[side]
            self._taken[side, name] = column if numbers is None else column.take(cast("Any", pa.array(numbers)))
        return {each: self._taken[each] for each in wanted}

    def part(self, some: Positions) -> Rows:
        """Return some of these rows."""
        if len(some) == self.count:
            return self
        numbers = {side: some if of is None else of[some] for side, of in self._numbers.items()}
        return Rows(self._tables, numbers, len(some))


def assign(rules: Sequence[Rule], rows: Rows, evaluator: Evaluator) -> Iterator[tuple[Rule, Positions, Rows]]:
    """Yield for each clause the rows that it applies to: their positions among ``rows``, and themselves."""
    left = np.arange(rows.count, dtype=np.int64)
    for rule in rules:
        if not len(left):
            return
        chosen = left
        if rule.where is not None:
            some = rows.part(left)
            is_true = _truth(rule.where, some.columns(rule.where.reads), some.count, evaluator)
            chosen, left = left[is_true], left[~is_true]
        else:
            left = left[:0]
        if len(chosen) and rule.action is not MergeAction.NOTHING:
            yield rule, chosen, rows.part(chosen)


def _truth(where: Compiled, columns: Mapping[Read, Any], count: int, evaluator: Evaluator) -> npt.NDArray[np.bool_]:
    (found,) = evaluator.evaluate([where], columns, count)
    if not pa.types.is_boolean(found.type):
        raise FilterInvalid(f"where {where.text} is {type_name(found.type)}, no condition; compare it with a value")
    truth: npt.NDArray[np.bool_] = found.fill_null(False).to_numpy()
    return truth


def _values(
    rule: Rule, schema: pa.Schema, columns: Mapping[Read, Any], count: int, evaluator: Evaluator
) -> dict[str, Any]:
    """Return the new values by column, in the table's types. Raises SchemaMismatch for one that does not fit."""
    computed = [(name, value) for name, value in rule.set if isinstance(value, Compiled)]
    found = {name: columns[SOURCE, value] for name, value in rule.set if isinstance(value, str)}
    if computed:
        columns_of = evaluator.evaluate([value for _, value in computed], columns, count)
        found |= {name: column for (name, _), column in zip(computed, columns_of, strict=True)}
    return {name: fit(pa.table({name: column}), schema.field(name)) for name, column in found.items()}


# --- the rows after the merge ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Merged:
    """Rows after the merge, and how many of the rows before it were deleted."""

    rows: pa.Table
    deleted: int


@dataclass(slots=True)
class _Patches:
    """New values of some rows, and the rows that are deleted."""

    count: int
    deleted: npt.NDArray[np.bool_] = field(init=False)
    values: list[tuple[Positions, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deleted = np.zeros(self.count, np.bool_)


def merged_rows(rules: Rules, rows: pa.Table, at: Positions, source: pa.Table, evaluator: Evaluator) -> Merged:
    """Return the rows of the table after the merge.

    ``rows``    rows of the table, with its schema after the merge
    ``at``      positions of those that have a source row, ascending
    ``source``  the source row of each of these
    """
    patches = _Patches(rows.num_rows)
    _patch(patches, rules.matched, rules.schema, at, {TARGET: rows, SOURCE: source}, {SOURCE: None}, evaluator)
    if rules.by_source and len(at) < rows.num_rows:
        others = np.ones(rows.num_rows, np.bool_)
        others[at] = False
        _patch(patches, rules.by_source, rules.schema, np.flatnonzero(others), {TARGET: rows}, {}, evaluator)
    kept = ~patches.deleted if patches.deleted.any() else None
    return Merged(patched(rows, patches.values, kept), int(patches.deleted.sum()))


def changes_any(rules: Rules, rows: pa.Table, at: Positions, source: pa.Table, evaluator: Evaluator) -> bool:
    """Return whether a clause applies to one of the rows; arguments as of :func:`merged_rows`.

    Only the columns of :attr:`Rules.conditions` are read.
    """
    matching = Rows({TARGET: rows, SOURCE: source}, {TARGET: at, SOURCE: None}, len(at))
    if any(True for _ in assign(rules.matched, matching, evaluator)):
        return True
    others = np.setdiff1d(np.arange(rows.num_rows), at, assume_unique=True)
    alone = Rows({TARGET: rows}, {TARGET: others}, len(others))
    return any(True for _ in assign(rules.by_source, alone, evaluator))


def inserted_rows(rules: Rules, source: pa.Table, evaluator: Evaluator) -> Iterator[pa.Table]:
    """Yield the rows that are inserted for these rows of the source."""
    rows = Rows({SOURCE: source}, {SOURCE: None}, source.num_rows)
    for rule, _, some in assign(rules.inserts, rows, evaluator):
        columns = _values(rule, rules.schema, some.columns(rule.reads), some.count, evaluator)
        empty = {name: pa.nulls(some.count, rules.schema.field(name).type) for name in rules.schema.names}
        yield pa.table({name: columns.get(name, empty[name]) for name in rules.schema.names}, schema=rules.schema)


def _patch(
    patches: _Patches,
    rules: Sequence[Rule],
    schema: pa.Schema,
    at: Positions,
    tables: Mapping[str, pa.Table],
    numbers: Mapping[str, Positions | None],
    evaluator: Evaluator,
) -> None:
    rows = Rows(tables, {**numbers, TARGET: at}, len(at))
    for rule, chosen, some in assign(rules, rows, evaluator):
        if rule.action is MergeAction.DELETE:
            patches.deleted[at[chosen]] = True
        else:
            values = _values(rule, schema, some.columns(rule.reads), some.count, evaluator)
            patches.values.append((at[chosen], values))
