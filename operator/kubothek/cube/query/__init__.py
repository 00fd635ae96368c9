"""Queries of a cube: the seed's cells joined with the other datasets, as one table.

    found = query(store, cube, conditions="country = 'DE' AND temp >= 15", payload_columns=["temp", "mayor"])
    found.to_pandas(); found.to_arrow(); found.reader(); found.explain()
    for group in query(store, cube, partition_by=["country"]): group.key, group.rows

A query is checked (:mod:`~kubothek.cube.query.asking`), then planned (:mod:`~kubothek.cube.query.planning`), then
read and joined one partition at a time (:mod:`~kubothek.cube.query.joining`). Source: Kartothek Cube, "Seed-Based Join
System".
"""

from __future__ import annotations

from typing import Unpack

from kubothek.cube.query.asking import Asked, Join, intent
from kubothek.cube.query.conditions import C, Conditions, as_conditions
from kubothek.cube.query.model import DatasetPlan, Plan
from kubothek.cube.query.planning import plan
from kubothek.cube.query.result import CubeQuery, Group
from kubothek.cube.state import CubeSnapshot
from kubothek.storage import Store
from kubothek.table.time_zones import zones_of

__all__ = [
    "Asked",
    "C",
    "Conditions",
    "CubeQuery",
    "DatasetPlan",
    "Group",
    "Join",
    "Plan",
    "as_conditions",
    "plan",
    "query",
]


def query(
    store: Store,
    cube: CubeSnapshot,
    conditions: Conditions = None,
    **asked: Unpack[Asked],
) -> CubeQuery:
    """Return a checked and planned query; it reads data only when rows are requested.

    ``conditions``  rows to select, in one of the forms of :func:`as_conditions`; None = all

    Raises QueryInvalid for unknown or incompatible names, FilterInvalid for conditions, PartitionInvalid for a path
    that does not fit its table.
    """
    zones = {
        column: zone
        for member in cube.members.values()
        for column, zone in zones_of(member.snapshot.head.metadata).items()
        if member.is_seed or column in member.payload
    }
    return CubeQuery(store, plan(store, intent(cube, conditions, **asked)), zones)
