"""Kartothek 5.3 as it answers cube queries: run by its own interpreter, one line in, one line out.

It needs Python 3.9, so it cannot be in this process: ``--kartothek`` names the interpreter of an environment that has
kartothek 5.3.0 with pyarrow 6.0.1, pandas 1.3.5, numpy 1.21.6, dask 2021.12.0 and storefact 0.11.0. Lines in: ``plan
NAME``, ``replan NAME`` (datasets were found before) or ``query NAME``; out: the number of groups, or of rows.
"""

from __future__ import annotations

import sys
from functools import partial

import storefact
from kartothek.api.discover import discover_cube  # type: ignore[import-not-found]
from kartothek.core.cube.conditions import C, Conjunction  # type: ignore[import-not-found]
from kartothek.io.eager_cube import query_cube  # type: ignore[import-not-found]
from kartothek.io_components.cube.query import plan_query  # type: ignore[import-not-found]


def main(root: str, prefix: str, low: int, high: int, cell: int, index: int) -> None:
    """Answer until there are no more lines."""
    store = partial(storefact.get_store_from_url, "hfs://" + root)
    cube, datasets = discover_cube(prefix, store())
    conditions = {
        "all": None,
        "cell": (C("x") == cell) & (C("y") == 0),
        "index": Conjunction(C("i") == index),
        "range": (C("p") >= low) & (C("p") < high) & (C("v") > 0.0),
    }
    for line in sys.stdin:
        verb, name = line.split()
        if verb == "plan":
            _, _, groups = plan_query(conditions[name], cube, None, None, None, None, store)
            print(len(groups), flush=True)
        elif verb == "replan":
            _, _, groups = plan_query(conditions[name], cube, dict(datasets), None, None, None, store)
            print(len(groups), flush=True)
        else:
            print(sum(len(df) for df in query_cube(cube, store, conditions=conditions[name])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
