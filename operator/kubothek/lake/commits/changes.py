"""What a caller asks a transaction to commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa


class Operation(StrEnum):
    """What kind of change a commit is, as history shows it."""

    CREATE = "Create"
    APPEND = "Append"
    REPLACE = "Replace"
    DELETE = "Delete"
    OVERWRITE = "Overwrite"
    ROLLBACK = "Rollback"
    DROP = "Drop"
    """The dataset was deleted; its head is a tombstone."""
    RESTORE = "Restore"
    """The tombstone was taken back."""
    EXTERNAL = "External"
    """A foreign writer's change of the head, adopted."""
    RECOVERED = "Recovered"
    """A commit that a foreign writer had overwritten, merged again."""


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One data file: the label under which the head lists it, its key, and its size in rows and bytes."""

    label: str
    key: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """The change does not depend on what the table holds."""


@dataclass(frozen=True, slots=True)
class Everything:
    """The change depends on the whole table."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """The change depends on all files below these partition paths, e.g. ``month=1`` or ``month=1/day=2``.

    Paths are in the form that :func:`partition_path` gives.
    """

    paths: frozenset[str]


ReadPredicate = Nothing | Everything | Partitions
NOTHING: Final = Nothing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a dataset, relative to the snapshot that the transaction showed.

    ``added``           new files, in the order in which readers shall meet them; each under a new label
    ``removed``         labels of that snapshot that go
    ``reads``           what the change depends on; decides with ``removed`` which concurrent commits conflict
    ``schema``          the stored schema of the added rows; None if the change brings none
    ``partition_keys``  needed by the first change of a dataset; later it may repeat them. None = as they are
    ``indices``         new index file by column, exact for the result; None takes the index away
    ``metadata``        user metadata to set; None removes a key. ``kubothek_*`` is the protocol's own
    ``by``              who: a resource, a user; for history only
    """

    operation: Operation
    added: tuple[PartitionFile, ...] = ()
    removed: tuple[str, ...] = ()
    reads: ReadPredicate = NOTHING
    schema: pa.Schema | None = None
    partition_keys: tuple[str, ...] | None = None
    indices: Mapping[str, str | None] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""


def partition_path(key: str) -> str:
    """The partition path of a data file's key, ``""`` if the table is not partitioned.

    Each value is quoted as Kubothek writes it, however the writer of the file did, so that paths compare.
    Components without ``=`` say nothing about partitions and are skipped, as in kartothek (facts 1.1).
    """
    directories = key.split("/")[2:-1]
    return "/".join(
        f"{_requote(name)}={_requote(value)}"
        for name, equals, value in (directory.partition("=") for directory in directories)
        if equals
    )


def depends_on(reads: ReadPredicate, path: str) -> bool:
    """Whether a change with this read predicate depends on files of this partition path."""
    if isinstance(reads, Nothing):
        return False
    if isinstance(reads, Everything):
        return True
    while path:
        if path in reads.paths:
            return True
        path = path.rpartition("/")[0]
    return "" in reads.paths


def _requote(text: str) -> str:
    return quote(unquote(text), safe="")
