"""TokenList: the distinct words of the strings of a file, for ``LIKE '%timeout%'`` in messages and titles.

A word is a run of ASCII letters, ASCII digits and non-ASCII characters; all other ASCII characters are separators. The
definition is independent of Unicode tables, which change. An entry is ``list<string>``, sorted by bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kubothek.table.expressions import Op, Term
from kubothek.table.skipping.extensions.parts import require_string
from kubothek.table.skipping.indexes import Collector, IndexType, Values
from kubothek.table.skipping.like_patterns import Chunk, chunks
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.prune.clauses import Mask, any_of, flags

MOST_TOKENS: Final = 65_536
"""Limit of one entry: a file with more is always read."""

_SEPARATORS: Final = r"[\x00-/:-@\[-`{-\x7f]+"
_ENTRY: Final = pa.list_(pa.string())


class TokenList(IndexType):
    """The distinct words of a file."""

    name: ClassVar[str] = "TokenList"
    foreign: ClassVar[bool] = False

    def check(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> None:
        """Raise SkippingInvalid unless there is one column of strings."""
        require_string(types)

    def entry_type(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> pa.DataType:
        """Return ``list<string>``."""
        return _ENTRY

    def collector(self, definition: IndexDefinition, types: Sequence[pa.DataType]) -> Collector:
        """Return the collector for one file."""
        return _Tokens()

    def may_match(self, term: Term, definition: IndexDefinition, entries: Any) -> Mask | None:
        """Return which files may hold a row for which the term is TRUE: those with all words of the term."""
        if term.never:
            return None
        match term.op:
            case Op.EQ:
                texts = [[_exactly(term.value)]]
            case Op.IN:
                texts = [[_exactly(value)] for value in term.value]
            case Op.LIKE:
                texts = [list(chunks(term.value))]
            case _:
                return None
        masks = [_holds_all(text, entries) for text in texts]
        known = [mask for mask in masks if mask is not None]
        # If any file may hold one of the texts, the whole list decides nothing.
        found: Mask | None = np.logical_or.reduce(known) if len(known) == len(masks) else None
        return found


def _exactly(text: str) -> Chunk:
    return Chunk(text, open_left=False, open_right=False)


def _holds_all(pieces: Sequence[Chunk], entries: Any) -> Mask | None:
    """Return which files hold every word of these pieces of text; None if the pieces have no words."""
    wanted = dict.fromkeys(word for piece in pieces for word in _words(piece))
    if not wanted:
        return None
    values = entries.flatten()
    found = [any_of(flags(compare(values, word)), entries) for word, compare in wanted]
    return reduce(np.logical_and, found)


def _words(chunk: Chunk) -> list[tuple[str, Any]]:
    """Return the words of a piece of text, each with its comparison: at an open edge a word may be longer."""
    pieces = re.split(_SEPARATORS, chunk.text)
    last = len(pieces) - 1
    found: list[tuple[str, Any]] = []
    for number, piece in enumerate(pieces):
        grows_left, grows_right = chunk.open_left and number == 0, chunk.open_right and number == last
        if grows_left and grows_right:
            found.append((piece, pc.match_substring))
        elif grows_left:
            found.append((piece, pc.ends_with))
        else:
            found.append((piece, pc.starts_with if grows_right else pc.equal))
    return [(piece, compare) for piece, compare in found if piece]


class _Tokens:
    """Collector of the words of one file."""

    def __init__(self) -> None:
        self._found: Any = pa.array([], pa.string())
        self._too_many = False

    def update(self, values: Sequence[Values]) -> None:
        """Add rows."""
        (column,) = values
        if self._too_many:
            return
        words = pc.split_pattern_regex(column.unique.cast(pa.string()), pattern=_SEPARATORS).flatten()
        self._found = pa.concat_arrays([self._found, words.unique()]).unique()
        self._too_many = len(self._found) > MOST_TOKENS

    def finish(self) -> Any:
        """Return the entry; None if there were too many words."""
        if self._too_many:
            return None
        words = self._found.filter(pc.not_equal(self._found, pa.scalar("")))
        return pa.array([words.take(pc.sort_indices(words)).to_pylist()], _ENTRY)
