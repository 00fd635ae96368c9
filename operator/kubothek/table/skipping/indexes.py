"""The interface of index types, in the three parts of Xskipper's plug-in interface, and their registry.

An index type defines what to collect of a file (here), the form in which to store it (its entry type, which also gives
the metadata column), and what an entry means for a predicate (:mod:`kubothek.table.skipping.prune.clauses`). Xskipper's
three types are in :mod:`kubothek.table.skipping.kinds` and :mod:`kubothek.table.skipping.bloom.index_type`. Other types
are stored next to Xskipper's directory, because its REFRESH fails on unknown types.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from kubothek.errors import SkippingInvalid
from kubothek.table.schema import type_name
from kubothek.table.skipping.columns import find
from kubothek.table.skipping.model import IndexDefinition


class Values:
    """The values of one column in one batch; several indices on the column share its derived values."""

    def __init__(self, array: pa.Array[Any]) -> None:
        self.array = array

    @cached_property
    def unique(self) -> pa.Array[Any]:
        """Each value once, without NULL."""
        found = self.array.unique()
        return found.drop_null() if found.null_count else found


class Collector(Protocol):
    """Collector of one index's entry for one file. ``update`` gets a :class:`Values` for each column of the index."""

    def update(self, values: Sequence[Values]) -> None:
        """Add some rows of the file; never none."""

    def finish(self) -> pa.Array[Any] | None:
        """Return the entry, an array of one element of the entry type; None if the file cannot be described.

        For an Xskipper type the file then has no entries at all, because a null would mean that it holds no values.
        """


class IndexType(ABC):
    """One type of index. Stateless.

    ``name``     as in manifests; in lower case in Xskipper's files
    ``foreign``  whether it is one of Xskipper's types
    """

    name: ClassVar[str]
    foreign: ClassVar[bool] = False

    @abstractmethod
    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        """Raise SkippingInvalid if columns of these types cannot have this index, or its params are invalid."""

    @abstractmethod
    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        """Return the type of an entry, in memory and in files."""

    @abstractmethod
    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        """Return the collector for one file."""


_TYPES: Final[dict[str, IndexType]] = {}


def register(index_type: IndexType) -> None:
    """Register an index type. Raise ValueError if another class has its name, in any case."""
    name = index_type.name.lower()
    if name in _TYPES and type(_TYPES[name]) is not type(index_type):
        raise ValueError(f"there is another index type {name!r}")
    _TYPES[name] = index_type


def is_known(name: str) -> bool:
    """Return whether this index type is registered."""
    return name.lower() in _TYPES


def index_type(name: str) -> IndexType:
    """Return the index type. Raise SkippingInvalid, naming the registered ones, if there is none of this name."""
    if (found := _TYPES.get(name.lower())) is None:
        there_are = ", ".join(sorted(each.name for each in _TYPES.values()))
        raise SkippingInvalid(f"there is no index type {name!r}; there are {there_are}")
    return found


def types_of(definition: IndexDefinition, schema: pa.Schema) -> list[pa.DataType]:
    """Return the types of its columns. Raises SkippingInvalid for a missing column."""
    return [find(schema, column).type for column in definition.columns]


def check(definitions: Iterable[IndexDefinition], schema: pa.Schema, partition_keys: Sequence[str] = ()) -> None:
    """Raise SkippingInvalid, naming the index, for one that a table of this schema cannot have, or has twice.

    A column that is all NULL, and so has no type yet, can have one: its entries begin with the first values.
    """
    partitions = {key.lower() for key in partition_keys}
    seen: set[str] = set()
    for definition in definitions:
        kind = index_type(definition.type)
        what = f"{kind.name} on {', '.join(map(repr, definition.columns))}"
        if not definition.columns:
            raise SkippingInvalid(f"{kind.name}: name the column that it is on")
        if definition.column in seen:
            raise SkippingInvalid(f"{what} is there twice")
        seen.add(definition.column)
        if found := [column for column in definition.columns if column.lower() in partitions]:
            raise SkippingInvalid(
                f"{what}: {found[0]!r} is a partition column, which needs none: paths tell its values"
            )
        try:
            types = types_of(definition, schema)
            if not any(map(pa.types.is_null, types)):
                kind.check(definition, types)
        except SkippingInvalid as error:
            raise SkippingInvalid(f"{what}: {error}") from error


def refuse(data_type: pa.DataType, *, instead: str = "") -> SkippingInvalid:
    """Return the error for an index type that does not support values of this type."""
    return SkippingInvalid(f"values of type {type_name(data_type)} cannot have it{instead}")
