"""The record of a scan in the result of a query."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Self

from kubothek.table.expressions import Predicate
from kubothek.table.scan.plan import SKIPPING_STEP, Step
from kubothek.table.skipping.prune.filters_seen import filters_of


class Read(NamedTuple):
    """A scan of one dataset.

    ``version``     version of the dataset; 0 for plain files
    ``files``       number of opened files
    ``considered``  number of files that skipping metadata had to decide about
    ``skipped``     number of those that it excluded
    ``filters``     first few of its filters (:mod:`kubothek.table.skipping.prune.filters_seen`)
    """

    name: str
    version: int
    files: int
    considered: int = 0
    skipped: int = 0
    filters: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        version: int,
        steps: Sequence[Step],
        where: Predicate,
        columns: Container[str] | None = None,
    ) -> Self:
        """Return the record of a plan.

        ``steps``    the number of files after each step; the first is the whole table
        ``where``    the filter of its rows
        ``columns``  those of the dataset, if ``where`` has others as well; None = all
        """
        place = next((number for number, step in enumerate(steps) if step.name == SKIPPING_STEP), 0)
        considered = steps[place - 1].files_left if place else 0
        skipped = considered - steps[place].files_left if place else 0
        return cls(name, version, steps[-1].files_left, considered, skipped, filters_of(where, columns))
