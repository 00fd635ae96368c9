"""Plain data that writers, commits and lookups of indices exchange."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote
from uuid import uuid4

Bound: TypeAlias = bool | int | float | str
"""A value in a form that compares like the value and fits JSON; see :func:`~.types.bound_of`."""


class IndexKind(StrEnum):
    """The kind of an index: which libraries can read it, and what a commit costs."""

    KARTOTHEK = "Kartothek"
    """One file, exact for its head: plateau and kartothek read and update it; each commit rewrites it."""
    NATIVE = "Native"
    """Sorted files that commits add to: for columns with many values; only Kubothek reads it."""


class Dialect(StrEnum):
    """Library besides Kubothek that can update an index on strings (verified with kartothek 5.3 and plateau 4.6).

    Both libraries can read either dialect.
    """

    KARTOTHEK = "Kartothek"
    PLATEAU = "Plateau"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One sorted file of a native index. ``low`` and ``high`` None: the bound is unknown."""

    key: str
    rows: int
    bytes: int
    low: Bound | None
    high: Bound | None

    def to_json(self) -> dict[str, Any]:
        """Return the form in manifests and in task results."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Collected:
    """The index entries of some data files, collected while the files were written or by reading them.

    ``labels``  the labels of these files; for each column in ``files`` all of them are covered
    ``files``   sorted files by column, already in the store; empty for a column without values
    """

    labels: frozenset[str] = frozenset()
    files: Mapping[str, tuple[IndexFile, ...]] = field(default_factory=dict)

    def of(self, column: str) -> frozenset[str]:
        """Return the labels whose entries for this column are included."""
        return self.labels if column in self.files else frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return plain data, to send from a task to the driver."""
        files = {column: [file.to_json() for file in each] for column, each in self.files.items()}
        return {"labels": sorted(self.labels), "files": files}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the inverse of :meth:`to_json`."""
        files = {column: tuple(IndexFile(**file) for file in each) for column, each in found["files"].items()}
        return cls(frozenset(found["labels"]), files)

    @classmethod
    def joined(cls, parts: Iterable[Collected]) -> Self:
        """Return the joined entries of several writers, without the columns that one of them did not index."""
        some = [part for part in parts if part.labels]
        if not some:
            return cls()
        columns = [column for column in some[0].files if all(column in part.files for part in some)]
        files = {column: tuple(file for part in some for file in part.files[column]) for column in columns}
        return cls(frozenset().union(*(part.labels for part in some)), files)


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a compaction of native index files; ``covered`` are labels whose entries it added."""

    files: tuple[IndexFile, ...]
    instead_of: frozenset[str]
    covered: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """The index part of a commit. The default suits every commit: it keeps all existing indices.

    ``collected``  entries of added files; missing ones are read from the files
    ``wanted``     kind by column: indices that exist afterwards; None drops the column's index
    ``fresh``      columns of ``wanted`` whose index starts from ``collected`` alone: a rebuild
    ``merged``     compactions by column; ignored where another compaction came first
    ``dialect``    dialect of string indices from now on; None = unchanged
    """

    collected: Collected = Collected()
    wanted: Mapping[str, IndexKind | None] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()
    merged: Mapping[str, Merged] = field(default_factory=dict)
    dialect: Dialect | None = None


@dataclass(frozen=True, slots=True)
class IndexState:
    """The indices of one head.

    ``kartothek``  the head's ``indices``: a key by column, or a legacy map of values to labels
    ``native``     the key of a manifest by column
    ``pending``    the kind by column, of indices that are created when the column gets a type
    """

    uuid: str
    kartothek: Mapping[str, Any] = field(default_factory=dict)
    native: Mapping[str, str] = field(default_factory=dict)
    dialect: Dialect = Dialect.KARTOTHEK
    pending: Mapping[str, IndexKind] = field(default_factory=dict)

    def wanted(self) -> dict[str, IndexKind]:
        """Return the kind of each column's index, pending ones included: writers collect entries for these."""
        return {**self.pending, **self.kinds()}

    def kinds(self) -> dict[str, IndexKind]:
        """Return the kind of each column's existing index; Kartothek's if a foreign writer made a second one."""
        native = dict.fromkeys(self.native, IndexKind.NATIVE)
        return native | dict.fromkeys(self.kartothek, IndexKind.KARTOTHEK)


NO_CHANGE: Final = IndexChange()


# Keys of index objects: Kartothek's own (Kartothek specification, "Index files"), and native ones under ``.kubothek``.
#
# Every key that Kubothek writes ends in a hash of the object's bytes, and a head or a manifest names the key. A reader
# can thus tell a damaged or outdated object from the committed one.


_DIGITS: Final = 32
"""Hexadecimal digits of SHA-256 in a key."""
_HASH: Final = re.compile(rf"-([0-9a-f]{{{_DIGITS}}})(?:\.by-dataset-index)?\.(?:parquet|json)\Z")


def kartothek_key(uuid: str, column: str, moment: datetime, digest: str) -> str:
    """Return Kartothek's key of an index that was made at ``moment``, in naive UTC as kartothek 5.3 writes it."""
    stamp = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{uuid}/indices/{quote(column, safe='')}/{quote(stamp, safe='')}-{digest}.by-dataset-index.parquet"


def new_file_key(uuid: str, column: str, digest: str) -> str:
    """Return a new key for a sorted file of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}-{digest}.parquet"


def new_manifest_key(uuid: str, column: str, digest: str) -> str:
    """Return a new key for a manifest of a native index."""
    return f"{_native(uuid, column)}{uuid4().hex}-{digest}.json"


def digest_of(data: bytes | memoryview) -> str:
    """Return the hash of an index object, as in its key."""
    return sha256(data).hexdigest()[:_DIGITS]


def digest_in(key: str) -> str | None:
    """Return the hash in the key of an index object; None if an older Kubothek or another program wrote it."""
    found = _HASH.search(key)
    return None if found is None else found[1]


def _native(uuid: str, column: str) -> str:
    return f".kubothek/{uuid}/index/{quote(column, safe='')}/"
