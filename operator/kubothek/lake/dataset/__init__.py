"""One dataset as an object: reading, writing and upkeep, each in its module."""

from __future__ import annotations

from kubothek.lake.dataset.handle import BY, Done, OnConflict, Where
from kubothek.lake.dataset.reading import Reading
from kubothek.lake.dataset.upkeep import Upkeep
from kubothek.lake.dataset.writing import Writing
from kubothek.lake.ledger.root import Root

__all__ = ["BY", "Dataset", "Done", "OnConflict", "Where"]


class Dataset(Reading, Writing, Upkeep):
    """One dataset. Every call sees its present version, unless ``as_of`` asks for another.

    ``as_of``  a version number, a time at which it was current (a ``datetime``; without time zone: UTC), or a tag of it
    """

    @property
    def ledger(self) -> Root:
        """The chain behind the table, and what comes into it: ``dataset.ledger.push(again(rows))``. docs/ledger.md.

        Raises NotALedger, OwnedByAnother.
        """
        return Root(self._store, self._log(writing=True), by=BY)
