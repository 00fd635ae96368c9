"""Events to FlatBuffers, byte for byte as the reference serialises them (HS-09, ODF 0.34.1, "Metadata Block Hashing").

A table's variable-size fields are created first, in the order of the schema and depth first; then all of its fields are
added, again in that order, not sorted by size. The rest is what every FlatBuffers builder does.
"""

from __future__ import annotations

from typing import Any, Final

import flatbuffers

from kubothek.errors import InputError
from kubothek.odf.spec.fields import Choice, Field, Record, Simple, Table, Type, Union, Vector, fields_of, slots_of
from kubothek.odf.spec.timestamps import SIZE
from kubothek.odf.spec.unknown import Unknown

RANGES: Final = {
    Simple.NUMBER: (0, (1 << 64) - 1),
    Simple.UINT32: (0, (1 << 32) - 1),
    Simple.INT32: (-(1 << 31), (1 << 31) - 1),
}
"""The least and the largest number of each type."""


class Encoder:
    """Encodes one table to one buffer; ``alignment`` is that of ``Timestamp``: 4, or 1 in manifests of version 2."""

    def __init__(self, alignment: int) -> None:
        self._builder: Any = flatbuffers.Builder()
        self._alignment = alignment

    def finish(self, record: Record) -> bytes:
        """Return the buffer, without file identifier. Raises InputError for what the format cannot hold."""
        self._builder.Finish(self._table(record))
        return bytes(self._builder.Output())

    def _table(self, record: Record) -> int:
        kind: type = type(record)
        fields = [(field, getattr(record, field.name)) for field in fields_of(kind)]
        present = [(field, value, self._create(field.type, value)) for field, value in fields if value is not None]
        self._builder.StartObject(slots_of(kind))
        for field, value, offset in present:
            self._add(field, value, offset)
        return int(self._builder.EndObject())

    def _create(self, kind: Type, value: Any) -> int:
        """Write a value of variable size, and return its offset; 0 for values that are in the table itself."""
        if kind is Simple.TEXT:
            return int(self._builder.CreateString(value))
        if kind in (Simple.BYTES, Simple.HASH, Simple.ID):
            return int(self._builder.CreateByteVector(bytes(value)))
        if isinstance(kind, Table):
            return self._table(value)
        if isinstance(kind, Union):
            if isinstance(value, Unknown):
                raise InputError(f"member {value.tag} of a union is of a later version of ODF and cannot be written")
            return self._table(value)
        if isinstance(kind, Vector):
            return self._vector(kind.item, value)
        return 0

    def _vector(self, item: Type, values: tuple[Any, ...]) -> int:
        create = self._wrapped if isinstance(item, Union) else self._create
        offsets = [create(item, value) for value in values]
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _wrapped(self, union: Type, value: Any) -> int:
        field = Field("value", "value", union, False, 0)
        offset = self._create(union, value)
        self._builder.StartObject(2)
        self._add(field, value, offset)
        return int(self._builder.EndObject())

    def _add(self, field: Field, value: Any, offset: int) -> None:
        builder, slot = self._builder, field.slot
        absent = None if field.optional else 0  # an optional scalar is written whatever its value
        if isinstance(field.type, Union):
            builder.PrependUint8Slot(slot, field.type.tag(value), 0)
            builder.PrependUOffsetTRelativeSlot(slot + 1, offset, 0)
        elif isinstance(field.type, Choice):
            prepend = builder.PrependInt16Slot if field.type.width == 2 else builder.PrependInt32Slot
            prepend(slot, field.type.values.index(value), absent)
        elif isinstance(field.type, Simple) and field.type in RANGES:
            low, high = RANGES[field.type]
            if not low <= value <= high:
                raise InputError(f"{field.text} {value} is not a number from {low} to {high}")
            self._number(field.type)(slot, value, absent)
        elif field.type is Simple.FLAG:
            builder.PrependBoolSlot(slot, value, absent)
        elif field.type is Simple.MOMENT:
            builder.Prep(self._alignment, SIZE)
            builder.head -= SIZE
            builder.Bytes[builder.head : builder.head + SIZE] = value.pack()
            builder.Slot(slot)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)

    def _number(self, kind: Type) -> Any:
        if kind is Simple.NUMBER:
            return self._builder.PrependUint64Slot
        return self._builder.PrependUint32Slot if kind is Simple.UINT32 else self._builder.PrependInt32Slot
