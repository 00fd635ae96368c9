"""Numbers and nouns, for people."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """``1 file``, ``336,776 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
