"""What tasks tell the driver of the files they wrote: a row a file, in one form for all kinds of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.table.log import PartitionFile

SCHEMA: Final = "label string, key string, rows bigint, bytes bigint, sha3 string, indexed string"
"""``indexed``: on a line without label, the index files that the task stored, as JSON."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "label": pa.string(),
    "key": pa.string(),
    "rows": pa.int64(),
    "bytes": pa.int64(),
    "sha3": pa.string(),
    "indexed": pa.string(),
}


def written(file: PartitionFile) -> dict[str, Any]:
    """The line of a file."""
    return {"label": file.label, "key": file.key, "rows": file.rows, "bytes": file.bytes, "sha3": file.sha3}


def file_of(line: Mapping[str, Any]) -> PartitionFile:
    """The file of such a line."""
    return PartitionFile(line["label"], line["key"], line["rows"], line["bytes"], line["sha3"])


def batch_of(lines: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Lines on their way to Spark; columns that a line does not name are NULL."""
    return pa.RecordBatch.from_pylist(list(lines), schema=pa.schema(_TYPES))
