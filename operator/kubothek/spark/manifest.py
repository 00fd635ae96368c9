"""Manifest of the files that a task wrote, for the driver: one row per file, the same for all kinds of work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kubothek.table.log import PartitionFile

SCHEMA: Final = "label string, key string, rows bigint, bytes bigint, sha3 string, indexed string"
"""``indexed``: the index files that the task stored, as JSON, in a line without label."""

_TYPES: Final[dict[str, pa.DataType]] = {
    "label": pa.string(),
    "key": pa.string(),
    "rows": pa.int64(),
    "bytes": pa.int64(),
    "sha3": pa.string(),
    "indexed": pa.string(),
}


def written(file: PartitionFile) -> dict[str, Any]:
    """Return the line of a file."""
    return {"label": file.label, "key": file.key, "rows": file.rows, "bytes": file.bytes, "sha3": file.sha3}


def file_of(line: Mapping[str, Any]) -> PartitionFile:
    """Return the file of a line."""
    return PartitionFile(line["label"], line["key"], line["rows"], line["bytes"], line["sha3"])


def batch_of(lines: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Return lines as a record batch for Spark; columns that a line does not name are NULL."""
    return pa.RecordBatch.from_pylist(list(lines), schema=pa.schema(_TYPES))
