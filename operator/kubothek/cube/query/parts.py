"""State of a dataset during planning: its files, their alignment with the seed's partitions, and what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kubothek.cube.query.alignment import Alignment
from kubothek.cube.query.asking import Intent, Join, Source, restricts
from kubothek.cube.query.masks import Branch, closed
from kubothek.table.scan.plan import Step
from kubothek.table.scan.pruner import Mask, Pruner


@dataclass(slots=True)
class Part:
    """State of one dataset; ``branches``: one per conjunction; ``steps``: number of files left by each step."""

    source: Source
    files: Pruner
    alignment: Alignment
    branches: list[Branch]
    steps: list[Step]

    @property
    def asks(self) -> bool:
        """Whether it has terms that paths do not decide."""
        return any(self.files.beside_paths((*branch.cells, *branch.rows)) for branch in self.branches)

    def note(self, name: str, needed: Mask | None) -> None:
        """Record the files that a step left, as a mask; None: the step had nothing to prune by."""
        left = self.steps[-1].files_left if needed is None else int(np.count_nonzero(needed))
        self.steps.append(Step(name, left))

    def needed(self, alive: Sequence[Mask] | None) -> Mask:
        """Return the files to read; ``alive``: the partitions that each branch leaves, None = all."""
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
        """Return the partitions that may have a match of the branch."""
        matching = self.branches[number].match & (self.alignment.of_file >= 0)
        beside = np.zeros(self.alignment.count, np.bool_)
        beside[self.alignment.of_file[matching]] = True
        found: Mask = beside[self.alignment.of_partition]
        return found


def full_part(wanted: Intent, source: Source, files: Pruner, alignment: Alignment) -> Part:
    """Return the initial state of a dataset, with all of its files."""
    fixed = {*source.member.dimensions, *wanted.spec.partition_columns}
    everything = np.ones(len(files), np.bool_)
    branches = []
    for terms in wanted.where.conjunctions:
        cells = tuple(term for term in terms if term.column in fixed and term.column in source.member.schema.names)
        # If the conditions can hold without a row of this dataset, its non-matching rows must still be read: they
        # must not look like missing rows.
        asked = source.join is Join.SEED or restricts(terms, source.owned)
        rows = tuple(term for term in terms if asked and term.column in source.owned)
        if not wanted.newest_only:
            cells, rows = cells + rows, ()
        branches.append(Branch(cells, rows, everything, everything))
    return Part(source, files, alignment, branches, [Step("table", len(files))])
