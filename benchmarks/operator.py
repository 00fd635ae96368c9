"""The operator at the size that issue 11 asks for, beside the same duty done by kopf's handlers alone.

The API server is real, and so are watches, admission, CEL and server-side apply; what is played is the kubelet.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.fleet.cluster import cluster
from benchmarks.fleet.process import handlers, kubothek
from benchmarks.fleet.scenario import Findings, Size, build, measure

SYSTEMS = ("kubothek", "handlers")
PUBLISHED = """### What kubeflow's Spark operator publishes of itself

Not measured here, and of real Spark jobs on a real cluster (36 cores for the operator), so for orientation only:
130 to 150 applications a minute; statuses up to 30 minutes late; a webhook adds up to 60 seconds a job; beyond 6,000
applications in one namespace pods fail.
https://www.kubeflow.org/docs/components/spark-operator/performance/benchmarking/
https://blog.kubeflow.org/operators/benchmarking/performance/2025/03/15/kubeflow-spark-operator-benchmarks.html
"""


async def run(system: str, size: Size, *, seconds: float, jobs: int, log: Path) -> Findings:
    """One system with a fleet of its own. ``jobs``: how many run at a time."""
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(f"{system}: {time.monotonic() - begun:6.1f} s: {what}", file=sys.stderr, flush=True)

    async with cluster() as there:
        await build(there, size)
        tell(f"{size.datasets:,} Datasets in {size.namespaces} namespaces are there")
        start = {
            "kubothek": partial(kubothek, there, log, f"--limit-jobs={jobs}"),
            "handlers": partial(handlers, there, log, BENCH_JOBS=str(jobs), BENCH_INTERVAL=str(size.interval)),
        }[system]
        return await measure(system, there, size, seconds, start, tell)


def render(found: Sequence[Findings]) -> str:
    """As Markdown."""
    rows = list(dict.fromkeys(row for each in found for row in each.values))
    lines = ["| | " + " | ".join(each.name for each in found) + " |", "|---" * (len(found) + 1) + "|"]
    for row in rows:
        cells = [_number(each.values[row]) if row in each.values else "–" for each in found]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator", description=__doc__)
    parser.add_argument("systems", nargs="*", default=list(SYSTEMS), help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--datasets", type=int, default=Size.datasets)
    parser.add_argument("--commits", type=int, default=Size.commits)
    parser.add_argument("--namespaces", type=int, default=Size.namespaces)
    parser.add_argument("--interval", type=int, default=Size.interval, help="seconds between looks at a store")
    parser.add_argument("--edits", type=int, default=Size.edits)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a job runs")
    parser.add_argument("--jobs", type=int, default=50, help="at a time")
    given = parser.parse_args()
    size = Size(given.datasets, given.commits, given.namespaces, given.interval, given.edits)
    found = []
    for system in given.systems:
        with tempfile.TemporaryDirectory(prefix="kubothek-bench-") as scratch:
            log = Path(scratch) / "operator.log"
            found.append(asyncio.run(run(system, size, seconds=given.seconds, jobs=given.jobs, log=log)))
    print(
        f"{os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}; {size.datasets:,} Datasets, {size.commits:,} Commits\n"
    )
    print(render(found))
    print(PUBLISHED)
    for each in found:
        print(f"### Requests of {each.name}\n")
        for phase, asked in each.requests.items():
            told = ", ".join(f"{verb} {what} {count:,}" for (verb, what), count in asked.most_common(14))
            print(f"- {phase}: {told}")


if __name__ == "__main__":
    main()
