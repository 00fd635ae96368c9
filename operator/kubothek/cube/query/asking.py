"""What a cube query asks for, checked against the cube: which datasets take part, how, and with which columns.

The rules are kartothek's (Kartothek Cube, "Seed-Based Join System"). Conditions select rows of the joined cube: a cell
that a
dataset does not have is NULL in its columns. So a dataset with a condition on its payload is *restrictive*, joined
inner, unless the condition can be TRUE for NULL, as ``mayor IS NULL`` is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TypedDict, Unpack

import pyarrow as pa

from kubothek.cube.query.conditions import Conditions, as_conditions
from kubothek.cube.state import CubeSnapshot
from kubothek.errors import InputError, QueryInvalid
from kubothek.table.expressions import Op, Predicate, Term
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.spec import CubeSpec, is_hidden
from kubothek.table.name_lists import names_in

Names = Sequence[str] | str | None
"""Names in order, or one; None is what the parameter says."""


class Join(StrEnum):
    """How a dataset meets the rows so far: the seed is where they begin, ``inner`` drops rows that it lacks."""

    SEED = "seed"
    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Source:
    """A dataset as far as the query reads it.

    ``dimensions``  what its rows are joined by
    ``payload``     its other columns that are asked for or that conditions look at
    ``owned``       all of its payload columns
    """

    member: Member
    join: Join
    dimensions: tuple[str, ...]
    payload: tuple[str, ...]
    owned: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read of its files."""
        return (*self.dimensions, *self.payload)


@dataclass(frozen=True, slots=True)
class Intent:
    """A query that can be answered.

    ``where``               bound; columns of ``partition_by`` that may be NULL are asked not to be
    ``dimension_columns``   in the order in which rows are sorted
    ``columns``             of the result, by name
    ``types``               of all columns that the datasets have
    ``sources``             the seed first, then inner, then left ones
    ``newest_only``         whether conditions on payload ask about the newest row of a cell only
    """

    spec: CubeSpec
    version: int
    where: Predicate
    dimension_columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    columns: tuple[str, ...]
    types: Mapping[str, pa.DataType]
    sources: tuple[Source, ...]
    newest_only: bool

    @property
    def projected(self) -> bool:
        """Whether several cells may become one row."""
        return not {*self.sources[0].dimensions} <= {*self.dimension_columns, *self.partition_by}


class Asked(TypedDict, total=False):
    """What a query says beside its conditions.

    ``datasets``           which take part, among them the seed; None = all
    ``dimension_columns``  what names a row; fewer than the cube has make a projection, whose rows are distinct. Only
                           datasets without other dimensions can then give payload. None = all
    ``partition_by``       columns with an index: rows come in groups of their values. Rows without a value go
    ``payload_columns``    further columns; None = all. The partition columns are always there
    ``newest_only``        False: as in kartothek, conditions on payload choose rows of their datasets, and the newest
                           of these is the cell's: ``temp >= 15`` finds a row with 15 over which -7 was written since,
                           and ``partition_by`` puts it into the group of its old value. True: a cell has no other
                           values than those of its newest row, whatever is asked
    """

    datasets: Names
    dimension_columns: Names
    partition_by: Names
    payload_columns: Names
    newest_only: bool


def intent(
    cube: CubeSnapshot,
    conditions: Conditions = None,
    **asked: Unpack[Asked],
) -> Intent:
    """The checked query. Raises QueryInvalid for names that cannot be, FilterInvalid for conditions."""
    datasets, dimension_columns = asked.get("datasets"), asked.get("dimension_columns")
    partition_by, payload_columns = asked.get("partition_by"), asked.get("payload_columns")
    spec, members = cube.spec, _members(cube, _names("datasets", datasets))
    types = CubeSnapshot(spec, cube.version, members).columns
    dimensions = _dimensions(spec, _names("dimension_columns", dimension_columns))
    by = _names("partition_by", partition_by) or ()
    _require_known("partition_by", by, types)
    _require_indexed(by, members.values())
    where = as_conditions(conditions, types).bind(pa.schema(list(types.items())))
    fixed = {*spec.dimension_columns, *spec.partition_columns}
    for column in by:
        if column not in fixed:
            where &= Predicate(((Term(column, Op.IS_NOT_NULL, None, types[column]),),))
    payload = _payload(spec, types, _names("payload_columns", payload_columns), dimensions, by)
    wanted = {*by, *dimensions, *payload}
    sources = [
        source
        for member in members.values()
        if (source := _source(member, where, wanted | where.columns, dimensions)) is not None
    ]
    sources.sort(key=lambda source: list(Join).index(source.join))
    columns = tuple(sorted({*wanted, *spec.partition_columns}))
    return Intent(
        spec, cube.version, where, dimensions, by, columns, types, tuple(sources), asked.get("newest_only", False)
    )


