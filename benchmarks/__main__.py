"""``python -m benchmarks``: all comparisons, or some; tables in Markdown on standard output. See README.md."""

from __future__ import annotations

import argparse
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from benchmarks import (
    bulk,
    bulk_memory,
    chains,
    changes,
    collection,
    compaction,
    cubes,
    divided,
    exports,
    gateway,
    indexed,
    latency,
    ledger,
    memory,
    merge,
    merge_by_key,
    shapes,
    skipping,
    spread,
    stages,
    tables,
    transform,
    verify,
)
from benchmarks.places import Place, place

PLACES = ("fs", "s3")
WORK = (
    "tables",
    "indexed",
    "exports",
    "memory",
    "bulk",
    "stages",
    "shapes",
    "bulk_memory",
    "changes",
    "compaction",
    "collection",
    "cubes",
    "skipping",
    "ledger",
    "spread",
    "merge",
    "merge_by_key",
    "gateway",
    "chains",
    "transform",
    "verify",
)


class Rendered(Protocol):
    """What a comparison found."""

    def render(self) -> str:
        """As Markdown."""


_ROUNDS = 20
_LATENCY_ROUNDS = 5
_ROWS = 10_000_000
_ROWS_OF = {"bulk": _ROWS, "spread": _ROWS, "stages": _ROWS, "shapes": 4_000_000, "bulk_memory": _ROWS}


