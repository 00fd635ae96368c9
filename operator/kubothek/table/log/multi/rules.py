"""The rules that the datasets of a cube keep together, checked on heads and schemas alone. Pure functions.

Source: kartothek's ``check_datasets`` (``kartothek.api.consistency``), which runs at each discovery. Kubothek
evaluates them on the planned result, before it writes, and on foreign changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubothek.errors import CubeInvalid
from kubothek.table.log.model.keys import DEFAULT_TABLE
from kubothek.table.log.multi.members import Member, is_seed
from kubothek.table.log.multi.spec import CubeSpec, is_hidden
from kubothek.table.schema import type_name
from kubothek.table.time_zones import NAIVE, zones_of

_NULL: Final = "null"


def check(spec: CubeSpec, members: Mapping[str, Member]) -> None:
    """Raise CubeInvalid, which names dataset, column and rule, unless these datasets form a cube."""
    if spec.seed_dataset not in members:
        raise CubeInvalid(f"seed dataset {spec.seed_dataset!r} is missing in cube {spec.uuid_prefix!r}")
    for name in sorted(members):
        _check_head(spec, members[name])
        _check_partitions(spec, members[name])
        _check_dimensions(spec, members[name])
        _check_indices(spec, members[name])
    check_columns(members)


def check_columns(members: Mapping[str, Member]) -> None:
    """Raises CubeInvalid for a column of two datasets that may be in one only, or has two types; asks schemas alone."""
    _check_overlap(members)
    _check_types(members)


def _check_head(spec: CubeSpec, member: Member) -> None:
    """Require one table, one seed, and no ledger."""
    if member.snapshot.head.chain is not None:
        raise CubeInvalid(
            f"dataset {member.name!r} is a ledger, whose rows change with its chain, not with other datasets; a ledger "
            "cannot be in a cube"
        )
    tables = member.snapshot.head.tables
    if tables != (DEFAULT_TABLE,):
        raise CubeInvalid(
            f"dataset {member.name!r} has the tables {_list(tables)}; in a cube, each has a single one named "
            f"{DEFAULT_TABLE!r}"
        )
    if is_seed(member.snapshot.head) and not member.is_seed:
        raise CubeInvalid(
            f"dataset {member.name!r} says that it is the seed, as does {spec.seed_dataset!r}; a cube has one seed"
        )


def _check_partitions(spec: CubeSpec, member: Member) -> None:
    keys = member.partition_on
    if member.is_seed and (missing := [column for column in spec.partition_columns if column not in keys]):
        raise CubeInvalid(f"seed dataset {member.name!r} has missing partition columns: {_list(missing)}")
    if loose := [c for c in spec.partition_columns if c in member.schema.names and c not in keys]:
        raise CubeInvalid(
            f"unspecified but provided partition columns in dataset {member.name!r}: {_list(loose)}; a dataset that "
            "has a partition column of the cube is partitioned on it"
        )


def _check_dimensions(spec: CubeSpec, member: Member) -> None:
    if not member.schema.names:
        return  # nothing was ever written to it
    missing = [column for column in spec.dimension_columns if column not in member.dimensions]
    if member.is_seed and missing:
        raise CubeInvalid(f"seed dataset {member.name!r} has missing dimension columns: {_list(missing)}")
    if not member.dimensions:
        raise CubeInvalid(
            f"dataset {member.name!r} must have at least 1 of the following dimension columns: "
            f"{_list(spec.dimension_columns)}"
        )


def _check_indices(spec: CubeSpec, member: Member) -> None:
    """Require the indices. One that waits for the type of its column counts: the column has no value yet."""
    state = member.snapshot.head.index_state
    there = {*state.kartothek, *state.pending, *member.partition_on}
    wanted = [*(spec.indexed_dimensions if member.is_seed else ()), *sorted(spec.index_columns)]
    for column in wanted:
        if column in member.schema.names and column not in there:
            raise CubeInvalid(f"a kartothek index on column {column!r} is missing in dataset {member.name!r}")


def _check_overlap(members: Mapping[str, Member]) -> None:
    owner: dict[str, str] = {}
    for name in sorted(members):
        for column in members[name].payload:
            if (other := owner.setdefault(column, name)) != name:
                raise CubeInvalid(
                    f"found column {column!r} in the datasets {other!r} and {name!r}; a payload column is in one "
                    "dataset of a cube only"
                )


def _check_types(members: Mapping[str, Member]) -> None:
    known: dict[str, tuple[str, str]] = {}
    zoned: dict[str, tuple[str, str]] = {}
    for name in sorted(members):
        zones = zones_of(members[name].snapshot.head.metadata)
        for field in members[name].schema:
            if field.name in zones:
                other, zone = zoned.setdefault(field.name, (name, zones[field.name]))
                if (zone == NAIVE) != (zones[field.name] == NAIVE):
                    raise CubeInvalid(
                        f"column {field.name!r} is in the time zone {zone or 'none'} in dataset {other!r}, "
                        f"{zones[field.name] or 'none'} in {name!r}; convert the times of one of them"
                    )
            found = type_name(field.type)
            if is_hidden(field.name) or found == _NULL:
                continue
            other, kind = known.setdefault(field.name, (name, found))
            if kind != found:
                raise CubeInvalid(
                    f"found incompatible types for column {field.name!r}: {kind} in dataset {other!r}, {found} in "
                    f"{name!r}; a shared column has one type in a cube"
                )


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
