"""Clauses of a merge by key: what happens to rows that match, and to rows that do not, as in SQL's MERGE."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from kubothek.api.meta import Strict
from kubothek.api.rules import Rule

_Expression = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class MergeClause(Strict):
    """A clause of a merge."""

    new_values: Annotated[dict[str, _Expression] | None, Field(alias="set", min_length=1, max_length=100)] = None
    """The new value of each column, an SQL expression over `source.<column>` and `target.<column>`: `source.price *
    1.1`. Default: all columns of the source."""
    where: _Expression | None = None
    """The rows that the clause applies to, an SQL condition: `source.seen > target.seen`. Default: all."""


class MatchedClause(MergeClause):
    """A clause for rows of the Dataset with a source row."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.set) || self.action == 'Update'",
            message="only Update accepts set: remove it",
            holds=lambda self: self.new_values is None or self.action == "Update",
        ),
    )

    action: Literal["Update", "Delete", "Nothing"]
    """Update: take values of the source row. Delete: delete the row. Nothing: leave it as it is."""


class NotMatchedClause(MergeClause):
    """A clause for source rows without a row of the Dataset."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.set) || self.action == 'Insert'",
            message="only Insert accepts set: remove it",
            holds=lambda self: self.new_values is None or self.action == "Insert",
        ),
    )

    action: Literal["Insert", "Nothing"]
    """Insert: add a row. Nothing: ignore the source row."""


class UnsourcedClause(MergeClause):
    """A clause for rows of the Dataset without a source row."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.set) == (self.action == 'Update')",
            message="Update requires set, as there is no source row to take values from; other actions do not accept "
            "it",
            holds=lambda self: (self.new_values is not None) == (self.action == "Update"),
        ),
    )

    action: Literal["Update", "Delete", "Nothing"]
    """Update: set columns. Delete: delete the row. Nothing: leave it as it is."""
