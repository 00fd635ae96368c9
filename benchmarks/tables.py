"""Plan, read and commit at a number of partitions, with all systems side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from benchmarks.systems.delta import Delta
from benchmarks.systems.floor import Floor
from benchmarks.systems.iceberg import Iceberg
from benchmarks.systems.ours import Kubothek
from benchmarks.systems.plateau import Plateau
from benchmarks.systems.table import READABLE, ROWS, System

SYSTEMS: Mapping[str, Callable[[Root], System]] = {
    "kubothek, warm": partial(Kubothek, warm=True),
    "kubothek, cold": partial(Kubothek, warm=False),
    "floor: orjson + pyarrow": Floor,
    "plateau": Plateau,
    "deltalake-rs, warm": partial(Delta, warm=True),
    "deltalake-rs, cold": partial(Delta, warm=False),
    "pyiceberg": Iceberg,
}
"""The first is the one that ratios refer to."""

READ_PART = READABLE - 1
"""A partition that no append touches, so that it stays one file."""


def built(place: Place, partitions: int) -> dict[str, System]:
    """All systems, each with a table of its own. Raises RuntimeError if one does not find what was written."""
    systems = {}
    for number, (name, make) in enumerate(SYSTEMS.items()):
        system = systems[name] = make(place.root(f"{number}"))
        system.build(partitions)
        if (found := (system.plan(READ_PART), system.read(READ_PART))) != (1, ROWS):
            raise RuntimeError(f"{name}: found {found} files and rows instead of 1 and {ROWS}")
    return systems


def run(place: Place, partitions: int, *, rounds: int, seconds: float) -> Iterator[Table]:
    """The three tables, as they are ready; afterwards every commit must be there."""
    systems = built(place, partitions)

    def table(work: str, cases: list[Case]) -> Table:
        return compare(f"{work} at {partitions:,} partitions, {place.name}", cases, rounds=rounds, seconds=seconds)

    yield table("plan one partition", [Case(name, partial(s.plan, READ_PART)) for name, s in systems.items()])
    yield table("read one partition", [Case(name, partial(s.read, READ_PART)) for name, s in systems.items()])
    commits = table(f"commit {ROWS:,} rows to one partition", [Case(name, s.append) for name, s in systems.items()])
    yield commits
    for series, system in zip(commits.series, systems.values(), strict=True):
        expected = 1 + 1 + len(series.wall)  # the first file, the warm-up, the rounds
        if (found := system.plan(0)) != expected:
            raise RuntimeError(f"{series.name}: {found} files instead of {expected} after the commits")
