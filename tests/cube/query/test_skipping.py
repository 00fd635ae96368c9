"""Answers are the same with and without skipping metadata, whichever row of a cell counts and however datasets join.

``KUBOTHEK_SOAK=1`` tries many more cubes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pytest

from kubothek.cube.handle import Cube
from kubothek.cube.query import CubeQuery, masks, planning
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.multi.spec import CubeSpec
from kubothek.table.log.update_skipping import reskip
from kubothek.table.scan.plan import SKIPPING_STEP
from kubothek.table.skipping.model import IndexDefinition, SkippingState

pytestmark = pytest.mark.slow

SEEDS = range(200 if os.environ.get("KUBOTHEK_SOAK") else 3)
QUERIES = 25
WITHOUT = tuple(step for step in planning._STEPS if step[0] != SKIPPING_STEP)
SPEC = CubeSpec("c", ("x", "y"), ("p",), "seed", frozenset(), frozenset({"x", "y"}))
INDICES = {
    "seed": [("MinMax", "i"), ("BloomFilter", "s"), ("MinMax", "y")],
    "inside": [("ValueList", "j"), ("Prefix", "t")],  # has some of the seed's cells
    "once": [("MinMax", "k")],  # is not partitioned, and is not written again: few files have no entry
}
VALUES = {"i": 6, "j": 6, "k": 6}
WORDS = ["alpha", "alps", "beta", "gamma", ""]


@pytest.fixture
def store() -> Iterator[Store]:
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield open_store(StoreConfig(Path(directory).as_uri()))


def rows(rng: random.Random, name: str) -> pa.Table:
    """Some cells; those that were written before are written over."""

    def value(column: str) -> list[object]:
        return [rng.choice([None, *range(VALUES[column])]) for _ in cells]

    def word() -> list[object]:
        return [rng.choice([None, *WORDS]) for _ in cells]

    everywhere = [(p, x, y) for p in range(3) for x in range(3) for y in range(2)]
    if name == "once":
        cells = [(0, x, 0) for x in range(3)]
        return pa.table({"x": [x for _, x, _ in cells], "k": pa.array(value("k"), pa.int64())})
    cells = rng.sample(everywhere, rng.randint(1, 6))
    table = {"p": [p for p, _, _ in cells], "x": [x for _, x, _ in cells], "y": [y for *_, y in cells]}
    number, text = ("i", "s") if name == "seed" else ("j", "t")
    return pa.table({**table, number: pa.array(value(number), pa.int64()), text: pa.array(word(), pa.string())})


def built(rng: random.Random, store: Store) -> Cube:
    """Described from the second version on; what comes after is described by its commits."""
    cube = Cube.create(store, SPEC)
    cube.build({name: rows(rng, name) for name in INDICES}, partition_on={"once": []})
    for name, wish in INDICES.items():
        indices = tuple(IndexDefinition(kind, (column,)) for kind, column in wish)
        reskip(store, DatasetLog(store, f"c++{name}"), SkippingState(indices))
    for _ in range(5):
        names = rng.sample(["seed", "inside"], rng.randint(1, 2))
        cube.append({name: rows(rng, name) for name in names})
    return cube


def condition(rng: random.Random) -> str:
    def one() -> str:
        column = rng.choice(["i", "j", "k", "s", "t", "y"])
        if column in ("s", "t"):
            said = [f"= '{rng.choice(WORDS)}'", "LIKE 'al%'", "IS NULL", "!= 'beta'"]
            return f"{column} {rng.choice(said)}"
        if rng.random() < 0.15:
            return f"{column} IS {rng.choice(['', 'NOT '])}NULL"
        return f"{column} {rng.choice(['=', '<', '>=', '!='])} {rng.randrange(2 if column == 'y' else 6)}"

    terms = [one() for _ in range(rng.randint(1, 3))]
    return terms[0] + "".join(rng.choice([" AND ", " OR "]) + term for term in terms[1:])


def opened(query: CubeQuery) -> int:
    return sum(each.files for each in query.plan.datasets)


@pytest.mark.parametrize("seed", SEEDS)
def test_cube_query_with_skipping_metadata_equals_query_without(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    cube = built(rng, store)
    saved = 0
    for _ in range(QUERIES):
        where, newest_only = condition(rng), rng.random() < 0.6
        with patch.object(masks, "MOST_FOOTERS", 0):
            found = cube.query(where, newest_only=newest_only)
            with patch.object(planning, "_STEPS", WITHOUT):
                expected = cube.query(where, newest_only=newest_only)
        assert found.to_arrow().equals(expected.to_arrow()), (where, newest_only)
        assert opened(found) <= opened(expected)
        saved += opened(expected) - opened(found)
    assert saved > QUERIES
