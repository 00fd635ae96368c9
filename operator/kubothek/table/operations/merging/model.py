"""A merge by key: which clauses there are, and which rows each of them changes. Plain data, without I/O.

Names and meaning are those of SQL's MERGE. The first clause of a kind whose condition is TRUE for a row applies to it;
a row that no clause applies to stays as it is, and a source row that no clause inserts is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from kubothek.errors import InputError


class MergeAction(StrEnum):
    """What a clause does with its rows."""

    UPDATE = "Update"
    INSERT = "Insert"
    DELETE = "Delete"
    NOTHING = "Nothing"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """One clause: ``MergeClause("Update", set={"price": "source.price * 1.1"}, where="source.price > 0")``.

    ``set``    by column of the table, an SQL expression over ``source.*`` and ``target.*``; None = every column that
               the source has gets the source's value. Of an insert, other columns are NULL
    ``where``  the rows that it applies to, as an SQL condition; None = all
    """

    action: MergeAction
    set: Mapping[str, str] | None = None
    where: str | None = None


Clauses: TypeAlias = str | MergeClause | Mapping[str, Any] | Sequence["MergeClause | Mapping[str, Any] | str"] | None
"""One clause or several: an action's name, a clause, or its fields as a mapping; None = nothing."""

_ALLOWED: Final = {
    "whenMatched": (MergeAction.UPDATE, MergeAction.DELETE, MergeAction.NOTHING),
    "whenNotMatched": (MergeAction.INSERT, MergeAction.NOTHING),
    "whenNotMatchedBySource": (MergeAction.UPDATE, MergeAction.DELETE, MergeAction.NOTHING),
}


@dataclass(frozen=True, slots=True)
class Merge:
    """The clauses of a merge.

    ``key``                         columns of both sides that identify a row. A key with a NULL matches no row
    ``when_matched``                for rows of the table with a source row of the same key
    ``when_not_matched``            for source rows without a row in the table
    ``when_not_matched_by_source``  for rows of the table without a source row
    """

    key: tuple[str, ...]
    when_matched: tuple[MergeClause, ...] = ()
    when_not_matched: tuple[MergeClause, ...] = ()
    when_not_matched_by_source: tuple[MergeClause, ...] = ()

    @classmethod
    def of(
        cls,
        key: str | Sequence[str],
        when_matched: Clauses = None,
        when_not_matched: Clauses = None,
        when_not_matched_by_source: Clauses = None,
    ) -> Merge:
        """Return the merge of clauses in any form. Raises InputError, which names the clause and its field."""
        columns = (key,) if isinstance(key, str) else tuple(key)
        if not columns or len(set(columns)) < len(columns):
            raise InputError(f"key {list(columns)}: name each column that identifies a row, once")
        merge = cls(
            columns,
            _clauses("whenMatched", when_matched),
            _clauses("whenNotMatched", when_not_matched),
            _clauses("whenNotMatchedBySource", when_not_matched_by_source),
        )
        if all(clause.action is MergeAction.NOTHING for clause in merge.clauses):
            raise InputError(
                "a merge without clauses changes nothing: say in whenMatched, whenNotMatched or "
                "whenNotMatchedBySource what happens"
            )
        return merge

    @property
    def clauses(self) -> tuple[MergeClause, ...]:
        """All clauses."""
        return (*self.when_matched, *self.when_not_matched, *self.when_not_matched_by_source)

    @property
    def takes_all_columns(self) -> bool:
        """Whether a clause takes all columns of the source."""
        taking = (MergeAction.UPDATE, MergeAction.INSERT)
        some = (*self.when_matched, *self.when_not_matched)
        return any(clause.set is None and clause.action in taking for clause in some)

    @property
    def depends_on_other_rows(self) -> bool:
        """Whether rows without a source row are changed."""
        return any(clause.action is not MergeAction.NOTHING for clause in self.when_not_matched_by_source)


def _clauses(kind: str, given: Clauses) -> tuple[MergeClause, ...]:
    if given is None:
        return ()
    some = [given] if isinstance(given, str | MergeClause | Mapping) else list(given)
    names = [kind] if len(some) == 1 else [f"{kind}[{number}]" for number in range(len(some))]
    return tuple(_clause(name, kind, each) for name, each in zip(names, some, strict=True))


def _clause(name: str, kind: str, given: MergeClause | Mapping[str, Any] | str) -> MergeClause:
    fields: Mapping[str, Any]
    if isinstance(given, MergeClause):
        fields = {"action": given.action, "set": given.set, "where": given.where}
    else:
        fields = {"action": given} if isinstance(given, str) else given
    if unknown := sorted(set(fields) - {"action", "set", "where"}):
        raise InputError(f"{name}: unknown field {unknown[0]!r}; there are action, set and where")
    allowed = _ALLOWED[kind]
    action = next((each for each in allowed if each.lower() == str(fields.get("action", "")).lower()), None)
    if action is None:
        raise InputError(f"{name}: action {fields.get('action')!r} is not one of {', '.join(allowed)}")
    values, where = fields.get("set"), fields.get("where")
    if values is not None:
        _require_values(name, action, values)
    elif kind == "whenNotMatchedBySource" and action is MergeAction.UPDATE:
        raise InputError(f"{name}: these rows have no source row to take values from; name columns and values in set")
    if where is not None and not isinstance(where, str):
        raise InputError(f"{name}: where is {where!r}; write a condition as SQL text")
    return MergeClause(action, None if values is None else dict(values), where)


def _require_values(name: str, action: MergeAction, values: object) -> None:
    if action not in (MergeAction.UPDATE, MergeAction.INSERT):
        raise InputError(f"{name}: {action} sets no columns; remove set")
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"{name}: set is {values!r}; write columns and their values, or leave it out for all columns")
    for column, value in values.items():
        if not isinstance(value, str):
            raise InputError(
                f"{name}: set {column!r} is {value!r}; write an expression as SQL text, such as 'source.{column}', "
                "'1.5', \"'text'\" or 'NULL'"
            )
