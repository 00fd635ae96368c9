"""Counts and durations as messages write them."""

from __future__ import annotations

from datetime import timedelta


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 file``, ``336,776 rows``, ``2 Queries``, ``3 pieces of work``; ``plural`` is for nouns like index."""
    if number == 1:
        return f"1 {noun}"
    head, of, rest = noun.partition(" of ")
    regular = f"{head[:-1]}ies" if head.endswith("y") and head[-2:-1] not in "aeiou" else f"{head}s"
    return f"{number:,} {plural or regular + of + rest}"


def duration(span: timedelta) -> str:
    """Return ``24h``, ``1h30m``, ``90.5s`` as ``1m30.5s``: as manifests and options read it."""
    minutes, seconds = divmod(max(span, timedelta()) / timedelta(seconds=1), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = [(f"{hours}h", hours), (f"{minutes}m", minutes), (f"{round(seconds, 1):g}s", round(seconds, 1))]
    return "".join(text for text, number in parts if number) or "0s"
