"""A small cube: sales of cells (x, y) in partitions by p, with what other datasets say of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kubothek.cube.handle import Cube
from kubothek.storage import Store
from kubothek.table.log.multi.spec import CubeSpec

SPEC = CubeSpec("shop", ("x", "y"), ("p",), "sales", frozenset({"kind"}), frozenset({"y"}))
TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(("p", "x", "y", "n", "stock"), pa.int64()),
    **dict.fromkeys(("kind", "note"), pa.string()),
}


def rows(**columns: list[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, TYPES[name]) for name, values in columns.items()})


def sales(p: int, x: list[int], n: list[int | None]) -> pa.Table:
    """Cells (x, 0) of a partition."""
    return rows(p=[p] * len(x), x=x, y=[0] * len(x), n=n)


def built(store: Store) -> Cube:
    """Partitions 0 to 3 with the cells (10 p, 0) and (10 p + 1, 0), of which ``n`` is 0 and 1.

    ``kinds`` by p and x, with an index on ``kind``: k0 to k3 by partition, for the first x; ``note`` is NULL but for
    p = 0. ``stock`` by x, not partitioned.
    """
    cube = Cube.create(store, SPEC)
    parts = range(4)
    cube.build(
        {
            "sales": pa.concat_tables([sales(p, [10 * p, 10 * p + 1], [0, 1]) for p in parts]),
            "kinds": rows(
                p=list(parts), x=[10 * p for p in parts], kind=[f"k{p}" for p in parts], note=["a", None, None, None]
            ),
            "stock": rows(x=[0, 11, 99], stock=[7, 8, 9]),
        },
        partition_on={"stock": []},
    )
    return cube
