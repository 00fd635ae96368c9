"""Changes of a dataset's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from kubothek.dataset.handle import CommitResult, Handle, Maker
from kubothek.dataset.reading import rows_of
from kubothek.errors import SourceEmpty
from kubothek.table.log import Snapshot, Transaction
from kubothek.table.log.prepare.draft import require_rows_open
from kubothek.table.name_lists import names_in
from kubothek.table.operations import columns as operations
from kubothek.table.schema import parse_type

_INSTEAD = "write its columns by the cube's own verbs"


def arrow_schema(schema: pa.Schema | Mapping[str, str]) -> pa.Schema:
    """Return the schema of columns given as type by name. Raises SchemaMismatch for an unknown type."""
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([pa.field(name, parse_type(type_name)) for name, type_name in schema.items()])


class Columns(Handle):
    """Methods that add, rename and drop columns."""

    def add_columns(
        self,
        columns: pa.Schema | Mapping[str, str],
        *,
        id: str | None = None,  # noqa: A002
    ) -> CommitResult:
        """Add columns, null in all rows, in one commit that rewrites no file: ``{"delay": "int64"}``.

        ``id``  as for :meth:`append`

        Other libraries read the rows; plateau cannot select by such a column until all files have it. Raises
        SchemaMismatch for a column that exists or an invalid type, InputError, OwnedByAnother.
        """
        added = arrow_schema(columns)
        self._require_no_member("given columns", _INSTEAD)

        def start(now: Transaction) -> Maker:
            require_rows_open(now.snapshot.head)
            return lambda snapshot: operations.add_columns(snapshot, added, by=self._author)

        return self._commit("add-columns", id, (added,), start)

    def rename_columns(
        self,
        names: Mapping[str, str],
        *,
        id: str | None = None,  # noqa: A002
    ) -> CommitResult:
        """Rename columns, ``{"old": "new"}``, in one commit that rewrites all files, in bounded memory.

        ``id``  as for :meth:`append`

        Old versions keep the old names. A column that partitions, sorts, buckets, or has an index or skipping metadata
        is refused. Raises InputError, SchemaMismatch, OwnedByAnother, and Conflict if there was any other commit
        meanwhile.
        """
        names = dict(names)
        return self._rewrite("rename-columns", id, sorted(names.items()), lambda now: operations.renamed(now, names))

    def drop_columns(
        self,
        columns: Sequence[str] | str,
        *,
        id: str | None = None,  # noqa: A002
    ) -> CommitResult:
        """Drop columns, in one commit that rewrites all files, in bounded memory; old versions keep the columns.

        ``id``  as for :meth:`append`

        A column that partitions, sorts, buckets, or has an index or skipping metadata is refused. Raises InputError,
        OwnedByAnother, and Conflict if there was any other commit meanwhile.
        """
        columns = names_in("columns", columns)
        return self._rewrite("drop-columns", id, columns, lambda now: operations.without(now, columns))

    def _rewrite(
        self, verb: str, commit_id: str | None, says: Sequence[object], decide: Callable[[Snapshot], dict[str, str]]
    ) -> CommitResult:
        self._require_no_member("given other columns", _INSTEAD)

        def start(now: Transaction) -> Maker:
            require_rows_open(now.snapshot.head)
            names = decide(now.snapshot)
            rows = operations.with_columns(rows_of(self._store, now.snapshot, list(names)), names)
            try:
                written = self._written(now, rows, None)
            except SourceEmpty:
                written = None
            return lambda snapshot: operations.rewritten(snapshot, names, written, by=self._author)

        return self._commit(verb, commit_id, says, start)
