"""What passes between those who write files, those who commit them, and those who look values up; plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias

Bound: TypeAlias = bool | int | float | str
"""A value in a form that compares as the value does and fits into JSON; see :func:`~.types.bound_of`."""


class IndexKind(StrEnum):
    """Who can read an index, and what a commit costs."""

    KARTOTHEK = "Kartothek"
    """One file, exact for its head: plateau and kartothek read and update it; a commit writes it anew."""
    NATIVE = "Native"
    """Sorted files that a commit adds to: for many values; only Kubothek reads it."""


class Dialect(StrEnum):
    """Which library besides Kubothek can update an index on strings (seen with kartothek 5.3 and plateau 4.6); both
    read either.
    """

    KARTOTHEK = "Kartothek"
    PLATEAU = "Plateau"


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One sorted file of a native index. ``low`` and ``high`` None: no such bound is known."""

    key: str
    rows: int
    bytes: int
    low: Bound | None
    high: Bound | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in manifests, and as it travels from a task to the driver."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Collected:
    """The index entries of some data files, gathered while they were written or by reading them.

    ``labels``  whose entries these are: all of them, for each column in ``files``
    ``files``   sorted files by column, already in the store; empty for a column without values
    """

    labels: frozenset[str] = frozenset()
    files: Mapping[str, tuple[IndexFile, ...]] = field(default_factory=dict)

    def of(self, column: str) -> frozenset[str]:
        """Return the labels whose entries for this column are here."""
        return self.labels if column in self.files else frozenset()

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the way from a task to the driver."""
        files = {column: [file.to_json() for file in each] for column, each in self.files.items()}
        return {"labels": sorted(self.labels), "files": files}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the inverse of :meth:`to_json`."""
        files = {column: tuple(IndexFile(**file) for file in each) for column, each in found["files"].items()}
        return cls(frozenset(found["labels"]), files)

    @classmethod
    def joined(cls, parts: Iterable[Collected]) -> Self:
        """What several writers gathered; a column that one of them did not index has to be read from the files."""
        some = [part for part in parts if part.labels]
        if not some:
            return cls()
        columns = [column for column in some[0].files if all(column in part.files for part in some)]
        files = {column: tuple(file for part in some for file in part.files[column]) for column in columns}
        return cls(frozenset().union(*(part.labels for part in some)), files)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a compaction made of files of a native index; ``covered`` are labels whose entries it added."""

    files: tuple[IndexFile, ...]
    instead_of: frozenset[str]
    covered: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexChange:
    """What a commit knows of indices. The default is right for every commit: all indices that are there are kept.

    ``collected``  entries of files that it adds; what is missing is read from the files
    ``wanted``     kind by column: indices that are to be there after it; None drops the column's index
    ``fresh``      of ``wanted``, those that start from ``collected`` alone: built anew
    ``merged``     compactions by column; of no effect where another one was faster
    ``dialect``    of string indices from now on; None = as it is
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
    ``pending``    the kind by column, of indices that are made as soon as the column has a type
    """

    uuid: str
    kartothek: Mapping[str, Any] = field(default_factory=dict)
    native: Mapping[str, str] = field(default_factory=dict)
    dialect: Dialect = Dialect.KARTOTHEK
    pending: Mapping[str, IndexKind] = field(default_factory=dict)

    def wanted(self) -> dict[str, IndexKind]:
        """Return the kind of each column's index, pending ones included: what writers gather entries for."""
        return {**self.pending, **self.kinds()}

    def kinds(self) -> dict[str, IndexKind]:
        """The kind of each column's index that is there; of two, which a foreign writer can make, Kartothek's."""
        native = dict.fromkeys(self.native, IndexKind.NATIVE)
        return native | dict.fromkeys(self.kartothek, IndexKind.KARTOTHEK)


NO_CHANGE: Final = IndexChange()
