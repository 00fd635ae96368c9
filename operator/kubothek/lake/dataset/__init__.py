"""One dataset as an object: reading, writing and upkeep, each in its module."""

from __future__ import annotations

from kubothek.lake.dataset.handle import BY, Done, OnConflict, Where
from kubothek.lake.dataset.reading import Reading
from kubothek.lake.dataset.upkeep import Upkeep
from kubothek.lake.dataset.writing import Writing

__all__ = ["BY", "Dataset", "Done", "OnConflict", "Where"]


class Dataset(Reading, Writing, Upkeep):
    """One dataset. Every call sees its present version, unless ``as_of`` asks for another.

    ``as_of``  a version number, a time at which it was current (a ``datetime``; without time zone: UTC), or a tag of it
    """
