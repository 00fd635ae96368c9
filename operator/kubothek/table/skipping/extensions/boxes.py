"""GeometryBox: the bounding box of the points of a file, given as two columns of numbers or as WKB.

A file is skipped if the box lies outside the bounds of a filter on x and y or, for WKB, if the queried point lies
outside. An entry is ``struct<xmin, ymin, xmax, ymax: double>``, all null without points. Only WKB of points is
supported, with or without a SRID and further dimensions; a file with other geometries is always read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid
from kubothek.table.expressions import Op, Term
from kubothek.table.expressions.terms import is_nan
from kubothek.table.skipping.indexes import Collector, IndexType, Values, refuse
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.clauses import Mask, flags

_EDGES: Final = ("xmin", "ymin", "xmax", "ymax")
_ENTRY: Final = pa.struct([pa.field(edge, pa.float64()) for edge in _EDGES])
_SRID: Final = 0x20000000
_DIMENSIONS: Final = 0xC0000000
_Numbers = npt.NDArray[np.float64]


class GeometryBox(IndexType):
    """The bounding box of all points."""

    name: ClassVar[str] = "GeometryBox"
    foreign: ClassVar[bool] = False

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        """Raise SkippingInvalid unless the columns are WKB, or two numbers for x and y."""
        if len(types) == 1 and not (pa.types.is_binary(types[0]) or pa.types.is_large_binary(types[0])):
            raise refuse(types[0], instead=": one column holds WKB, which is binary; x and y are two columns")
        if len(types) == 2 and (other := [each for each in types if not _is_number(each)]):
            raise refuse(other[0], instead=": x and y are floats, or integers of at most 32 bits")
        if len(types) not in (1, 2):
            raise SkippingInvalid("it is on one column of WKB, or on two for x and y")

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        """Return ``struct<xmin, ymin, xmax, ymax>``."""
        return _ENTRY

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        """Return the collector for one file."""
        return _Box()

    def may_match(self, term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
        """Return which files may hold a row for which the term is TRUE."""
        if term.never:
            return None
        if len(definition.columns) == 1:
            found = _points(term, entries)
        else:
            axis = [column.lower() for column in definition.columns].index(term.column.lower())
            found = _along(term, entries.field(_EDGES[axis]), entries.field(_EDGES[axis + 2]))
        return None if found is None else flags(entries.is_null()) | found


def _is_number(data_type: pa.DataType) -> bool:
    """Return whether a double holds the numbers exactly."""
    small = pa.types.is_integer(data_type) and data_type.bit_width <= 32
    return small or pa.types.is_float32(data_type) or pa.types.is_float64(data_type)


def _along(term: Term, low: Any, high: Any) -> Mask | None:
    """Return which files may match a comparison of one coordinate; their values lie between ``low`` and ``high``.

    NaN is above all numbers (docs/filters.md): a file with NaN has it as ``high``.
    """
    if term.op is Op.IS_NOT_NULL:
        return flags(high.is_valid())
    values = term.value if isinstance(term.value, tuple) else (term.value,)
    if term.op is Op.IS_NULL or any(map(is_nan, values)):
        return None
    numbers = [float(value) for value in values]
    match term.op:
        case Op.EQ | Op.IN:
            masks = [flags(pc.and_(pc.less_equal(low, pa.scalar(value)), _reaches(high, value))) for value in numbers]
            found: Mask = np.logical_or.reduce(masks)
            return found
        case Op.LT:
            return flags(pc.less(low, pa.scalar(numbers[0])))
        case Op.LE:
            return flags(pc.less_equal(low, pa.scalar(numbers[0])))
        case Op.GT | Op.GE:
            return flags(_reaches(high, numbers[0]))
        case _:
            return None


def _reaches(high: Any, value: float) -> Any:
    return pc.or_(pc.greater_equal(high, pa.scalar(value)), pc.is_nan(high))


def _points(term: Term, entries: Any) -> Mask | None:
    """Return which files may hold one of the points that the term gives as WKB."""
    if term.op not in (Op.EQ, Op.IN):
        return None
    values = term.value if isinstance(term.value, tuple) else (term.value,)
    found = coordinates(pa.array(values, pa.binary()))
    if found is None:
        return None
    xmin, ymin, xmax, ymax = (entries.field(edge) for edge in _EDGES)
    mask = np.zeros(len(entries), bool)
    for x, y in zip(*found, strict=True):
        if math.isnan(x) or math.isnan(y):
            return None
        across = pc.and_(pc.less_equal(xmin, x), pc.greater_equal(xmax, x))
        mask |= flags(pc.and_(across, pc.and_(pc.less_equal(ymin, y), pc.greater_equal(ymax, y))))
    return mask


class _Box:
    """The growing bounding box of one file."""

    def __init__(self) -> None:
        self._found: tuple[list[float], list[float]] = [], []
        """The bounds of each batch, along x and y; may include NaN."""
        self._understood = True

    def update(self, values: Sequence[Values]) -> None:
        """Add rows. With two columns each coordinate counts by itself, also where the other is NULL."""
        if len(values) == 2:
            found: tuple[_Numbers, _Numbers] | None = _numbers(values[0].array), _numbers(values[1].array)
        else:
            found = coordinates(values[0].array)
        if found is None:
            self._understood = False
            return
        for numbers, bounds in zip(found, self._found, strict=True):
            if len(numbers):
                bounds += [float(np.fmin.reduce(numbers)), float(numbers.max())]

    def finish(self) -> Any:
        """Return the entry; None if a geometry is not a supported point."""
        if not self._understood:
            return None
        (xmin, xmax), (ymin, ymax) = map(_span, self._found)
        return pa.array([{"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax}], _ENTRY)


def _span(bounds: list[float]) -> tuple[float | None, float | None]:
    """Return the least number, None if there is none, and the greatest, with NaN above all numbers."""
    if not bounds:
        return None, None
    least = float(np.fmin.reduce(bounds))
    return None if math.isnan(least) else least, float(np.max(bounds))


def _numbers(values: Any) -> _Numbers:
    found: _Numbers = values.drop_null().to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def coordinates(values: Any) -> tuple[_Numbers, _Numbers] | None:
    """Return the coordinates of points in WKB (ISO) or EWKB (PostGIS), without NULLs; None if one is not a point."""
    values = values.drop_null().cast(pa.large_binary())
    if not len(values):
        return np.empty(0), np.empty(0)
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
    if lengths.min() < 21:
        return None
    starts = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values)]
    data = np.frombuffer(values.buffers()[2], np.uint8)
    little = data[starts]
    if (little > 1).any():
        return None
    kind = np.where(little == 1, _read(data, starts + 1, "<u4"), _read(data, starts + 1, ">u4"))
    shifted = np.where(kind & _SRID, 9, 5)
    if ((kind & ~np.uint32(_SRID | _DIMENSIONS)) % 1000 != 1).any() or (lengths < shifted + 16).any():
        return None
    at = starts + shifted
    x = np.where(little == 1, _read(data, at, "<f8"), _read(data, at, ">f8"))
    y = np.where(little == 1, _read(data, at + 8, "<f8"), _read(data, at + 8, ">f8"))
    return x, y


def _read(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], form: str) -> Any:
    """Return the numbers of this format at these byte offsets."""
    size = np.dtype(form).itemsize
    return data[starts[:, None] + np.arange(size)].reshape(-1).view(form)
