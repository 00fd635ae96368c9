"""Rewriting of Spark and Flink syntax that DuckDB does not parse. Tokens are DuckDB's own."""

from __future__ import annotations

from typing import Final, NamedTuple

import duckdb

from kubothek.in_memory_database import quoted

SYSTEM_TIME: Final = " FOR SYSTEM_TIME OF "
_CLAUSE: Final = ["FOR", "SYSTEM_TIME", "AS", "OF"]


class _Word(NamedTuple):
    start: int
    end: int
    text: str
    kind: duckdb.token_type


def respelled(text: str) -> str:
    """Quote the name in ``window(…)`` and ``window.start``; make ``t FOR SYSTEM_TIME AS OF a.event_time`` one name.

    DuckDB accepts no statement with any of these, so valid statements keep their meaning.
    """
    data = text.encode()
    words = _words(text, data)
    pieces, done, at = [], 0, 0
    while at < len(words):
        word = words[at]
        after = words[at + 1].text if at + 1 < len(words) else ""
        if word.kind is duckdb.token_type.keyword and word.text.upper() == "WINDOW" and after in ("(", "."):
            pieces += [data[done : word.start], b'"window"']
            done = word.end
        elif [each.text.upper() for each in words[at + 1 : at + 5]] == _CLAUSE and _is_name(word):
            moment, stop = _moment(words, at + 5)
            name = quoted(f"{_unquoted(word.text)}{SYSTEM_TIME}{moment}")
            pieces += [data[done : word.start], name.encode()]
            done, at = words[stop - 1].end, stop - 1
        at += 1
    return b"".join([*pieces, data[done:]]).decode()


def temporal(name: str) -> tuple[str, str]:
    """Return a table's name, and the column with the time of the version to read; '' if none."""
    table, _, moment = name.partition(SYSTEM_TIME)
    return table, moment


def _words(text: str, data: bytes) -> list[_Word]:
    tokens = duckdb.tokenize(text)
    ends = [*(start for start, _ in tokens), len(data)][1:]
    found = []
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind is not duckdb.token_type.comment:
            word = data[start:end].decode()
            found.append(_Word(start, start + len(word.rstrip().encode()), word.strip(), kind))
    return found


def _moment(words: list[_Word], at: int) -> tuple[str, int]:
    """Return ``a.event_time`` as written, and the index of the token after it."""
    parts = []
    while at < len(words) and _is_name(words[at]):
        parts.append(_unquoted(words[at].text))
        at += 1
        if at >= len(words) or words[at].text != ".":
            break
        at += 1
    return ".".join(parts), at


def _is_name(word: _Word) -> bool:
    return word.kind in (duckdb.token_type.identifier, duckdb.token_type.keyword)


def _unquoted(text: str) -> str:
    for quote in ('"', "`"):
        if text.startswith(quote) and text.endswith(quote) and len(text) > 1:
            return text[1:-1].replace(quote * 2, quote)
    return text
