"""The files of a change feed as Arrow datasets, whose columns of the feed are constant in each file.

Arrow knows the constants of a file from its partition expression, as it knows the values in its path. A condition on
them selects files without opening them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kubothek.storage.base import Store
from kubothek.table.changes.plan import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    FEED_COLUMNS,
    INSERT,
    FileChanges,
    with_feed_columns,
)
from kubothek.table.scan.read import open_files


def open_changes(store: Store, items: Iterable[FileChanges], schema: pa.Schema) -> ds.FileSystemDataset:
    """Return the files of these items, in their order, with the columns of a feed.

    A row of a removed file is a ``delete``, one of an added file an ``insert``.

    ``schema``  of the table, in which its rows are read

    Raises PartitionInvalid for a path that does not fit the schema, AccessDenied for a symbolic link.
    """
    named = [(key, _constants(item, kind)) for item in items for kind, key in _keys(item)]
    constants = (each for _, each in named)
    return open_files(store, [key for key, _ in named], with_feed_columns(schema), constants=constants)


def _keys(item: FileChanges) -> Iterator[tuple[str, str]]:
    yield from ((DELETE, key) for key in item.removed)
    yield from ((INSERT, key) for key in item.added)


def _constants(item: FileChanges, kind: str) -> pc.Expression:
    return (
        (pc.field(CHANGE_TYPE) == kind)
        & (pc.field(COMMIT_VERSION) == item.version)
        & (pc.field(COMMIT_TIMESTAMP) == moment(item.time))
    )


def moment(time: datetime) -> pa.Scalar[Any]:
    """Return the time of a commit as a value of its column."""
    scalar: pa.Scalar[Any] = pa.scalar(time, FEED_COLUMNS.field(COMMIT_TIMESTAMP).type)
    return scalar
