"""Cells as numbers, to match rows of two datasets without a join of the rows themselves.

The seed's values number each dimension, so a cell is one number, and its lookup is an array index or one hash. Rows
keep the seed's order, so sorted rows stay sorted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

_LARGEST: Final = 1 << 62
_SPARE: Final = 4
"""Most array elements per row of a lookup array by cell; above that, cells are hashed."""


class Cells:
    """The rows of the seed as cells; ``part`` is the partition number of each row.

    ``columns``  the dimensions, in one chunk each, without NULL
    """

    def __init__(self, part: Numbers, columns: Mapping[str, pa.Array[Any]]) -> None:
        self._part = part
        self._columns = columns
        self._numbered: dict[str, tuple[Numbers, pa.Array[Any]]] = {}

    def ascending(self) -> bool:
        """Return whether rows are strictly ascending, so that they are sorted and have no duplicate cells."""
        if len(self._part) < 2:
            return True
        above = self._part[1:] > self._part[:-1]
        same = self._part[1:] == self._part[:-1]
        for column in self._columns.values():
            before, here = column[:-1], column[1:]
            above |= same & _true(pc.less(before, here))
            same &= _true(pc.equal(before, here))
        return bool(above.all())

    def last(self, names: Sequence[str] | None = None) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that are the last of their cell; ``names``: dimensions of a cell, None = all."""
        chosen = list(self._columns) if names is None else names
        own, _, _, bound = self._matched(chosen, self._part, {name: self._columns[name] for name in chosen})
        rows = np.arange(len(own))
        found: npt.NDArray[np.bool_] = _last(own, rows, own, bound) == rows
        return found

    def find(self, own_part: Numbers, part: Numbers, columns: Mapping[str, pa.Array[Any]]) -> Numbers | None:
        """Return, for each row, the number of the other dataset's last row with the same cell; -1 if there is none.

        ``own_part``, ``part``  numbers of the shared combinations, for the rows here and for those of the other
        ``columns``             the dimensions of the other dataset

        None if both have the same cells at the same positions.
        """
        alike = len(columns) == len(self._columns) and np.array_equal(own_part, part)
        if alike and all(self._columns[name].equals(column) for name, column in columns.items()):
            return None
        own, theirs, rows, bound = self._matched(list(columns), part, columns, own_part)
        return _last(theirs, rows, own, bound)

    def _matched(
        self,
        names: Sequence[str],
        part: Numbers,
        columns: Mapping[str, pa.Array[Any]],
        own_part: Numbers | None = None,
    ) -> tuple[Numbers, Numbers, Numbers, int]:
        """Return the cells of both as numbers below a bound, and the other's rows whose cells may occur here."""
        own = (self._part if own_part is None else own_part).astype(np.int64)
        theirs = part.astype(np.int64)
        low, high = (int(own.min()), int(own.max())) if len(own) else (0, 0)
        bound = high - low + 1
        own, theirs = own - low, theirs - low
        rows = np.flatnonzero((theirs >= 0) & (theirs < bound))
        theirs = theirs[rows]
        for name in names:
            numbers, values = self._number(name)
            found = _positions(columns[name], values) if columns[name] is not self._columns[name] else numbers
            found = found[rows]
            known = found >= 0
            if not known.all():
                rows, theirs, found = rows[known], theirs[known], found[known]
            if bound * max(1, len(values)) > _LARGEST:
                own, theirs, rows, found, bound = _denser(own, theirs, rows, found)
            own = own * len(values) + numbers
            theirs = theirs * len(values) + found
            bound *= max(1, len(values))
        return own, theirs, rows, bound

    def _number(self, name: str) -> tuple[Numbers, pa.Array[Any]]:
        if name not in self._numbered:
            encoded = _one_zero(self._columns[name]).dictionary_encode()
            self._numbered[name] = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
        return self._numbered[name]


def _positions(column: pa.Array[Any], values: pa.Array[Any]) -> Numbers:
    found: Any = pc.index_in(_one_zero(column), values)
    positions: Numbers = found.fill_null(-1).to_numpy().astype(np.int64)
    return positions


def _one_zero(column: pa.Array[Any]) -> pa.Array[Any]:
    """Replace -0.0 by 0.0: Arrow hashes bits, in which they differ."""
    return pc.add(column, 0.0) if pa.types.is_floating(column.type) else column


def _true(found: Any) -> npt.NDArray[np.bool_]:
    result: npt.NDArray[np.bool_] = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return result


def _denser(
    own: Numbers, theirs: Numbers, rows: Numbers, found: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers, int]:
    """Return the same cells with the smallest possible numbers."""
    different, own = np.unique(own, return_inverse=True)
    place = np.minimum(np.searchsorted(different, theirs), max(0, len(different) - 1))
    known = different[place] == theirs if len(different) else np.zeros(len(theirs), np.bool_)
    return own, place[known], rows[known], found[known], max(1, len(different))


def _last(cells: Numbers, rows: Numbers, wanted: Numbers, bound: int) -> Numbers:
    """Return the largest row number of each wanted cell, -1 if there is none."""
    if bound <= _SPARE * (len(cells) + len(wanted)) + 1024:
        by_cell = np.full(bound, -1, np.int64)
        np.maximum.at(by_cell, cells, rows)
        return by_cell[wanted]
    last = pa.table({"cell": pa.array(cells), "row": pa.array(rows)}).group_by("cell").aggregate([("row", "max")])
    at: Any = pc.index_in(pa.array(wanted), last.column("cell").combine_chunks())
    rows_found: Any = last.column("row_max").take(at)
    found: Numbers = rows_found.fill_null(-1).to_numpy()
    return found
