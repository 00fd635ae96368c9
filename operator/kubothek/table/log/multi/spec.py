"""The definition of a cube: its columns, and the names of its datasets (Kartothek Cube, "Format")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from kubothek.errors import CubeInvalid, InputError
from kubothek.table.name_lists import names_in

SEPARATOR: Final = "++"
"""Separates the prefix of a cube from the name of a dataset."""
LEGACY_TIME: Final = "KLEE_TS"
"""A partition column that kartothek's predecessor added; cubes hide it."""

_NAME: Final = re.compile(r"[a-zA-Z0-9+_-]{1,200}")


@dataclass(frozen=True, slots=True)
class CubeSpec:
    """The attributes of a cube. Raises CubeInvalid, which names the rule, for what cannot be one.

    ``uuid_prefix``        what the uuids of its datasets begin with, ahead of ``++``
    ``dimension_columns``  the columns that together name a cell, in the order in which rows are sorted
    ``partition_columns``  the columns that partition the seed
    ``seed_dataset``       the dataset that says which cells there are
    ``index_columns``      further columns with an index, wherever they occur
    ``suppress_index_on``  dimensions that need no index on the seed
    """

    uuid_prefix: str
    dimension_columns: tuple[str, ...]
    partition_columns: tuple[str, ...]
    seed_dataset: str = "seed"
    index_columns: frozenset[str] = frozenset()
    suppress_index_on: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_prefix(self.uuid_prefix)
        check_member_name(self.seed_dataset, "seed_dataset")
        for what, columns in (
            ("dimension_columns", self.dimension_columns),
            ("partition_columns", self.partition_columns),
        ):
            _check_columns(what, columns)
        _require_apart("partition_columns", self.partition_columns, "dimension_columns", self.dimension_columns)
        for what, others in (
            ("dimension_columns", self.dimension_columns),
            ("partition_columns", self.partition_columns),
        ):
            _require_apart("index_columns", self.index_columns, what, others)
        if strange := sorted(self.suppress_index_on - set(self.dimension_columns)):
            raise CubeInvalid(
                f"suppress_index_on must be a subset of dimension_columns, but names {_list(strange)} as well"
            )

    @classmethod
    def of(
        cls,
        uuid_prefix: str,
        *,
        dimension_columns: Sequence[str] | str,
        partition_columns: Sequence[str] | str,
        seed_dataset: str = "seed",
        index_columns: Iterable[str] | str = (),
        suppress_index_on: Iterable[str] | str = (),
    ) -> Self:
        """Create the spec from user input: one name stands for a sequence of one. Raises CubeInvalid."""
        return cls(
            uuid_prefix,
            _ordered("dimension_columns", dimension_columns),
            _ordered("partition_columns", partition_columns),
            seed_dataset,
            frozenset(_names("index_columns", index_columns)),
            frozenset(_names("suppress_index_on", suppress_index_on)),
        )

    @property
    def indexed_dimensions(self) -> tuple[str, ...]:
        """The dimensions that must have an index on the seed."""
        return tuple(column for column in self.dimension_columns if column not in self.suppress_index_on)

    def uuid(self, name: str) -> str:
        """Return the uuid of a member. Raises CubeInvalid for a name that cannot be one."""
        return f"{self.uuid_prefix}{SEPARATOR}{check_member_name(name)}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, without the prefix."""
        return {
            "dimension_columns": list(self.dimension_columns),
            "partition_columns": list(self.partition_columns),
            "seed_dataset": self.seed_dataset,
            "index_columns": sorted(self.index_columns),
            "suppress_index_on": sorted(self.suppress_index_on),
        }

    @classmethod
    def from_json(cls, uuid_prefix: str, found: Mapping[str, Any]) -> Self:
        """Read the form of :meth:`to_json`. Raises CubeInvalid, KeyError."""
        return cls(
            uuid_prefix,
            tuple(found["dimension_columns"]),
            tuple(found["partition_columns"]),
            found["seed_dataset"],
            frozenset(found["index_columns"]),
            frozenset(found["suppress_index_on"]),
        )


def check_prefix(prefix: str) -> str:
    """Return the prefix if it is valid. Raises CubeInvalid."""
    return _check_name("uuid_prefix", prefix)


def check_member_name(name: str, what: str = "dataset name") -> str:
    """Return the name if a member can have it. Raises CubeInvalid."""
    return _check_name(what, name)


def memberships(uuid: str) -> Iterator[tuple[str, str]]:
    """Yield each cube prefix and member name that a uuid can mean: ``a+++b`` is ``+b`` of ``a``, and ``b`` of ``a+``.

    Nothing for a uuid without ``++``, at no cost.
    """
    at = uuid.find(SEPARATOR)
    while at != -1:
        prefix, name = uuid[:at], uuid[at + len(SEPARATOR) :]
        if prefix and name and SEPARATOR not in prefix and SEPARATOR not in name:
            yield prefix, name
        at = uuid.find(SEPARATOR, at + 1)


def is_hidden(column: str) -> bool:
    """Return whether cubes hide a column (as kartothek 5.3 does)."""
    return column.startswith("__") or column == LEGACY_TIME


def _check_name(what: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CubeInvalid(
            f"{what} ({name!r}) is not compatible with kartothek: use 1 to 200 of the characters a-z A-Z 0-9 + - _"
        )
    if SEPARATOR in name:
        raise CubeInvalid(f"{what} ({name!r}) must not contain {SEPARATOR}, which separates prefix and dataset")
    return name


def _ordered(what: str, columns: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(columns, set | frozenset | Mapping):
        raise CubeInvalid(f"{what} is a {type(columns).__name__}, which has no order of its own; use a list")
    return _names(what, columns)


def _names(what: str, columns: Iterable[str] | str) -> tuple[str, ...]:
    try:
        return names_in(what, columns)
    except InputError as error:
        raise CubeInvalid(str(error)) from None


def _check_columns(what: str, columns: tuple[str, ...]) -> None:
    _names(what, columns)
    if not columns:
        raise CubeInvalid(f"{what} must not be empty")
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise CubeInvalid(f"{what} contains duplicates: {_list(twice)}")


def _require_apart(what: str, columns: Iterable[str], other: str, others: Iterable[str]) -> None:
    if shared := sorted(set(columns) & set(others)):
        raise CubeInvalid(f"{what} cannot share columns with {other}, but share the following: {_list(shared)}")


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
