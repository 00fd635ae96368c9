"""Keys of index objects. Kartothek's are its own (kartothek-facts 1.5), native ones lie beside the dataset."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote
from uuid import uuid4


def kartothek_key(uuid: str, column: str, moment: datetime) -> str:
    """Where Kartothek puts an index that was made at this moment, in naive UTC as kartothek 5.3 writes it."""
    stamp = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{uuid}/indices/{quote(column, safe='')}/{quote(stamp, safe='')}.by-dataset-index.parquet"


def new_file_key(uuid: str, column: str) -> str:
    """A new name for a sorted file of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}.parquet"


def new_manifest_key(uuid: str, column: str) -> str:
    """A new name for a manifest of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}.json"


def _native(uuid: str, column: str) -> str:
    return f".kubothek/{uuid}/index/{quote(column, safe='')}/"
