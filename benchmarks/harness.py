"""Timing interleaved rounds, and the table that comes of it.

Rounds go A B C A B C, so that a change of the machine's load meets all systems; what is worth reading are the
ratios within one table, of the least time (what the work costs) and of the median (what a user sees).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Case:
    """One system's way to do the work that a table compares; ``run`` is what is timed, ``prepare`` comes before it."""

    name: str
    run: Callable[[], object]
    prepare: Callable[[], object] = lambda: None


@dataclass
class Series:
    """The samples of one case: seconds of wall time and of CPU time, a sample a round."""

    name: str
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, run: Callable[[], object], clock: Callable[[], float]) -> None:
        """Add one sample; ``clock`` tells CPU time."""
        wall, cpu = time.perf_counter(), clock()
        run()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(clock() - cpu)


@dataclass(frozen=True)
class Table:
    """What came of one comparison. Ratios are to the first series; ``load`` is that of the machine, per core."""

    title: str
    series: Sequence[Series]
    load: float

    def render(self) -> str:
        """As Markdown."""
        lines = [
            f"### {self.title}",
            "",
            f"load {self.load:.1f} a core",
            "",
            "| system | min | median | CPU min | min × | median × | n |",
            "|---|---|---|---|---|---|---|",
        ]
        base = self.series[0]
        lines += [
            f"| {found.name} | {_seconds(min(found.wall))} | {_seconds(median(found.wall))} "
            f"| {_seconds(min(found.cpu))} | {min(found.wall) / min(base.wall):.1f} "
            f"| {median(found.wall) / median(base.wall):.1f} | {len(found.wall)} |"
            for found in self.series
        ]
        return "\n".join(lines) + "\n"


def compare(
    title: str,
    cases: Sequence[Case],
    *,
    rounds: int,
    seconds: float,
    cpu: Callable[[], float] = time.process_time,
) -> Table:
    """Time the cases in interleaved rounds, after one round that does not count.

    ``seconds``  a case that has used up this much sits out the rounds that are left
    ``cpu``      a clock of CPU time; by default that of this process
    """
    series = [Series(case.name) for case in cases]
    for case in cases:
        case.prepare()
        case.run()
    # Else each system would pay for looking through what all the others keep in memory.
    gc.collect()
    gc.freeze()
    loads = [os.getloadavg()[0]]
    for _ in range(rounds):
        for case, found in zip(cases, series, strict=True):
            if sum(found.wall) < seconds:
                case.prepare()
                found.time(case.run, cpu)
    gc.unfreeze()
    loads.append(os.getloadavg()[0])
    return Table(title, series, max(loads) / (os.cpu_count() or 1))


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
