"""Prefix and Suffix: the distinct beginnings, or ends, of the strings of a file.

For columns whose values have few beginnings in each file although their bounds are wide: addresses, codes, paths. An
entry is ``struct<length: int32, values: list<string>>``. A value shorter than ``length`` is a whole string. One of
exactly ``length`` represents all strings that begin (end) with it. Lengths are in characters (code points).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.errors import SkippingInvalid
from kubothek.table.expressions import Op, Term
from kubothek.table.skipping.indexes import Collector, IndexType, Values, refuse
from kubothek.table.skipping.like_patterns import beginning, ending
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.clauses import Mask, any_of, flags

DEFAULT_LENGTH: Final = 8
MOST_LENGTH: Final = 64
MOST_VALUES: Final = 4096
"""Limit of one entry: if exceeded, all of its values are shortened."""

_ENTRY: Final = pa.struct([pa.field("length", pa.int32()), pa.field("values", pa.list_(pa.string()))])


def length_of(definition: IndexDefinition) -> int:
    """Return the number of characters to keep. Raises SkippingInvalid."""
    text = definition.params.get("length", str(DEFAULT_LENGTH))
    if not text.isdecimal() or not 1 <= int(text) <= MOST_LENGTH:
        raise SkippingInvalid(f"length {text!r} is no number from 1 to {MOST_LENGTH}")
    return int(text)


def require_string(types: Sequence[pa.DataType]) -> None:
    """Raise SkippingInvalid unless the index is on one column of strings."""
    if len(types) != 1:
        raise SkippingInvalid("it is on one column")
    if not (pa.types.is_string(types[0]) or pa.types.is_large_string(types[0])):
        raise refuse(types[0], instead=", strings can")


class _Part(IndexType):
    """The common part of Prefix and Suffix."""

    foreign: ClassVar[bool] = False
    at_end: ClassVar[bool]

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        """Raise SkippingInvalid unless there is one column of strings, and a valid length."""
        require_string(types)
        length_of(definition)

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        """Return ``struct<length, values>``."""
        return _ENTRY

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        """Return the collector for one file."""
        return _Parts(length_of(definition), at_end=self.at_end)

    def may_match(self, term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
        """Return which files may hold a row for which the term is TRUE."""
        lists = entries.field("values")
        allowed = None if term.never else self._allows(term, lists.flatten(), _are_cut(entries, lists))
        return None if allowed is None else flags(entries.is_null()) | any_of(allowed, lists)

    def _allows(self, term: Term, values: Any, cut: Mask) -> Mask | None:
        """Return which parts may belong to a string for which the term is TRUE; None if that is undecidable."""
        match term.op:
            case Op.IS_NOT_NULL:
                return np.ones(len(values), np.bool_)
            case Op.EQ:
                return self._one_of((term.value,), values, cut)
            case Op.IN:
                return self._one_of(term.value, values, cut)
            case Op.LIKE:
                return self._alike(ending(term.value) if self.at_end else beginning(term.value), values, cut)
            case _:
                return None if self.at_end else _in_order(term, values, cut)

    def _one_of(self, texts: Sequence[str], values: Any, cut: Mask) -> Mask:
        parts = {part for text in texts for part in _cuts(text, at_end=self.at_end)}
        return _among(texts, values) | (cut & _among(sorted(parts), values))

    def _alike(self, text: str, values: Any, cut: Mask) -> Mask | None:
        if not text:
            return None
        longer = pc.ends_with(values, text) if self.at_end else pc.starts_with(values, text)
        return flags(longer) | (cut & _among(_cuts(text, at_end=self.at_end), values))


class Prefix(_Part):
    """The distinct first characters."""

    name: ClassVar[str] = "Prefix"
    at_end: ClassVar[bool] = False


class Suffix(_Part):
    """The distinct last characters."""

    name: ClassVar[str] = "Suffix"
    at_end: ClassVar[bool] = True


def _are_cut(entries: Any, lists: Any) -> Mask:
    """Return which of all values, of all files, also represent longer strings."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(entries.field("length"), 0).to_numpy(zero_copy_only=False)
    found: Mask = pc.utf8_length(lists.flatten()).to_numpy(zero_copy_only=False) >= np.repeat(lengths, counts)
    return found


def _in_order(term: Term, values: Any, cut: Mask) -> Mask | None:
    """Decide the same for a comparison: a part is the least string that begins with it; there is no greatest one.

    ``LIKE 'x%'`` arrives as a pair of comparisons.
    """
    match term.op:
        case Op.LT:
            return flags(pc.less(values, term.value))
        case Op.LE:
            return flags(pc.less_equal(values, term.value))
        case Op.GT | Op.GE:
            return flags(pc.greater_equal(values, term.value)) | (cut & _among(_cuts(term.value, at_end=False), values))
        case _:
            return None


def _cuts(text: str, *, at_end: bool) -> list[str]:
    """Return all parts that an entry may keep of a string that begins (ends) with this text."""
    lengths = range(1, min(len(text), MOST_LENGTH) + 1)
    return [text[-length:] if at_end else text[:length] for length in lengths]


def _among(parts: Iterable[str], values: Any) -> Mask:
    return flags(pc.is_in(values, value_set=pa.array(parts, values.type)))


class _Parts:
    """Collector of the parts of one file."""

    def __init__(self, length: int, *, at_end: bool) -> None:
        self._length = length
        self._at_end = at_end
        self._found: Any = pa.array([], pa.string())

    def update(self, values: Sequence[Values]) -> None:
        """Add rows."""
        (column,) = values
        fresh = self._cut(column.unique.cast(pa.string()))
        self._found = pa.concat_arrays([self._found, fresh]).unique()
        while len(self._found) > MOST_VALUES and self._length > 1:
            self._length = max(1, self._length * 3 // 4)
            self._found = self._cut(self._found).unique()

    def finish(self) -> Any:
        """Return the entry; None if there are too many values even at one character."""
        if len(self._found) > MOST_VALUES:
            return None
        ordered = self._found.take(pc.sort_indices(self._found)).to_pylist()
        return pa.array([{"length": self._length, "values": ordered}], _ENTRY)

    def _cut(self, values: Any) -> Any:
        if self._at_end:
            return pc.utf8_slice_codeunits(values, -self._length)
        return pc.utf8_slice_codeunits(values, 0, self._length)
