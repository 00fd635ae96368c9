"""The files of each member that a condition on the cube's partition columns removes (``kartothek.io.eager_cube``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kubothek.errors import CubeInvalid
from kubothek.storage import Store
from kubothek.table.expressions import TRUE, Predicate
from kubothek.table.log import Change, Operation
from kubothek.table.log.multi.members import Member
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.operations import filters
from kubothek.table.scan.plan import plan


def check_condition(spec: CubeSpec, where: Predicate) -> None:
    """Raise CubeInvalid for a condition on other columns than the cube's partition columns."""
    if others := sorted(where.columns - set(spec.partition_columns)):
        raise CubeInvalid(
            "can only remove partitions with conditions concerning the cube's physical partition columns "
            f"({', '.join(map(repr, spec.partition_columns))}), not {', '.join(map(repr, others))}"
        )


def removed(store: Store, member: Member, where: Predicate, *, by: str) -> Change:
    """Return the change that removes the matching partitions of a member, by the member's own partition columns.

    A member with none of these columns is emptied: each of its rows may belong to a matching partition.
    """
    own = _projected(where, member.partition_on)
    bound = own.bind(member.schema) if member.schema.names else own
    labels = () if not member.schema.names else tuple(file.label for file in plan(store, member.snapshot, bound).files)
    return Change(
        operation=Operation.DELETE,
        removed=labels,
        reads=filters.reads(bound, member.snapshot),
        by=by,
    )


def replaced(change: Change, removal: Change) -> Change:
    """Return one change that adds the files of ``change`` and removes those of ``removal``."""
    return replace(
        change,
        operation=Operation.REPLACE,
        removed=(*change.removed, *removal.removed),
        reads=removal.reads,
    )


def _projected(where: Predicate, columns: tuple[str, ...]) -> Predicate:
    """Return the part of a condition that concerns only these columns."""
    conjunctions = [tuple(term for term in terms if term.column in columns) for terms in where.conjunctions]
    return TRUE if () in conjunctions else Predicate(tuple(conjunctions))


def by_member(store: Store, members: Mapping[str, Member], where: Predicate, *, by: str) -> dict[str, Change]:
    """Return the change of each of these members."""
    return {name: removed(store, member, where, by=by) for name, member in members.items()}
