"""Querying a cube: the seed's cells, with what the other datasets say of them, as one table.

    found = query(store, cube, conditions="country = 'DE' AND temp >= 15", payload_columns=["temp", "mayor"])
    found.to_pandas(); found.to_arrow(); found.reader(); found.explain()
    for group in query(store, cube, partition_by=["country"]): group.key, group.rows

What is asked is checked (:mod:`~kubothek.lake.cube.query.asking`), then planned
(:mod:`~kubothek.lake.cube.query.planning`), then read and joined partition by partition
(:mod:`~kubothek.lake.cube.query.joining`). Source: kartothek-cube, "Seed-Based Join System"; kartothek-facts 3.6.
"""

from __future__ import annotations

from kubothek.lake.cube.query.asking import Join, Names, intent
from kubothek.lake.cube.query.conditions import C, Conditions, as_conditions
from kubothek.lake.cube.query.model import DatasetPlan, Plan
from kubothek.lake.cube.query.planning import plan
from kubothek.lake.cube.query.result import CubeQuery, Group
from kubothek.lake.cube.state import CubeSnapshot
from kubothek.lake.store import Store

__all__ = [
    "C",
    "Conditions",
    "CubeQuery",
    "DatasetPlan",
    "Group",
    "Join",
    "Names",
    "Plan",
    "as_conditions",
    "plan",
    "query",
]


def query(
    store: Store,
    cube: CubeSnapshot,
    *,
    conditions: Conditions = None,
    datasets: Names = None,
    dimension_columns: Names = None,
    partition_by: Names = None,
    payload_columns: Names = None,
    newest_only: bool = False,
) -> CubeQuery:
    """A query, checked and planned; no data is read until rows are asked for.

    ``conditions``         rows to select, in one of the forms of :func:`as_conditions`; None = all
    ``datasets``           which take part, among them the seed; None = all
    ``dimension_columns``  what names a row; fewer than the cube has make a projection, whose rows are distinct. Only
                           datasets without other dimensions can then give payload. None = all
    ``partition_by``       columns with an index: rows come in groups of their values. Rows without a value go
    ``payload_columns``    further columns; None = all. The partition columns are always there
    ``newest_only``        False: as in kartothek, conditions on payload choose rows of their datasets, and the newest
                           of these is the cell's: ``temp >= 15`` finds a row with 15 over which -7 was written since,
                           and ``partition_by`` puts it into the group of its old value. True: a cell has no other
                           values than those of its newest row, whatever is asked

    Raises QueryInvalid for names that the cube does not have or that do not go together, FilterInvalid for conditions,
    PartitionInvalid for a path that does not fit its table.
    """
    wanted = intent(
        cube,
        conditions=conditions,
        datasets=datasets,
        dimension_columns=dimension_columns,
        partition_by=partition_by,
        payload_columns=payload_columns,
        newest_only=newest_only,
    )
    return CubeQuery(store, plan(store, wanted))
