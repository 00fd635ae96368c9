"""Peak memory of a fresh process that commits many rows, and ten times as many. On Linux only.

Beside deltalake-rs, which gets the same rows as a stream. The bar is 1.5 GiB at any number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from benchmarks import bulk
from benchmarks.commits import PARTITION_ON, SourceFiles, commit
from benchmarks.memory import apart, peak
from benchmarks.places import Place, Root
from benchmarks.systems import writers

OURS: Final = "kubothek, one process"
_TIMES: Final = (1, 10)
_numbers = count()


@dataclass(frozen=True)
class Peaks:
    """Peak resident memory in MiB by rows and system: at the start with everything imported, and after the commit."""

    title: str
    peaks: Mapping[tuple[int, str], tuple[float, float]]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| rows | system | start | peak | × fewest rows |", "|---|---|---|---|---|"]
        least = min(rows for rows, _ in self.peaks)
        for (rows, system), (start, after) in self.peaks.items():
            ratio = after / self.peaks[least, system][1]
            lines.append(f"| {rows:,} | {system} | {start:.0f} MiB | {after:,.0f} MiB | {ratio:.1f} |")
        return "\n".join(lines) + "\n"


def run(place: Place, rows: int) -> Peaks:
    """Measure each system in a process of its own, at each number of rows."""
    systems: Mapping[str, Callable[[SourceFiles, Root], None]] = {OURS: _ours, "deltalake-rs": _delta}
    peaks = {}
    for each in (rows * times for times in _TIMES):
        source = place.root(f"source-{each}")
        bulk.make_source(source, each)
        for name, write in systems.items():
            target = place.root(f"target-{next(_numbers)}")
            peaks[each, name] = apart(_peaks, write, bulk.files_of(source), target)
    return Peaks(f"peak memory of a commit, two indices, {place.name}", peaks)


def _peaks(write: Callable[[SourceFiles, Root], None], source: SourceFiles, target: Root) -> tuple[float, float]:
    start = peak()
    write(source, target)
    return start, peak()


def _ours(source: SourceFiles, target: Root) -> None:
    commit(target, source, bulk.here)


def _delta(source: SourceFiles, target: Root) -> None:
    writers.delta(source, target, PARTITION_ON)
