"""FlatBuffers to events. Every position is checked: invalid input ends in an error, never in a crash.

The runtime package's own reader checks none (a negative offset reads from the end), hence this one. What a later
version added is noted in ``unknown``: fields at the end of a table are skipped; members of a union, and members with an
enumerated value that is not known, become ``Unknown``.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.spec.fields import Choice, Field, Record, Simple, Table, Type, Union, Vector, fields_of, slots_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.timestamps import SIZE, Timestamp
from kubothek.odf.spec.unknown import Unknown

_SCALARS: Final = {
    width: struct.Struct(f"<{code}")
    for width, code in (
        (("u", 1), "B"),
        (("u", 2), "H"),
        (("u", 4), "I"),
        (("i", 2), "h"),
        (("i", 4), "i"),
        (("u", 8), "Q"),
    )
}
_NUMBERS: Final = {Simple.NUMBER: ("u", 8), Simple.UINT32: ("u", 4), Simple.INT32: ("i", 4)}
NEWER: Final = "written by a newer version of Open Data Fabric"
REMEDY: Final = "read it with a newer version of Kubothek"
_DEEPEST: Final = 100
"""The most tables within each other: types of columns contain types."""
_SHARED: Final = 4
"""The most bytes that are read, as a multiple of the buffer: parts can be shared, but not without end."""


class Decoder:
    """A reader of one buffer.

    ``unknown``  the parts that were read and are not known, by path
    """

    def __init__(self, data: bytes) -> None:
        self.unknown: list[str] = []
        self._data = data
        self._depth = 0
        self._budget = _SHARED * len(data)

    def root(self, record: type) -> Record:
        """Decode the table that the buffer holds. Raises FormatInvalid, which names the field."""
        return self.table(record, self.follow(0), record.__name__)

    def table(self, record: type, position: int, where: str) -> Record:
        """Decode the table at a position."""
        self._spend(4, where)
        if self._depth == _DEEPEST:
            raise FormatInvalid(f"tables are nested deeper than {_DEEPEST} levels")
        self._depth += 1
        vtable = position - self.scalar(("i", 4), position)
        size = self.scalar(("u", 2), vtable)
        values = {field.name: self._field(field, position, vtable, size, where) for field in fields_of(record)}
        for number in range(slots_of(record), (size - 4) // 2):
            if self.slot(number, position, vtable, size) is not None:
                self.unknown.append(f"{where}: field {number}")
        self._depth -= 1
        return record(**values)

    def scalar(self, form: tuple[str, int], position: int) -> int:
        """Return the number at a position."""
        if not 0 <= position <= len(self._data) - form[1]:
            raise FormatInvalid(f"a FlatBuffers offset leads to {position}, out of {len(self._data)} bytes")
        (number,) = _SCALARS[form].unpack_from(self._data, position)
        return int(number)

    def follow(self, position: int) -> int:
        """Return the target of the offset at a position."""
        return position + self.scalar(("u", 4), position)

    def slot(self, number: int, position: int, vtable: int, size: int) -> int | None:
        """Return the position of the field in a slot, or None if it is absent."""
        entry = 4 + 2 * number
        offset = self.scalar(("u", 2), vtable + entry) if entry + 2 <= size else 0
        return position + offset if offset else None

    def bytes_at(self, position: int, where: str) -> bytes:
        """Return the vector of bytes, or the string, at a position."""
        length, start = self.scalar(("u", 4), position), position + 4
        if length > len(self._data) - start:
            raise FormatInvalid(f"{where} has {length} bytes, more than are left of the buffer")
        self._spend(length, where)
        return self._data[start : start + length]

    def _field(self, field: Field, position: int, vtable: int, size: int, where: str) -> Any:
        place = self.slot(field.slot, position, vtable, size)
        where = f"{where}.{field.text}"
        if isinstance(field.type, Union):
            value = self.slot(field.slot + 1, position, vtable, size)
            tag = self.scalar(("u", 1), place) if place is not None else 0
            found = self._union(field.type, tag, value, where) if tag else None
        elif place is None:
            found = None if field.optional else _default(field.type)
        else:
            found = self._value(field.type, place, where)
        if found is None and not field.optional:
            raise FormatInvalid(f"{where} is missing")
        return found

    def _value(self, kind: Type, place: int, where: str) -> Any:
        if isinstance(kind, Choice):
            number = self.scalar(("i", kind.width), place)
            if number < 0:
                raise FormatInvalid(f"{where} is {number}, which is none of {[each.value for each in kind.values]}")
            if number >= len(kind.values):
                self.unknown.append(f"{where}: value {number}")
                raise UnsupportedVersion(f"{where}: {NEWER} (value {number}); {REMEDY}")
            return kind.values[number]
        if kind in _NUMBERS:
            return self.scalar(_NUMBERS[kind], place)
        if kind is Simple.FLAG:
            return self.scalar(("u", 1), place) != 0
        if kind is Simple.MOMENT:
            if place > len(self._data) - SIZE:
                raise FormatInvalid(f"{where} is out of the buffer")
            return Timestamp.unpack(self._data, place)
        return self._referred(kind, self.follow(place), where)

    def _referred(self, kind: Type, position: int, where: str) -> Any:
        if isinstance(kind, Table):
            return self.table(kind.record, position, where)
        if isinstance(kind, Vector):
            return self._vector(kind.item, position, where)
        data = self.bytes_at(position, where)
        if kind is Simple.TEXT:
            try:
                return data.decode()
            except UnicodeDecodeError:
                raise FormatInvalid(f"{where} is not UTF-8") from None
        if kind is Simple.HASH:
            return Multihash.from_bytes(data)
        return DatasetId.from_bytes(data) if kind is Simple.ID else data

    def _vector(self, item: Type, position: int, where: str) -> tuple[Any, ...]:
        length = self.scalar(("u", 4), position)
        self._spend(4 * length, where)
        places = range(position + 4, position + 4 + 4 * length, 4)
        if isinstance(item, Union):
            return tuple(self._wrapped(item, self.follow(place), f"{where}[{n}]") for n, place in enumerate(places))
        return tuple(self._referred(item, self.follow(place), f"{where}[{n}]") for n, place in enumerate(places))

    def _wrapped(self, union: Union, position: int, where: str) -> Any:
        vtable = position - self.scalar(("i", 4), position)
        size = self.scalar(("u", 2), vtable)
        return self._field(Field("value", "value", union, False, 0), position, vtable, size, where)

    def _union(self, union: Union, tag: int, place: int | None, where: str) -> Any:
        if tag > len(union.members):
            self.unknown.append(f"{where}: member {tag}")
            return Unknown(tag)
        if place is None:
            raise FormatInvalid(f"{where} has a tag and no value")
        member = union.members[tag - 1]
        position = self.follow(place)
        depth = self._depth
        try:
            return self.table(member, position, where)
        except UnsupportedVersion:
            self._depth = depth
            if getattr(member, "essential", False):
                raise
            return Unknown(tag)

    def _spend(self, size: int, where: str) -> None:
        self._budget -= size
        if self._budget < 0:
            raise FormatInvalid(f"{where} refers to more than the buffer can hold")


def _default(kind: Type) -> Any:
    if kind in _NUMBERS:
        return 0
    return kind.values[0] if isinstance(kind, Choice) else None
