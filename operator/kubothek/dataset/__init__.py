"""One dataset as an object; reads, writes and maintenance are in one module each."""

from __future__ import annotations

from kubothek.dataset.changes import ChangeFeed
from kubothek.dataset.columns import Columns
from kubothek.dataset.handle import CommitResult, OnConflict, Where
from kubothek.dataset.merging import Merging
from kubothek.dataset.reading import Reading
from kubothek.dataset.upkeep import Upkeep
from kubothek.dataset.writing import Writing
from kubothek.odf.dataset import Root
from kubothek.odf.derived import Derivative, Inputs, inputs_of

__all__ = ["CommitResult", "Dataset", "OnConflict", "Where"]


class Dataset(Reading, ChangeFeed, Writing, Merging, Columns, Upkeep):
    """One dataset. Every call reads the current version, unless ``as_of`` names another.

    ``as_of``  a version number, a time at which it was current (a ``datetime`` or ISO text such as "2026-11-21T14:00";
               without time zone: UTC), or a tag
    """

    @property
    def ledger(self) -> Root:
        """The chain of the dataset, for reads and writes: ``dataset.ledger.push(again(rows))``. See docs/ledger.md.

        Raises NotALedger, OwnedByAnother.
        """
        return Root(self._store, self._log(writing=True), by=self._author)

    @property
    def derivative(self) -> Derivative:
        """The chain of a dataset that SQL derives from others, and its transformation. See docs/derivatives.md.

        Raises NotALedger, OwnedByAnother, InputError for any other dataset.
        """
        return Derivative(self._store, self._log(writing=True), by=self._author)

    def pull(self, inputs: Inputs | None = None) -> int:
        """Run the transformation until its inputs have nothing new; return the number of new records.

        ``inputs``  where the inputs are; None = in this store, under their names

        Raises what :meth:`Derivative.pull` raises; earlier commits stay.
        """
        derivative, records = self.derivative, 0
        inputs = inputs or inputs_of(self._store)
        while True:
            pulled = derivative.pull(inputs)
            records += 0 if pulled.done.repeated else pulled.done.records
            if not pulled.more:
                return records
