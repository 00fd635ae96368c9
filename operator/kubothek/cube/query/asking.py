"""Validation of a cube query: which datasets take part, with which join and which columns.

The rules are kartothek's (Kartothek Cube, "Seed-Based Join System"). Conditions select rows of the joined cube, in
which the columns of a dataset are NULL for a cell that it does not have. So a dataset with a condition on its payload
is *restrictive* and joined inner, unless the condition can be TRUE for NULL, as ``mayor IS NULL`` is.
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
"""Ordered names, or one name; the parameter defines the meaning of None."""


class Join(StrEnum):
    """How a dataset is joined to the rows so far: ``seed`` is the first, ``inner`` drops rows that it lacks."""

    SEED = "seed"
    INNER = "inner"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a dataset that the query reads.

    ``dimensions``  columns of the join
    ``payload``     its other columns that the result or conditions need
    ``owned``       all of its payload columns
    """

    member: Member
    join: Join
    dimensions: tuple[str, ...]
    payload: tuple[str, ...]
    owned: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.dimensions, *self.payload)


@dataclass(frozen=True, slots=True)
class Intent:
    """A valid query.

    ``where``               bound conditions; includes IS NOT NULL for nullable columns of ``partition_by``
    ``dimension_columns``   in sort order
    ``columns``             columns of the result, sorted by name
    ``types``               types of all columns of the datasets
    ``sources``             the seed first, then inner joins, then left joins
    ``newest_only``         whether conditions on payload apply only to the newest row of a cell
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
        """Whether several cells can become one row."""
        return not {*self.sources[0].dimensions} <= {*self.dimension_columns, *self.partition_by}


class Asked(TypedDict, total=False):
    """Parameters of a query besides its conditions.

    ``datasets``           datasets that take part, with the seed; None = all
    ``dimension_columns``  columns that identify a row; fewer than the cube has make a projection with distinct rows.
                           Then only datasets without other dimensions can have payload. None = all
    ``partition_by``       indexed columns: rows are grouped by their values. Rows with NULL are left out
    ``payload_columns``    further columns; None = all. The partition columns are always included
    ``newest_only``        False: as in kartothek, conditions on payload first select rows of their dataset, and then
                           the newest selected row counts. So ``temp >= 15`` finds a row with 15 that was overwritten
                           by -7, and ``partition_by`` puts it into the group of its old value. True: only the newest
                           row of a cell counts
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
    """Return the checked query. Raises QueryInvalid for invalid names, FilterInvalid for conditions."""
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
    """Return the payload columns. A dimension that the projection drops is invalid; kartothek returns any value."""
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
    """Return the names as a tuple; a single text is one name. Raises QueryInvalid."""
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
    """Return the source; None for a dataset without requested columns. The seed always takes part."""
    spec = member.spec
    fixed = {*spec.dimension_columns, *spec.partition_columns}
    owned = frozenset(name for name in member.schema.names if name not in fixed and not is_hidden(name))
    payload = tuple(sorted(owned & needed))
    if not payload and not member.is_seed:
        return None
    if payload and not {*member.dimensions} <= {*dimensions}:
        raise QueryInvalid(
            f"cannot project dataset {member.name!r} with the dimensions {_list(member.dimensions)} to "
            f"{_list(dimensions)} and keep its payload {_list(payload)}: one row would have several values"
        )
    if member.is_seed:
        keys = tuple(name for name in member.dimensions if payload or name in needed)
        return Source(member, Join.SEED, keys, payload, owned)
    join = Join.INNER if all(restricts(terms, owned) for terms in where.conjunctions) else Join.LEFT
    return Source(member, join, member.dimensions, payload, owned)


def restricts(terms: Iterable[Term], owned: frozenset[str]) -> bool:
    """Return whether the terms are FALSE or NULL for a row in which all of these columns are NULL."""
    return any(term.column in owned and term.op is not Op.IS_NULL for term in terms)
