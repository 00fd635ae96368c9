"""Glob patterns over names with ``/``, the same for keys, files and archives (FE-02, PR-01, RD-07)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from kubothek.errors import InputError

_REPEATED = re.compile(r"(?:\*\*/){2,}")
_SPECIAL = re.compile(r"[*?\[]")


def fixed_part(pattern: str) -> str:
    """Return the part up to the last ``/`` before the first wildcard: all matches are below it."""
    found = _SPECIAL.search(pattern)
    return pattern[: pattern.rfind("/", 0, found.start() if found else len(pattern)) + 1]


def fixed_start(pattern: str) -> str:
    """Return the part up to the first wildcard: all matches have this prefix."""
    found = _SPECIAL.search(pattern)
    return pattern[: found.start()] if found else pattern


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for whole names: ``*`` and ``?`` within a directory, ``**`` any directories, ``[a-z]``,
    ``[!a]``. ``**/**/`` is reduced to ``**/``, its equal: each repetition multiplies the time. Raises InputError.
    """
    parts: list[str] = []
    given, pattern, at = pattern, _REPEATED.sub("**/", pattern), 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            parts.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            parts.append(".*")
            at += 2
        elif (sign := pattern[at]) == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            parts.append(f"(?!/)[^{inside[1:]}]" if inside[0] == "!" else f"(?!/)[{inside}]")
            at = end + 1
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(sign) or re.escape(sign))
            at += 1
    try:
        found = re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise InputError(f"pattern {given!r}: a set in brackets is not valid: {error.msg}; write [a-z]") from None
    return lambda name: found.fullmatch(name) is not None
