"""Number of files in each directory of a table, from which its partitions are counted.

A count reads every file; the update after a change reads only the files of the change. So a writer that commits
repeatedly counts once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def directory(key: str) -> str:
    """Return the directory of a data file, which is the same for all files of a partition."""
    return key.rpartition("/")[0]


def count(keys: Iterable[str]) -> Counter[str]:
    """Return the number of files in each directory."""
    return Counter(map(directory, keys))


def recount(before: Mapping[str, int], *, removed: Iterable[str], added: Iterable[str]) -> dict[str, int]:
    """Return the numbers after these keys were removed and added, without empty directories."""
    after = dict(before)
    for place in map(directory, added):
        after[place] = after.get(place, 0) + 1
    for place in map(directory, removed):
        after[place] -= 1
        if not after[place]:
            del after[place]
    return after
