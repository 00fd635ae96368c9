"""The forms of the classes of ``events``: the fields of a table, their types and slots."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeAlias

from kubothek.odf.spec.data_schema import Int16Enum, Int32, UInt32
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown

Record: TypeAlias = Any
"""An instance of one of the dataclasses of ``events`` and ``sources``."""


class Simple(Enum):
    """Types without parts. A HASH, an ID and BYTES are ``[ubyte]`` in FlatBuffers, a MOMENT is an inline struct.

    A NUMBER is unsigned with 64 bits.
    """

    TEXT = str
    NUMBER = int
    INT32 = Int32
    UINT32 = UInt32
    FLAG = bool
    BYTES = bytes
    HASH = Multihash
    ID = DatasetId
    MOMENT = Timestamp


@dataclass(frozen=True, slots=True)
class Choice:
    """An enumeration: a signed number of ``width`` bytes, the position of the value; in YAML its name."""

    values: tuple[Enum, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Table:
    """A table of its own."""

    record: type


@dataclass(frozen=True, slots=True)
class Union:
    """One of several tables; the tag is its position, from 1. In YAML ``kind`` names it."""

    members: tuple[type, ...]

    def tag(self, value: Record) -> int:
        """Return the tag of a value. Raises ValueError for one that is not a member."""
        return self.members.index(type(value)) + 1


@dataclass(frozen=True, slots=True)
class Vector:
    """Any number of one type. Of a union: of tables that wrap it, as FlatBuffers has no vectors of unions."""

    item: Type


Type: TypeAlias = Simple | Choice | Table | Union | Vector


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table; ``slot`` is its place in the vtable; a union has its tag there, its value in the next one."""

    name: str
    text: str
    """Its name in YAML."""
    type: Type
    optional: bool
    slot: int


@cache
def fields_of(record: type) -> tuple[Field, ...]:
    """Return the fields of a table in the order of the schema."""
    hints, found, slot = typing.get_type_hints(record, include_extras=True), [], 0
    for field in dataclasses.fields(record):
        kind, optional = _type(hints[field.name])
        first, *rest = field.name.split("_")
        text = first + "".join(map(str.capitalize, rest))
        found.append(Field(field.name, text, kind, optional, slot))
        slot += 2 if isinstance(kind, Union) else 1
    return tuple(found)


@cache
def slots_of(record: type) -> int:
    """Return the number of slots that its vtable can have."""
    return sum(2 if isinstance(field.type, Union) else 1 for field in fields_of(record))


def union_of(alias: Any) -> Union:
    """Return the union of a type alias of ``events``."""
    kind, _ = _type(alias)
    assert isinstance(kind, Union)
    return kind


def _type(hint: Any) -> tuple[Type, bool]:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    optional = types.NoneType in options
    members = tuple(option for option in options if option not in (types.NoneType, Unknown))
    if Unknown in options:
        return Union(members), optional
    (only,) = members
    if typing.get_origin(only) is tuple:
        item, _ = _type(typing.get_args(only)[0])
        return Vector(item), optional
    if only in _SIMPLE:
        return Simple(only), optional
    if issubclass(only, Enum):
        return Choice(tuple(only), 2 if issubclass(only, Int16Enum) else 4), optional
    return Table(only), optional


_SIMPLE = frozenset(simple.value for simple in Simple)
