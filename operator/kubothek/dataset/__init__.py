"""One dataset as an object: reading, writing and upkeep, each in its module."""

from __future__ import annotations

from kubothek.dataset.handle import BY, Done, OnConflict, Where
from kubothek.dataset.reading import Reading
from kubothek.dataset.upkeep import Upkeep
from kubothek.dataset.writing import Writing
from kubothek.odf.dataset import Root
from kubothek.odf.derived import Derivative, Inputs, inputs_of

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

    @property
    def derivative(self) -> Derivative:
        """The chain of a dataset that SQL makes of others, and its transformation. docs/derivatives.md.

        Raises NotALedger, OwnedByAnother, InputError for any other dataset.
        """
        return Derivative(self._store, self._log(writing=True), by=BY)

    def pull(self, inputs: Inputs | None = None) -> int:
        """Run the transformation until it has seen all that its inputs have; the number of records that came of it.

        ``inputs``  finds them; None: in this store, under their names

        Raises what :meth:`Derivative.pull` raises; what was committed until then stays.
        """
        derivative, records = self.derivative, 0
        inputs = inputs or inputs_of(self._store)
        while True:
            pulled = derivative.pull(inputs)
            records += 0 if pulled.done.repeated else pulled.done.records
            if not pulled.more:
                return records