# --- names -----------------------------------------------------------------------------------------------------------


def _members(cube: CubeSnapshot, names: tuple[str, ...] | None) -> dict[str, Member]:
    if names is None:
        return dict(cube.members)
    _require_known("datasets", names, cube.members, "dataset")
    if cube.spec.seed_dataset not in names:
        raise QueryInvalid(
            f"datasets: the seed {cube.spec.seed_dataset!r} is missing; it says which cells there are, so every query "
            "reads it"
        )
    return {name: member for name, member in cube.members.items() if name in names}


def _dimensions(spec: CubeSpec, names: tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        return spec.dimension_columns
    if not names:
        raise QueryInvalid(f"dimension_columns cannot be empty; the cube has {', '.join(spec.dimension_columns)}")
    _require_known("dimension_columns", names, spec.dimension_columns, "dimension column")
    return names


def _payload(
    spec: CubeSpec,
    types: Mapping[str, pa.DataType],
    names: tuple[str, ...] | None,
    dimensions: tuple[str, ...],
    by: tuple[str, ...],
) -> set[str]:
    """A dimension that the projection leaves out is none: kartothek takes it, and gives any one of its values."""
    if names is None:
        return {*types} - {*spec.dimension_columns}
    _require_known("payload_columns", names, types)
    left_out = {*spec.dimension_columns} - {*dimensions, *by}
    if lost := sorted(left_out.intersection(names)):
        raise QueryInvalid(
            f"payload_columns: {_list(lost)} is a dimension that dimension_columns leave out, so it has no one value "
            "in a row; name it there as well"
        )
    return {*names}


def _require_indexed(by: Iterable[str], members: Iterable[Member]) -> None:
    indexed = {
        column
        for member in members
        for column in (*member.partition_on, *member.snapshot.head.index_state.kinds())
        if not is_hidden(column)
    }
    if bare := [column for column in by if column not in indexed]:
        raise QueryInvalid(f"partition_by: {_list(bare)} has no index; indexed are {_list(sorted(indexed))}")


def _require_known(what: str, names: Iterable[str], known: Iterable[str], kind: str = "column") -> None:
    there = list(known)
    for name in names:
        if name not in there:
            near = get_close_matches(name, there, n=3)
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there is {_list(there)}"
            raise QueryInvalid(f"{what}: the cube has no {kind} {name!r}; {hint}")


def _names(what: str, given: Names) -> tuple[str, ...] | None:
    """One name stands for a sequence of one."""
    if given is None:
        return None
    try:
        names = names_in(what, given)
    except InputError as error:
        raise QueryInvalid(str(error)) from None
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise QueryInvalid(f"{what}: {_list(twice)} is named twice")
    return names


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


# --- datasets --------------------------------------------------------------------------------------------------------


def _source(member: Member, where: Predicate, needed: set[str], dimensions: tuple[str, ...]) -> Source | None:
    """None for a dataset of which nothing is asked. The seed always takes part."""
    spec = member.spec
    fixed = {*spec.dimension_columns, *spec.partition_columns}
    owned = frozenset(name for name in member.schema.names if name not in fixed and not is_hidden(name))
    payload = tuple(sorted(owned & needed))
    if not payload and not member.is_seed:
        return None
    if payload and not {*member.dimensions} <= {*dimensions}:
        raise QueryInvalid(
            f"cannot project dataset {member.name!r} with the dimensions {_list(member.dimensions)} to "
            f"{_list(dimensions)} and keep its payload {_list(payload)}: a row would stand for several values"
        )
    if member.is_seed:
        keys = tuple(name for name in member.dimensions if payload or name in needed)
        return Source(member, Join.SEED, keys, payload, owned)
    join = Join.INNER if all(restricts(terms, owned) for terms in where.conjunctions) else Join.LEFT
    return Source(member, join, member.dimensions, payload, owned)


def restricts(terms: Iterable[Term], owned: frozenset[str]) -> bool:
    """Whether the terms are FALSE or NULL for a row in which all of these columns are NULL."""
    return any(term.column in owned and term.op is not Op.IS_NULL for term in terms)
