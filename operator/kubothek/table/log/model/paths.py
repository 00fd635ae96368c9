"""Partition paths: what a data file's key says about all of its rows.

A *partition path* is ``<column>=<value>/…``, each part percent-encoded, empty for a table without partitions
(Kartothek specification, "Filenames"). :mod:`kubothek.table.partitioning` writes them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

import pyarrow as pa

from kubothek.errors import PartitionInvalid

_AS_OURS: Final = re.compile(r"(?:[\w.~-]+=[\w.~-]*/)*[\w.~-]+=[\w.~-]*", re.ASCII)
"""A path that quoting again leaves unchanged, for speed: most are, and a table can have a hundred thousand."""

PartitionValue = int | float | str | bytes | bool | date | datetime


def partition_path(key: str) -> str:
    """Return the partition path of a data file's key, ``""`` if the table is not partitioned.

    Each value is quoted as Kubothek writes it, whatever the writer of the file did, so that paths compare.
    Components without ``=`` are skipped, as in kartothek.
    """
    directories = key.split("/")[2:-1]
    path = "/".join(directories)
    if _AS_OURS.fullmatch(path):
        return path
    return "/".join(
        f"{_requote(name)}={_requote(value)}"
        for name, equals, value in (directory.partition("=") for directory in directories)
        if equals
    )


def parse_path(path: str, schema: pa.Schema) -> dict[str, PartitionValue]:
    """Return the typed values in a partition path of any writer, in its order.

    Parts that are not ``<column>=<value>`` are ignored, as kartothek does. Raises PartitionInvalid for a
    column that is not in the schema and for a value that is not of its column's type.
    """
    values: dict[str, PartitionValue] = {}
    for segment in path.split("/"):
        name, equals, text = segment.partition("=")
        if not equals or "=" in text:
            continue
        column = unquote(name)
        if column not in schema.names:
            raise PartitionInvalid(f"path {path!r}: {column!r} is not a column of the table")
        data_type = schema.field(column).type
        try:
            values[column] = value_parser(data_type)(text)
            pa.scalar(values[column], data_type)  # rejects a number with too many digits
        except NOT_A_VALUE as error:
            raise PartitionInvalid(
                f"path {path!r}: {text!r} in column {column!r} is not of type {data_type}"
            ) from error
    return values


NOT_A_VALUE: Final = (ValueError, KeyError, OverflowError, TypeError, pa.ArrowException)
"""What :func:`value_parser` and Arrow raise for a text that is not a value of its column's type."""


def value_parser(data_type: pa.DataType) -> Callable[[str], PartitionValue]:
    """Return the parser from encoded text to a value; bool, binary and time zones are for tables of other writers."""
    types = pa.types
    if types.is_integer(data_type):
        return int
    if types.is_floating(data_type):
        return lambda text: float(unquote(text))
    if types.is_timestamp(data_type):
        return lambda text: datetime.fromisoformat(unquote(text))
    if types.is_date(data_type):
        return date.fromisoformat
    if types.is_boolean(data_type):
        return {"True": True, "False": False}.__getitem__
    if types.is_binary(data_type):
        return unquote_to_bytes
    return lambda text: unquote(text, errors="strict")


def _requote(text: str) -> str:
    return quote(unquote(text), safe="")


# Number of files in each directory of a table, from which its partitions are counted.
#
# A count reads every file; the update after a change reads only the files of the change. So a writer that commits
# repeatedly counts once.


def directory(key: str) -> str:
    """Return the directory of a data file, which is the same for all files of a partition."""
    return key.rpartition("/")[0]


def count(keys: Iterable[str]) -> Counter[str]:
    """Return the number of files in each directory."""
    return Counter(map(directory, keys))


def recount(before: Mapping[str, int], *, removed: Iterable[str], added: Iterable[str]) -> dict[str, int]:
    """Return the numbers after these keys were removed and added, without empty directories."""
    after = dict(before)
    for place in map(directory, added):
        after[place] = after.get(place, 0) + 1
    for place in map(directory, removed):
        after[place] -= 1
        if not after[place]:
            del after[place]
    return after