def main() -> None:
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("work", nargs="*", default=WORK, help=f"of {', '.join(WORK)}; all if none is named")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--places", nargs="+", choices=PLACES, default=PLACES)
    parser.add_argument("--rounds", type=int, help=f"{_ROUNDS} if not said, of latency {_LATENCY_ROUNDS}")
    parser.add_argument("--seconds", type=float, default=20, help="a system sits out once it took this long in a table")
    parser.add_argument(
        "--rows",
        type=int,
        help=f"of commits and of merge_by_key: {_ROWS:,}, of shapes {_ROWS_OF['shapes']:,}, if not said",
    )
    parser.add_argument("--files", type=int, default=2_000, help="that are compacted into eight")
    parser.add_argument("--live", type=int, default=100_000, help="files among which garbage is collected")
    parser.add_argument("--garbage", type=int, default=10_000, help="objects that are collected")
    parser.add_argument("--cells", type=int, default=10_000_000, help="of the cube")
    parser.add_argument("--cube-partitions", type=int, default=1_000)
    parser.add_argument("--kartothek", help="a Python with kartothek 5.3, to query the cube as well")
    parser.add_argument("--copies", type=int, default=30, help="of a year of flights, of which some are looked for")
    parser.add_argument("--years", type=int, default=4, help="of flights that are verified, and as many measurements")
    parser.add_argument("--many", type=int, default=100_000, help="files over which skipping metadata is asked")
    parser.add_argument(
        "--versions", type=int, nargs="+", default=[1, 100, 1_000], help="of tables that catalogues load"
    )
    parser.add_argument("--records", type=int, default=5_000_000, help="that are committed to a ledger")
    parser.add_argument("--histories", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000], help="of ledgers")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[256, 1024], help="that are pulled from a gateway")
    parser.add_argument("--blocks", type=int, default=100_000, help="of a chain that is pulled")
    parser.add_argument("--nginx", help="the program, to serve the same files")
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000], help="of inputs"
    )
    parser.add_argument("--tag", help="of published images, for latency; without they are built")
    parser.add_argument("--room", type=Path, help="where streams stay, made once, for the next comparison of transform")
    parser.add_argument("--spread", action="store_true", help="of transform only first runs, also divided over Spark")
    given = parser.parse_args()
    if given.work == ["latency"]:  # on the cluster, and by name only
        latencies = latency.run(given.rounds or _LATENCY_ROUNDS, given.tag)
        print(latency.render(latencies))
        raise SystemExit(1 if latencies.failed else 0)
    given.rounds = given.rounds or _ROUNDS
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    print(f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n", flush=True)
    if "transform" in given.work:  # its engine reads and writes local files
        pace = {"room": given.room, "rounds": given.rounds, "seconds": given.seconds}
        run = divided.run(given.rows or _ROWS, **pace) if given.spread else transform.run(given.streams, **pace)
        for found in run:
            print(found.render(), flush=True)
    for name in given.places:
        for work in [each for each in given.work if each != "transform"]:
            for table in _tables(work, name, given):
                print(table.render(), flush=True)


def _tables(work: str, name: str, given: argparse.Namespace) -> Iterator[Rendered]:
    if work == "chains":
        if name == "fs":  # a bucket costs a request for each block
            with place(name) as where:
                yield from chains.run(where, given.blocks)
        return
    if work in _ROWS_OF:
        yield from _commits(work, name, given.rows or _ROWS_OF[work])
        return
    pace = {"rounds": given.rounds, "seconds": given.seconds}
    plain: dict[str, Callable[[Place], Iterator[Rendered]]] = {
        "changes": lambda where: changes.run(where, **pace),
        "compaction": lambda where: compaction.run(where, given.files),
        "gateway": lambda where: gateway.run(where, given.megabytes, nginx=given.nginx, **pace),
        "ledger": lambda where: ledger.run(where, given.records, **pace),
        "merge": lambda where: merge.run(where, given.histories, **pace),
        "merge_by_key": lambda where: merge_by_key.run(where, given.rows or _ROWS, **pace),
        "verify": lambda where: verify.run(where, given.years),
    }
    if work in plain:
        with place(name) as where:
            yield from plain[work](where)
        return
    if work == "skipping":
        if name == "fs":  # bytes are counted by the kernel
            with place(name) as where:
                yield from skipping.run(where, given.copies, given.many, rounds=given.rounds, seconds=given.seconds)
        return
    if work == "collection":
        with place(name) as where:
            yield from collection.run(where, given.live, given.garbage)
        with place(name) as where:
            sizes = [
                (live, garbage) for live in (given.live // 10, given.live) for garbage in (given.live // 10, given.live)
            ]
            yield collection.memory(where, sizes)
        return
    if work == "cubes":
        if name == "fs":
            with place(name) as where:
                size = cubes.Size(given.cube_partitions, given.cells)
                yield from cubes.run(where, size, kartothek=given.kartothek)
        return
    for partitions in given.partitions:
        with place(name) as where:
            yield from _at(work, where, partitions, given)
    if work == "exports":
        with place(name) as where:
            yield from exports.run_growth(where, given.partitions, rounds=given.rounds, seconds=given.seconds)
        yield from _versions(name, given)


def _commits(work: str, name: str, rows: int) -> Iterator[Rendered]:
    if name != "fs" and work not in ("bulk", "spread"):  # the others are about files, or their peers are
        return
    with place(name) as where:
        if work == "bulk_memory":
            yield bulk_memory.run(where, rows)
            return
        runs: dict[str, Callable[[Place, int], Iterator[Rendered]]] = {
            "bulk": bulk.run,
            "spread": spread.run,
            "stages": stages.run,
            "shapes": shapes.run,
        }
        yield from runs[work](where, rows)


def _versions(name: str, given: argparse.Namespace) -> Iterator[Rendered]:
    for versions in given.versions:
        with place(name) as where:
            yield from exports.run_versions(where, versions, rounds=given.rounds, seconds=given.seconds)


def _at(work: str, where: Place, partitions: int, given: argparse.Namespace) -> Iterator[Rendered]:
    if work == "tables":
        yield from tables.run(where, partitions, rounds=given.rounds, seconds=given.seconds)
    elif work == "indexed":
        yield from indexed.run(where, partitions, rounds=given.rounds, seconds=given.seconds)
    elif work == "exports":
        yield from exports.run(where, partitions, rounds=given.rounds, seconds=given.seconds)
    elif work == "memory":
        yield memory.run(where, partitions)
    else:
        raise SystemExit(f"no work {work!r}; there is {', '.join(WORK)}")


if __name__ == "__main__":
    main()
