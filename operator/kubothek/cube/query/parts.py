"""A dataset while a query is planned: its files, how they stand beside the seed's partitions, what is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kubothek.cube.query.alignment import Alignment
from kubothek.cube.query.asking import Intent, Join, Source, restricts
from kubothek.cube.query.masks import Branch, Files, closed
from kubothek.table.path_columns import Mask
from kubothek.table.scan.plan import Step


@dataclass(slots=True)
class Part:
    """``branches``: one a conjunction of the conditions; ``steps``: how many files each step of planning left."""

    source: Source
    files: Files
    alignment: Alignment
    branches: list[Branch]
    steps: list[Step]

    @property
    def asks(self) -> bool:
        """Whether there are terms on it that paths do not decide."""
        return any(
            term.column not in self.files.paths for branch in self.branches for term in (*branch.cells, *branch.rows)
        )

    def note(self, name: str, needed: Mask | None) -> None:
        """Note what a step left, given as a mask; None: it had nothing to decide by."""
        left = self.steps[-1].files_left if needed is None else int(np.count_nonzero(needed))
        self.steps.append(Step(name, left))

    def needed(self, alive: Sequence[Mask] | None) -> Mask:
        """The files to read; ``alive``: the partitions that each branch leaves, None = all."""
        found = np.zeros(len(self.files), np.bool_)
        for number, branch in enumerate(self.branches):
            files = closed(branch, self.alignment.of_file, self.alignment.count)
            if alive is not None:
                beside = np.zeros(self.alignment.count + 1, np.bool_)
                beside[self.alignment.of_partition[alive[number]]] = True
                files &= beside[self.alignment.of_file]
            found |= files
        return found

    def partitions_with_match(self, number: int) -> Mask:
        """The partitions beside which a match of the branch may stand."""
        matching = self.branches[number].match & (self.alignment.of_file >= 0)
        beside = np.zeros(self.alignment.count, np.bool_)
        beside[self.alignment.of_file[matching]] = True
        found: Mask = beside[self.alignment.of_partition]
        return found


def whole_part(wanted: Intent, source: Source, files: Files, alignment: Alignment) -> Part:
    """A dataset with all of its files."""
    fixed = {*source.member.dimensions, *wanted.spec.partition_columns}
    everything = np.ones(len(files), np.bool_)
    branches = []
    for terms in wanted.where.conjunctions:
        cells = tuple(term for term in terms if term.column in fixed and term.column in source.member.schema.names)
        # Of a dataset that may as well have no row, a row that does not match must be seen not to.
        asked = source.join is Join.SEED or restricts(terms, source.owned)
        rows = tuple(term for term in terms if asked and term.column in source.owned)
        if not wanted.newest_only:
            cells, rows = cells + rows, ()
        branches.append(Branch(cells, rows, everything, everything))
    return Part(source, files, alignment, branches, [Step("table", len(files))])
