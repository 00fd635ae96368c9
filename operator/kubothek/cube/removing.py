"""Which files of each member a condition on the cube's partition columns takes away (``kartothek.io.eager_cube``)."""

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
    """Raises CubeInvalid for a condition on anything but the cube's partition columns."""
    if others := sorted(where.columns - set(spec.partition_columns)):
        raise CubeInvalid(
            "can only remove partitions with conditions concerning the cube's physical partition columns "
            f"({', '.join(map(repr, spec.partition_columns))}), not {', '.join(map(repr, others))}"
        )


def removed(store: Store, member: Member, where: Predicate, *, by: str) -> Change:
    """The change that takes away the partitions of a member that match, as far as its own partition columns tell.

    A member that is partitioned on none of the columns is emptied: every row of it may belong to such a partition.
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
    """Both in one: the rows of one change in the place of what another takes away."""
    return replace(
        change,
        operation=Operation.REPLACE,
        removed=(*change.removed, *removal.removed),
        reads=removal.reads,
    )


def _projected(where: Predicate, columns: tuple[str, ...]) -> Predicate:
    """What a condition says of these columns alone."""
    conjunctions = [tuple(term for term in terms if term.column in columns) for terms in where.conjunctions]
    return TRUE if () in conjunctions else Predicate(tuple(conjunctions))


def by_member(store: Store, members: Mapping[str, Member], where: Predicate, *, by: str) -> dict[str, Change]:
    """The change of each of these members."""
    return {name: removed(store, member, where, by=by) for name, member in members.items()}
