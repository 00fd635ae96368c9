"""The final plan from the remaining files and partitions: files in read order, partitions in pieces of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kubothek.cube.query.alignment import Codes, Partitions
from kubothek.cube.query.asking import Intent, Join
from kubothek.cube.query.model import DatasetPlan, Numbers, Plan
from kubothek.cube.query.parts import Part
from kubothek.table.expressions import Predicate
from kubothek.table.scan.pruner import Mask

UNIT_ROWS: Final = 1 << 18
UNIT_BYTES: Final = 64 << 20
"""Approximate limits of a piece of work, in rows of the seed and bytes of files; a single partition may exceed them."""
_ROWS_A_FILE: Final = 1 << 16
_BYTES_A_FILE: Final = 4 << 20
"""Estimates for a dataset without totals: another program wrote it, and it was not adopted yet."""


def assembled(wanted: Intent, beside: Partitions, parts: Sequence[Part], alive: Sequence[Mask]) -> Plan:
    """Return the plan; ``alive``: the partitions that each conjunction leaves."""
    left = np.zeros(len(beside), np.bool_)
    for each in alive:
        left |= each
    chosen = np.flatnonzero(left)
    chosen = chosen[_order(wanted, beside, chosen)]
    datasets = []
    for part in parts:
        needed = part.needed(alive)
        part.note("partitions left", needed)
        datasets.append(_dataset(wanted, part, needed, chosen))
    types = wanted.types
    return Plan(
        prefix=wanted.spec.uuid_prefix,
        version=wanted.version,
        where=wanted.where,
        residual=_residual(wanted),
        dimension_columns=wanted.dimension_columns,
        partition_by=wanted.partition_by,
        partition_columns=wanted.spec.partition_columns,
        distinct_by=_distinct_by(wanted),
        schema=pa.schema([(name, types[name]) for name in wanted.columns]),
        types=pa.schema([(name, types[name]) for name in sorted({*wanted.columns, *wanted.where.columns})]),
        values=beside.values.take(chosen),
        datasets=tuple(datasets),
        bounds=_bounds(parts, datasets, len(chosen)),
        newest_only=wanted.newest_only,
    )


def _order(wanted: Intent, beside: Partitions, chosen: Numbers) -> Numbers:
    """Return the order of partitions: those of one group are adjacent if groups are by partition columns only."""
    columns = wanted.spec.partition_columns
    if not {*wanted.partition_by} <= {*columns}:
        return np.arange(len(chosen))
    by = [*wanted.partition_by, *(name for name in columns if name not in wanted.partition_by)]
    return np.lexsort([beside.ranks[columns.index(name)][chosen] for name in reversed(by)])


def _dataset(wanted: Intent, part: Part, needed: Mask, chosen: Numbers) -> DatasetPlan:
    source, head = part.source, part.source.member.snapshot.head
    files = np.flatnonzero(needed)
    combinations, of_partition = _in_plan_order(part.alignment.of_partition[chosen])
    number = np.full(part.alignment.count + 1, -1, np.int64)
    number[combinations] = np.arange(len(combinations))
    of_file = number[part.alignment.of_file[files]]
    order = np.argsort(of_file, kind="stable")
    labels = list(head.partitions)
    starts = np.searchsorted(of_file[order], np.arange(len(combinations) + 1))
    schema = pa.schema([(name, wanted.types[name]) for name in source.columns])
    return DatasetPlan(
        name=source.member.name,
        uuid=source.member.uuid,
        join=source.join,
        aligned_on=tuple(name for name in wanted.spec.partition_columns if name in source.member.partition_on),
        dimensions=source.dimensions,
        payload=source.payload,
        schema=schema,
        keys=pa.array([head.file(labels[file]) for file in files[order].tolist()], pa.large_string()),
        starts=starts,
        of_partition=of_partition,
        in_paths=tuple(name for name in source.columns if name in source.member.partition_on),
        steps=tuple(part.steps),
    )


def _in_plan_order(of_partition: Codes) -> tuple[Codes, Numbers]:
    """Return the combinations in the order of their first partition, and the position of each partition's one."""
    found, first, inverse = np.unique(of_partition, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return found[order], place[inverse.reshape(-1)]


def _residual(wanted: Intent) -> Predicate:
    """Return the conditions that must still be checked on joined rows.

    For a single conjunction, planning decides the terms on partition columns, and the scan those on dimensions.
    """
    where, spec = wanted.where, wanted.spec
    if len(where.conjunctions) != 1:
        return where
    decided = {*spec.partition_columns, *spec.dimension_columns}
    (terms,) = where.conjunctions
    return Predicate((tuple(term for term in terms if term.column not in decided or term.never),))


def _distinct_by(wanted: Intent) -> tuple[str, ...] | None:
    if not wanted.projected:
        return None
    dimensions = [name for name in wanted.spec.dimension_columns if name in wanted.columns]
    return tuple(dimensions)


def _bounds(parts: Sequence[Part], datasets: Sequence[DatasetPlan], count: int) -> Numbers:
    """Return the bounds of pieces of work: whole partitions in order, of a bounded size estimated from averages."""
    rows = np.zeros(count)
    size = np.zeros(count)
    for part, each in zip(parts, datasets, strict=True):
        totals = part.source.member.snapshot.totals
        known = totals is not None and totals.files > 0
        files = np.diff(each.starts)
        beside = np.maximum(np.bincount(each.of_partition, minlength=len(files)), 1)
        share = (files / beside)[each.of_partition] if count else size
        size += share * (totals.bytes / totals.files if known and totals else _BYTES_A_FILE)
        if each.join is Join.SEED:
            rows += share * (totals.rows / totals.files if known and totals else _ROWS_A_FILE)
    filled = np.maximum(rows / UNIT_ROWS, size / UNIT_BYTES)
    starts = [0]
    total = 0.0
    for partition, share in enumerate(filled.tolist()):
        if total and total + share > 1:
            starts.append(partition)
            total = 0.0
        total += share
    return np.array([*starts, count] if count else [0], np.int64)
