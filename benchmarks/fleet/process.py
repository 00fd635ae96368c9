"""An operator as a process of its own, and what it takes of the machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil

from benchmarks.fleet.cluster import Cluster
from tests.s3server import _free_port


class Operator:
    """A running one; ``metrics`` are where it tells of itself, None if it does not."""

    def __init__(self, process: subprocess.Popen[bytes], metrics: str | None, log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._metrics = metrics
        self._log = log
        self._stats = psutil.Process(process.pid)

    @property
    def memory(self) -> float:
        """Megabytes that are its own."""
        return float(self._stats.memory_info().rss) / 1e6

    @property
    def cpu(self) -> float:
        """Seconds of CPU so far."""
        times = self._stats.cpu_times()
        return float(times.user + times.system)

    @property
    def starved(self) -> float:
        """Seconds so far in which it could have run, and waited for a core: what neighbours took from it."""
        _, waited, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        return int(waited) / 1e9

    def check(self) -> None:
        """Raises if it is gone."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the operator ended:\n{self._log.read_text(errors='replace')[-4000:]}")

    async def tells(self, name: str, **labels: str) -> float | None:
        """The sum of its series of this name with these labels; None while it does not answer."""
        assert self._metrics is not None, "this one has no metrics"
        self.check()
        try:
            async with aiohttp.ClientSession() as session, session.get(self._metrics) as response:
                text = await response.text()
        except aiohttp.ClientError:
            return None
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(each in line for each in wanted))


@asynccontextmanager
async def kubothek(cluster: Cluster, log: Path, *flags: str) -> AsyncIterator[Operator]:
    """Ours."""
    port, probes = _free_port(), _free_port()
    command = [sys.executable, "-m", "kubothek.cluster", "--all-namespaces", "--job-image=x/y:z"]
    command += [f"--metrics-port={port}", f"--probe-port={probes}", "--log-level=WARNING", *flags]
    async with _running(command, cluster, log, f"http://127.0.0.1:{port}/metrics", {}) as found:
        yield found


@asynccontextmanager
async def handlers(cluster: Cluster, log: Path, **settings: str) -> AsyncIterator[Operator]:
    """The same duty by kopf's own handlers."""
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", "--quiet"]
    command += ["-m", "benchmarks.fleet.handlers"]
    async with _running(command, cluster, log, None, settings) as found:
        yield found


@asynccontextmanager
async def _running(
    command: Sequence[str], cluster: Cluster, log: Path, metrics: str | None, settings: Mapping[str, str]
) -> AsyncIterator[Operator]:
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), **settings}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=environment, stdout=sink, stderr=sink, start_new_session=True)  # noqa: S603
    try:
        yield Operator(process, metrics, log)
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
