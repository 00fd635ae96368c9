"""Pruning of one dataset's files: which may hold cells that a conjunction of conditions selects.

The last row of a cell counts, in the order of the head's files. So, if conditions apply only to the newest row:

- conditions on dimensions and partition columns hold for all rows of a cell or for none: any file without matching
  cells is pruned;
- conditions on payload may hold for an old row of a cell and not for the last one. A file without matching rows is
  pruned only if it is older than all files that may have some: its rows do not count, or do not match.

If conditions first select rows, as in kartothek, all conditions are of the first kind.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kubothek.table.expressions import Predicate, Term
from kubothek.table.scan.pruner import Mask, Pruner

MOST_FOOTERS: Final = 256
"""Most footers read per dataset and conjunction: they delay the start of the scan, which reads footers anyway."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The terms of one conjunction on the dataset, and the files that may matter for it.

    ``cells``  terms that decide whether a row counts; ``may``: files that may hold such rows
    ``rows``   terms on payload of the newest row; ``match``: files of ``may`` that may hold rows that satisfy them
    """

    cells: tuple[Term, ...]
    rows: tuple[Term, ...]
    may: Mask
    match: Mask


def by_path(files: Pruner, branch: Branch) -> Branch:
    """Prune by partition keys and buckets."""
    may = files.by_path(branch.cells, branch.may)
    match = files.by_path((*branch.cells, *branch.rows), may & branch.match) if branch.rows else may & branch.match
    return replace(branch, may=may, match=match)


def by_index(files: Pruner, branch: Branch) -> Branch:
    """Prune by secondary indices. A single remaining file is faster to read than to look up."""
    may = files.by_index(branch.cells, branch.may, fewest=2)
    return replace(branch, may=may, match=files.by_index(branch.rows, branch.match & may, fewest=2))


def by_skipping(files: Pruner, branch: Branch) -> Branch:
    """Prune by skipping metadata. A file without an entry stays."""
    skipping = files.skipping((*branch.cells, *branch.rows))
    may = skipping.may(files.beside_paths(branch.cells), branch.may)
    return replace(branch, may=may, match=skipping.may(files.beside_paths(branch.rows), branch.match & may))


def by_statistics(files: Pruner, branch: Branch) -> Branch:
    """Prune by the statistics in footers, if few files are left."""
    cells, rows = files.beside_paths(branch.cells), files.beside_paths(branch.rows)
    may = _in_footers(files, branch.may, cells)
    match = _in_footers(files, branch.match & may, cells + rows) if rows else may
    return replace(branch, may=may, match=match & branch.match)


def _in_footers(files: Pruner, mask: Mask, terms: tuple[Term, ...]) -> Mask:
    left = np.flatnonzero(mask)
    if not terms or not 1 < len(left) <= MOST_FOOTERS:
        return mask
    kept = np.zeros_like(mask)
    kept[left] = [verdict is not False for verdict in files.verdicts(Predicate((terms,)), mask)]
    return kept


def closed(branch: Branch, aligned: npt.NDArray[np.int32], count: int) -> Mask:
    """Return the files to read for the branch: in each combination, the first that may match, and all later ones.

    ``aligned``  the combination number of each file, below ``count``; -1 for none
    """
    position = np.arange(len(aligned))
    first = np.full(count + 1, len(aligned))
    matching = branch.match & (aligned >= 0)
    np.minimum.at(first, aligned[matching], position[matching])
    result: Mask = branch.may & (aligned >= 0) & (position >= first[aligned])
    return result
