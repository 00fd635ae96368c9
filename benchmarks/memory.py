"""Peak memory of a process that plans and commits, beyond what it takes to start it. On Linux only."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.places import Place, Root
from benchmarks.systems.table import System
from benchmarks.tables import READ_PART, SYSTEMS

_TIMES = 3

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Memory:
    """Peak resident memory in MiB by system: at the start with everything imported, after planning, after commits."""

    title: str
    peaks: dict[str, tuple[float, float, float]]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| system | start | + planning | + commits |", "|---|---|---|---|"]
        for name, (start, planned, committed) in self.peaks.items():
            lines.append(f"| {name} | {start:.0f} MiB | {planned - start:.0f} MiB | {committed - start:.0f} MiB |")
        return "\n".join(lines) + "\n"


def run(place: Place, partitions: int) -> Memory:
    """Each system in a fresh process."""
    peaks = {}
    for number, (name, make) in enumerate(SYSTEMS.items()):
        root = place.root(f"{number}")
        make(root).build(partitions)
        peaks[name] = apart(_peaks, make, root)
    return Memory(f"peak memory at {partitions:,} partitions, {place.name}", peaks)


def _peaks(make: Callable[[Root], System], root: Root) -> tuple[float, float, float]:
    system = make(root)
    start = peak()
    for _ in range(_TIMES):
        system.plan(READ_PART)
    planned = peak()
    for _ in range(_TIMES):
        system.append()
    return start, planned, peak()


def apart(act: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Act in a fresh process, which has this one's environment and none of its memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(act, *args, **options).result()


def peak(process: int | str = "self") -> float:
    """MiB, of a process: what ``getrusage`` tells is the parent's, if that was larger."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]
