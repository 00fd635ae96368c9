"""How many files lie in each directory of a table, by which its partitions are counted.

Counting looks at every file, following a change only at the files that it touches: a writer that commits again
and again counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def directory(key: str) -> str:
    """What a partition's files have in common."""
    return key.rpartition("/")[0]


def count(keys: Iterable[str]) -> Counter[str]:
    """The number of files in each directory."""
    return Counter(map(directory, keys))


def recount(before: Mapping[str, int], *, removed: Iterable[str], added: Iterable[str]) -> dict[str, int]:
    """The numbers after these keys went and those came; directories without files are left out."""
    after = dict(before)
    for place in map(directory, added):
        after[place] = after.get(place, 0) + 1
    for place in map(directory, removed):
        after[place] -= 1
        if not after[place]:
            del after[place]
    return after
