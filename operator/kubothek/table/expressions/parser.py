"""A parser from text to a predicate: recursive descent over AND, OR, NOT and comparisons, as in a SQL WHERE clause.

Each rule returns a function from "is it under a NOT?" to a predicate, which moves negations into the comparisons.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Final, NoReturn

from kubothek.errors import FilterInvalid
from kubothek.table.expressions.model import FALSE, TRUE, Predicate, all_of, any_of
from kubothek.table.expressions.terms import NEGATED, Literal, Op, Term, never, parse_date, parse_timestamp
from kubothek.table.expressions.text import KEYWORDS

# The tokens of the predicate language, each with its position in the text.


class Kind(Enum):
    """The kind of a token."""

    KEYWORD = auto()
    NAME = auto()
    STRING = auto()
    BYTES = auto()
    NUMBER = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token; ``text`` is its meaning: keywords in upper case, names and strings without their quotes."""

    kind: Kind
    text: str
    start: int
    shown: str


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<BYTES>  [xX]'[^']*' )
    | (?P<NUMBER> (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)? (?![\w.]) )
    | (?P<NAME>   [^\W\d]\w*(?:\.[^\W\d]\w*)* | "(?:[^"]|"")*" )
    | (?P<STRING> '(?:[^']|'')*' )
    | (?P<SYMBOL> <> | != | <= | >= | == | [=<>(),+-] )
    )""",
    re.VERBOSE,
)
_SHOWN: Final = 60


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens, the last one END. Raises FilterInvalid at text that is not a token."""
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            position += len(text[position:]) - len(text[position:].lstrip())
            quote = text[position] if text[position] in "'\"" else None
            refuse(text, position, f"no closing {quote}" if quote else f"unexpected {text[position]!r}")
        kind, shown = Kind[str(match.lastgroup)], match[str(match.lastgroup)]
        if kind is Kind.NAME and shown.upper() in KEYWORDS:
            kind = Kind.KEYWORD
        yield Token(kind, _meaning(kind, shown), match.start(str(match.lastgroup)), shown)
        position = match.end()
    yield Token(Kind.END, "", end, "the end")


