"""Numbers and nouns, for people."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """``1 file``, ``336,776 rows``, ``2 Queries``."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {plural}"
