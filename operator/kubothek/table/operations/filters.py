"""Filters of changes: their types, what they may select, and protection against selecting everything by accident."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import DatasetNotFound, FilterMatchesAll, RowLevelNeeded
from kubothek.table.expressions import TRUE, Predicate
from kubothek.table.log import Head, Matching, Snapshot
from kubothek.table.scan.plan import PlannedFile

_SHOWN = 3


def bind(where: Predicate, snapshot: Snapshot) -> Predicate:
    """Return the filter, typed to the table's columns. Raises FilterInvalid, DatasetNotFound."""
    require_table(snapshot)
    return where.bind(snapshot.schema if snapshot.schema is not None else pa.schema([]))


def require_table(snapshot: Snapshot) -> None:
    """Raise DatasetNotFound if the dataset has no version yet."""
    if not snapshot.exists:
        raise DatasetNotFound(f"dataset {snapshot.head.uuid!r} has no version yet; its first commit adds rows")


def reads(where: Predicate, snapshot: Snapshot) -> Matching:
    """Return the read predicate of a change that selects by this bound filter."""
    schema = snapshot.schema if snapshot.schema is not None else pa.schema([])
    return Matching.of(where, schema, snapshot.head.partition_keys if len(schema) else ())


def surely(condition: pc.Expression) -> pc.Expression:
    """Return the condition with false for null, as SQL's WHERE selects rows for which it is TRUE."""
    valid: Any = condition.is_valid()
    return cast("pc.Expression", valid & condition)


def require_findable(where: Predicate, head: Head) -> None:
    """Raise RowLevelNeeded for a column that neither partitions the table nor is indexed.

    Such a filter selects rows inside of files, which a user must request. In plateau's updates (``delete_scope``) it
    is ignored, and everything is deleted.
    """
    partition_keys, indexed = head.partition_keys, frozenset(head.index_state.kinds())
    unknown = sorted(where.columns - set(partition_keys) - indexed)
    if unknown:
        raise RowLevelNeeded(
            f"where names {_names(unknown)}, which neither partitions the table nor is indexed; filter on "
            f"{_names([*partition_keys, *sorted(indexed)])}, or say rowLevel: true to rewrite the files that hold "
            "matching rows"
        )


def require_entire_files(where: Predicate, files: Sequence[PlannedFile]) -> None:
    """Raise RowLevelNeeded if there are files of which only some rows match."""
    if files:
        raise RowLevelNeeded(
            f"where {where} matches rows inside of files, not whole files ({len(files)}, among them "
            f"{_names([file.key for file in files[:_SHOWN]])}); filter on partition columns only, or say "
            "rowLevel: true to rewrite these files"
        )


def require_not_everything(where: Predicate, matched: int, total: int, *, hint: str = "") -> None:
    """Raise FilterMatchesAll if a filter other than ``TRUE`` selects every file."""
    if total and matched >= total and where != TRUE:
        raise FilterMatchesAll(
            f"where {where} matches all there is (files: {total}); if that is meant, write TRUE{hint}. "
            "Nothing was changed"
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no column"