def refuse(text: str, position: int, problem: str) -> NoReturn:
    """Raise FilterInvalid with the line of the text and a caret below the position."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    start = max(start, position - _SHOWN)
    line = text[start : min(len(text) if stop < 0 else stop, position + _SHOWN)]
    raise FilterInvalid(f"filter, character {position + 1}: {problem}\n  {line}\n  {' ' * (position - start)}^")


def _meaning(kind: Kind, shown: str) -> str:
    match kind:
        case Kind.KEYWORD:
            return shown.upper()
        case Kind.NAME:
            return shown[1:-1].replace('""', '"') if shown[0] == '"' else shown
        case Kind.STRING:
            return shown[1:-1].replace("''", "'")
        case Kind.BYTES:
            return shown[2:-1]
        case _:
            return shown


_Node = Callable[[bool], Predicate]

_MOST_NESTED: Final = 50
_MOST_DIGITS: Final = 400
_COMPARISONS: Final = {**{op.value: op for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)}, "==": Op.EQ, "<>": Op.NE}
_MIRRORED: Final = {Op.LT: Op.GT, Op.GT: Op.LT, Op.LE: Op.GE, Op.GE: Op.LE}
_DOUBLES: Final = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}


def parse(text: str) -> Predicate:
    """Return the predicate of the text. Columns and types are not checked; see :meth:`Predicate.bind`.

    It may use AND, OR, NOT, parentheses, ``= != <> < <= > >=``, [NOT] IN, [NOT] BETWEEN, [NOT] LIKE with ``%`` and
    ``_``, IS [NOT] NULL, TRUE and FALSE. One side of a comparison is a column, plain or in double quotes; the other is
    a literal: ``1``, ``0.1`` (exact), ``1e-1`` (double), ``'text'`` (a quote is doubled), ``X'00FF'``, ``DATE '…'``,
    ``TIMESTAMP '…'``, ``DOUBLE 'NaN'``, TRUE, FALSE, NULL. Raises FilterInvalid, with a caret at the error.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._next = 0
        self._depth = 0

    def whole(self) -> Predicate:
        found = self._disjunction()
        if self._peek.kind is not Kind.END:
            self._refuse("expected AND, OR or the end")
        return found(False)

    # --- rules ---

    def _disjunction(self) -> _Node:
        return self._joined("OR", self._conjunction, any_of, all_of)

    def _conjunction(self) -> _Node:
        return self._joined("AND", self._negation, all_of, any_of)

    def _joined(
        self,
        word: str,
        rule: Callable[[], _Node],
        join: Callable[[Sequence[Predicate]], Predicate],
        join_negated: Callable[[Sequence[Predicate]], Predicate],
    ) -> _Node:
        nodes = [rule()]
        while self._take(word):
            nodes.append(rule())
        if len(nodes) == 1:
            return nodes[0]
        return lambda negated: (join_negated if negated else join)([node(negated) for node in nodes])

    def _negation(self) -> _Node:
        odd = False
        while self._take("NOT"):
            odd = not odd
        found = self._primary()
        return (lambda negated: found(not negated)) if odd else found

    def _primary(self) -> _Node:
        if self._take("("):
            self._depth += 1
            if self._depth > _MOST_NESTED:
                self._refuse(f"more than {_MOST_NESTED} parentheses deep")
            found = self._disjunction()
            self._expect(")")
            self._depth -= 1
            return found
        if self._peek.kind is Kind.NAME and not self._at_typed_literal():
            return self._comparison(self._advance().text)
        value = self._literal("a column, a literal, NOT or '('")
        if self._at_comparison():
            op = _COMPARISONS[self._advance().text]
            if self._peek.kind is not Kind.NAME or self._at_typed_literal():
                self._refuse("expected a column: one side of a comparison is a column")
            return _term(self._advance().text, _MIRRORED.get(op, op), value)
        if not isinstance(value, bool):
            self._refuse("expected a comparison with a column")
        return lambda negated: TRUE if value is not negated else FALSE

    def _comparison(self, column: str) -> _Node:
        if self._at_comparison():
            op = _COMPARISONS[self._advance().text]
            return _term(column, op, self._literal("a literal"))
        if self._take("IS"):
            op = Op.IS_NOT_NULL if self._take("NOT") else Op.IS_NULL
            self._expect("NULL")
            return lambda negated: _one(Term(column, NEGATED[op] if negated else op))
        odd = self._take("NOT")
        if self._take("IN"):
            found = self._in(column)
        elif self._take("BETWEEN"):
            found = self._between(column)
        elif self._take("LIKE"):
            found = self._like(column)
        else:
            self._refuse("expected a comparison, IS, IN, BETWEEN or LIKE")
        return (lambda negated: found(not negated)) if odd else found

    def _in(self, column: str) -> _Node:
        self._expect("(")
        literals = [self._literal("a literal")]
        while self._take(","):
            literals.append(self._literal("a literal"))
        self._expect(")")
        known = tuple(literal for literal in literals if literal is not None)

        def node(negated: bool) -> Predicate:
            if not known or (negated and len(known) < len(literals)):
                return _one(never(column))
            return _one(Term(column, Op.NOT_IN if negated else Op.IN, known))

        return node

    def _between(self, column: str) -> _Node:
        low = _term(column, Op.GE, self._literal("a literal"))
        self._expect("AND")
        high = _term(column, Op.LE, self._literal("a literal"))
        return lambda negated: (any_of if negated else all_of)([low(negated), high(negated)])

    def _like(self, column: str) -> _Node:
        pattern = self._peek
        if pattern.kind is not Kind.STRING:
            self._refuse("expected a pattern in single quotes")
        if "\\" in pattern.text:
            self._refuse("a pattern has no way to write a backslash")
        self._advance()
        return like(column, pattern.text)

    def _at_comparison(self) -> bool:
        return self._peek.kind is Kind.SYMBOL and self._peek.text in _COMPARISONS

    # --- literals ---

    def _at_typed_literal(self) -> bool:
        return self._peek.shown.upper() in _TYPED and self._tokens[self._next + 1].kind is Kind.STRING

    def _literal(self, expected: str) -> Literal | None:
        token = self._peek
        if self._at_typed_literal():
            self._advance()
            return self._typed(token.shown.upper())
        if token.text in ("+", "-") and token.kind is Kind.SYMBOL:
            self._advance()
            number = self._number() if self._peek.kind is Kind.NUMBER else self._refuse("expected a number")
            return -number if token.text == "-" else number
        match token.kind:
            case Kind.NUMBER:
                return self._number()
            case Kind.STRING:
                return self._advance().text
            case Kind.BYTES:
                return self._bytes()
            case Kind.KEYWORD if token.text in ("TRUE", "FALSE"):
                return self._advance().text == "TRUE"
            case Kind.KEYWORD if token.text == "NULL":
                self._advance()
                return None
            case _:
                hint = "; text is written in single quotes" if token.kind is Kind.NAME else ""
                return self._refuse(f"expected {expected}{hint}")

    def _number(self) -> int | Decimal | float:
        text = self._peek.text
        if len(text) > _MOST_DIGITS:
            self._refuse(f"a number of more than {_MOST_DIGITS} digits")
        if "e" in text.lower():
            number = float(text)
            if math.isinf(number):
                self._refuse("beyond the largest double")
            self._advance()
            return number
        self._advance()
        return Decimal(text) if "." in text else int(text)

    def _bytes(self) -> bytes:
        try:
            found = bytes.fromhex(self._peek.text)
        except ValueError:
            self._refuse("expected pairs of hexadecimal digits")
        self._advance()
        return found

    def _typed(self, kind: str) -> Literal:
        text = self._peek.text
        try:
            value = _TYPED[kind](text)
        except ValueError as error:
            self._refuse(str(error))
        self._advance()
        return value

    # --- tokens ---

    @property
    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _advance(self) -> Token:
        token = self._peek
        self._next += 1
        return token

    def _take(self, word: str) -> bool:
        """Consume the next token if it is this keyword or symbol; return whether it was."""
        found = self._peek.kind in (Kind.KEYWORD, Kind.SYMBOL) and self._peek.text == word
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            self._refuse(f"expected {word}")

    def _refuse(self, problem: str) -> NoReturn:
        token = self._peek
        refuse(self._text, token.start, f"{problem}, found {token.shown[:60]}")


