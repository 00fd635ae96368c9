"""What a run read, as its result remembers it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Self

from kubothek.table.expressions import Predicate
from kubothek.table.scan.plan import SKIPPING_STEP, Step
from kubothek.table.skipping.prune.filters_seen import filters_of


class Read(NamedTuple):
    """What was read of one dataset.

    ``version``     of it; 0 for files that are no dataset's
    ``files``       that were opened
    ``considered``  files that skipping metadata had to decide about
    ``skipped``     those of them that it left out
    ``filters``     what it was filtered by (:mod:`kubothek.table.skipping.prune.filters_seen`); the first few
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
        """Of what planning told.

        ``steps``    what each left; the first is the whole table
        ``where``    what rows are filtered by
        ``columns``  those of the dataset, if ``where`` looks at others as well; None = all
        """
        place = next((number for number, step in enumerate(steps) if step.name == SKIPPING_STEP), 0)
        considered = steps[place - 1].files_left if place else 0
        skipped = considered - steps[place].files_left if place else 0
        return cls(name, version, steps[-1].files_left, considered, skipped, filters_of(where, columns))
