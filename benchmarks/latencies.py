"""What came of the runs of each case: seconds by stage, with the load of the machine, in Markdown."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

STAGES: Final = ("apply", "decided", "pod", "scheduled", "started", "imported", "committed", "Ready")
"""kubectl has ended; the operator has written down what it will do; the job has a pod; a node for it; its container
runs; the job's first word; its last; the Commit, or what is compared with it, is done.
"""


@dataclass(frozen=True)
class Run:
    """One run: seconds of each stage that was seen, after the one before, and in all."""

    stages: dict[str, float]
    whole: float
    load: float


@dataclass
class Latencies:
    """The runs of each case, in the order in which the cases came; and why others have none."""

    bars: dict[str, str] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, case: str, bar: str, moments: dict[str, float]) -> None:
        """A run, of which the moments were these, from ``begun``; what was seen late counts to the stage before."""
        stages: dict[str, float] = {}
        last = moments["begun"]
        for stage in STAGES:
            if stage in moments:
                stages[stage] = max(0.0, moments[stage] - last)
                last = max(last, moments[stage])
        run = Run(stages, moments["Ready"] - moments["begun"], os.getloadavg()[0])
        self.bars[case] = bar
        self.runs.setdefault(case, []).append(run)
        told = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stages.items())
        self.say(f"{case}: {run.whole:.2f} s ({told}), load {run.load:.0f}")

    def fail(self, case: str, why: str) -> None:
        """The case has come to an end before its last run."""
        self.failed[case] = why.strip().splitlines()[0]
        self.say(f"{case}: {why}")

    def say(self, text: str) -> None:
        """At once, whatever becomes of the rest."""
        print(text, file=sys.stderr, flush=True)

    def render(self, title: str) -> str:
        """As Markdown: medians by stage, and in all, with the 90th percentile, the least and the most."""
        lines = [
            f"### {title}",
            "",
            f"| case | {' | '.join(STAGES)} | median | p90 | least | most | n | load | bar |",
            f"|---|{'---|' * (len(STAGES) + 7)}",
        ]
        for case, runs in self.runs.items():
            by_stage = [[run.stages[stage] for run in runs if stage in run.stages] for stage in STAGES]
            stages = [f"{median(found):.2f}" if found else "–" for found in by_stage]
            whole = sorted(run.whole for run in runs)
            figures = [f"**{median(whole):.2f} s**", *(f"{each:.2f}" for each in (_p90(whole), whole[0], whole[-1]))]
            load = f"{median(run.load for run in runs):.0f}"
            lines.append(f"| {' | '.join([case, *stages, *figures, str(len(runs)), load, self.bars[case]])} |")
        lines += [f"\n{case}: **not measured to the end**: {why}" for case, why in self.failed.items()]
        return "\n".join(lines) + "\n"

    def ratio(self, case: str, base: str, bar: str) -> str:
        """One case beside another one, by the medians and by the least; empty if one of them has no runs."""
        ours, theirs = ([run.whole for run in self.runs.get(name, ())] for name in (case, base))
        if not ours or not theirs:
            return ""
        medians, least = median(ours) / median(theirs), min(ours) / min(theirs)
        return f"{case} / {base}: **{medians:.2f}** by the medians, {least:.2f} by the least (bar: {bar})\n"


def _p90(ordered: Sequence[float]) -> float:
    """The least that nine of ten do not exceed."""
    return ordered[math.ceil(0.9 * len(ordered)) - 1]