def _term(column: str, op: Op, value: Literal | None) -> _Node:
    return lambda negated: _one(
        Term(column, NEGATED[op] if negated else op, value) if value is not None else never(column)
    )


def like(column: str, pattern: str) -> Callable[[bool], Predicate]:
    """Return the predicate of LIKE, or NOT LIKE if negated, in comparisons as far as these express it."""
    prefix = re.split("[%_]", pattern, maxsplit=1)[0]
    if prefix == pattern:
        return _term(column, Op.EQ, prefix)
    low, beyond = _term(column, Op.GE, prefix), _after(prefix)
    within = [low] if beyond is None else [low, _term(column, Op.LT, beyond)]
    if pattern == f"{prefix}%":
        return lambda negated: (any_of if negated else all_of)([each(negated) for each in within])
    whole = _term(column, Op.LIKE, pattern)
    parts = [*within, whole] if prefix else [whole]
    return lambda negated: whole(True) if negated else all_of([each(False) for each in parts])


def _one(term: Term) -> Predicate:
    return Predicate(((term,),))


def _after(prefix: str) -> str | None:
    """Return the smallest text above all that start with the prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code <= 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if code == 0xD800 else code)
    return None


def _double(text: str) -> float:
    if (value := _DOUBLES.get(text.lower())) is None:
        raise ValueError(f"{text!r}: write NaN, Infinity or -Infinity")
    return value


_TYPED: Final[dict[str, Callable[[str], Literal]]] = {
    "DATE": parse_date,
    "TIMESTAMP": parse_timestamp,
    "DOUBLE": _double,
}
