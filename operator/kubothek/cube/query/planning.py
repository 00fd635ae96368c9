"""The planner of cube queries: which files of which datasets, for which partitions.

It reads indices, skipping metadata and a few footers. Each conjunction leaves those partitions of the seed in which the
seed, and every dataset that the conjunction restricts, may have a match. Of each dataset, the files aligned with these
partitions are read. The steps are those of :mod:`kubothek.table.scan.plan`, with the restrictions that
:mod:`~kubothek.cube.query.masks` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from kubothek.cube.query.alignment import aligned, of_seed, partitions
from kubothek.cube.query.asking import Intent, Join, Source, restricts
from kubothek.cube.query.assembling import assembled
from kubothek.cube.query.masks import Branch, by_index, by_path, by_skipping, by_statistics
from kubothek.cube.query.model import Plan
from kubothek.cube.query.parts import Part, full_part
from kubothek.storage import Store
from kubothek.table.log.records import parallel
from kubothek.table.scan.plan import SKIPPING_STEP
from kubothek.table.scan.pruner import Mask, Pruner

_STEPS: Final[tuple[tuple[str, Callable[[Pruner, Branch], Branch]], ...]] = (
    ("secondary indices", by_index),
    (SKIPPING_STEP, by_skipping),
    ("file statistics", by_statistics),
)
"""The steps after partition keys; each checks only files that the previous step left."""


def plan(store: Store, wanted: Intent) -> Plan:
    """Return the plan. Raises PartitionInvalid for a path that does not fit its table, and errors of the store."""
    spec = wanted.spec
    columns = spec.partition_columns
    needed = {*columns, *wanted.where.columns}
    member = wanted.sources[0].member
    seed = Pruner.of(store, member.snapshot.head, member.schema, needed)
    beside = partitions(member, seed, columns)

    def begin(source: Source) -> Part:
        if source.join is Join.SEED:
            return full_part(wanted, source, seed, of_seed(beside))
        member = source.member
        files = Pruner.of(store, member.snapshot.head, member.schema, {*needed, *source.columns})
        return full_part(wanted, source, files, aligned(member, files, beside, columns))

    parts = [begin(source) for source in wanted.sources]
    for part in parts:
        part.branches = [by_path(part.files, branch) for branch in part.branches]
        part.note("partition keys", part.needed(None))
    alive = _alive(wanted, parts, len(beside))
    asking = [part for part in parts if part.asks]
    for name, step in _STEPS:
        parallel(partial(_narrow, step, alive), asking)
        alive = _alive(wanted, parts, len(beside))
        for part in asking:
            part.branches = _beside(part, alive)
        for part in parts:
            part.note(name, part.needed(None) if part.asks else None)
    return assembled(wanted, beside, parts, alive)


def _narrow(step: Callable[[Pruner, Branch], Branch], alive: Sequence[Mask], part: Part) -> None:
    """Run one step for one dataset, on the files aligned with the remaining partitions."""
    part.branches = [step(part.files, branch) for branch in _beside(part, alive)]


def _beside(part: Part, alive: Sequence[Mask]) -> list[Branch]:
    """Return the branches with only the files aligned with these partitions."""
    found = []
    for branch, left in zip(part.branches, alive, strict=True):
        beside = np.zeros(part.alignment.count + 1, np.bool_)
        beside[part.alignment.of_partition[left]] = True
        may = branch.may & beside[part.alignment.of_file]
        found.append(replace(branch, may=may, match=branch.match & may))
    return found


def _alive(wanted: Intent, parts: Sequence[Part], count: int) -> list[Mask]:
    """Return, for each conjunction, the partitions that may have rows that satisfy it.

    Without ``newest_only``, the last matching row of a cell counts, and pruning must not change which row that is. So a
    partition is pruned only if it can satisfy no conjunction.
    """
    found = []
    for number, terms in enumerate(wanted.where.conjunctions):
        left = np.ones(count, np.bool_)
        for part in parts:
            if part.source.join is not Join.LEFT or restricts(terms, part.source.owned):
                left &= part.partitions_with_match(number)
        found.append(left)
    if wanted.newest_only or len(found) < 2:
        return found
    return [np.logical_or.reduce(found)] * len(found)
