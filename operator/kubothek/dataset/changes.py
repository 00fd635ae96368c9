"""The change feed of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from kubothek.dataset.handle import Handle
from kubothek.table.changes import changed_rows, plan_changes
from kubothek.table.log import Version
from kubothek.table.name_lists import names_in


class ChangeFeed(Handle):
    """The method that reads changes row by row."""

    def changes(
        self, from_version: Version, to_version: Version | None = None, *, key: Sequence[str] | str = ()
    ) -> pa.RecordBatchReader:
        """Return the rows that the commits after ``from_version`` changed, up to ``to_version``, as a stream.

        ``from_version``  not included: applied to it in order, the changes give ``to_version``. 0 = the empty table
                          before the first commit
        ``to_version``    included; None = the current version
        ``key``           columns that identify a row; with them, a row whose other columns changed is an update

        The columns are those of ``to_version``, null where a row is older than its column, then ``_change_type``
        (``insert``, ``delete``; with a key also ``update_preimage`` and ``update_postimage``), ``_commit_version`` and
        ``_commit_timestamp``. Rows are in order of versions. Only files that a commit added or removed are opened; a
        compaction changes no row. Without a key, equal rows count as often as they occur. NULL equals NULL, NaN equals
        NaN.

        Raises VersionNotFound for a version that does not exist, or since which changes have expired; InputError for
        reversed versions and for a key that is not a column; SchemaMismatch if a column changed its type between.
        """
        changes = plan_changes(self._log(), from_version, to_version, key=names_in("key", key))
        return changed_rows(self._store, changes)
