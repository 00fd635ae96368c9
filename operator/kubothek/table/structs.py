"""Structs as a Parquet file returns them: where a struct is null, so are its fields, and a null slot has no content.

Arrow allows any value below a null struct. JSON readers and DuckDB leave such values or nulls there, which casts to
required fields refuse, and which a hash over slots would take in before the file is written but not after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def settled(column: Any, kind: Any) -> Any:
    """Return a column of structs as values of this type; a column of any other type is cast only.

    Raises ArrowInvalid for a required field that is null in a struct which is not, and what casts raise.
    """
    if not (pa.types.is_struct(column.type) and pa.types.is_struct(kind)):
        return column if column.type == kind else column.cast(kind)
    names = [field.name for field in kind]
    if column.type.names != names or not _has_nulls(column):
        return column if column.type == kind else column.cast(kind)
    return _settled(column, kind, np.ones(len(column), np.bool_))


def _has_nulls(array: Any) -> bool:
    if array.null_count:
        return True
    fields = range(array.type.num_fields) if pa.types.is_struct(array.type) else ()
    return any(_has_nulls(array.field(number)) for number in fields)


def _settled(array: Any, kind: Any, above: Mask) -> Any:
    valid = above & _valid(array)
    children = []
    for number, field in enumerate(kind):
        child = array.field(number)
        there = valid & _valid(child)
        if not field.nullable and (missing := int(valid.sum() - there.sum())):
            raise pa.ArrowInvalid(f"field {field.name!r} cannot be null, and is null in {missing} rows")
        if pa.types.is_struct(field.type) and child.type.names == [each.name for each in field.type]:
            child = _settled(child, field.type, valid)
        else:
            child = child if there.all() else child.take(pa.array(np.arange(len(child)), mask=~there))
            child = child if child.type == field.type else child.cast(field.type)
        children.append(child if field.nullable else _required(child))
    found = pa.StructArray.from_arrays(children, fields=[*kind], mask=pa.array(~valid))
    return found if found.null_count else _required(found)


def _valid(array: Any) -> Mask:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _required(array: Any) -> Any:
    """Return the same values without nulls, which are below a null struct: readers ignore their slots."""
    if not array.null_count and array.buffers()[0] is None:
        return array
    if isinstance(array, pa.StructArray):
        children = [array.field(number) for number in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=[*array.type])
    values = [array.values] if pa.types.is_nested(array.type) else None
    own = 1 if pa.types.is_fixed_size_list(array.type) else 2 if values else len(array.buffers())
    buffers = [None, *array.buffers()[1:own]]
    return pa.Array.from_buffers(array.type, len(array), buffers, 0, array.offset, values)
