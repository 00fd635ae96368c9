"""The CPU clock of benchmarks counts each process once, whoever started it and whether or not it has ended."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from benchmarks.cpu import CpuClock, _Times, lost

pytestmark = pytest.mark.slow

# A parent with or without SIGCHLD ignored, as PySpark's daemon has it; its child ends at a line.
PARENT = """
import os, signal, sys, time
if {ignores}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
child = os.fork()
if not child:
    while time.process_time() < 0.5:
        pass
    print("worked", flush=True)
    sys.stdin.readline()
    os._exit(0)
try:
    os.waitpid(child, 0)
except ChildProcessError:
    pass
print("ended", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ignores", [True, False])
def test_cpu_of_ended_child_counts_exactly_once(ignores: bool) -> None:
    clock = CpuClock()
    before = clock.read()
    script = [sys.executable, "-c", PARENT.format(ignores=ignores)]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "worked\n"
        alive = clock.read()
        print(file=parent.stdin)
        assert parent.stdout.readline() == "ended\n"
        assert not psutil.Process(parent.pid).children()
        ended = clock.read()
        print(file=parent.stdin)
    assert alive - before >= 0.4  # the kernel counts in ticks of 10 ms
    assert -0.05 < ended - alive < 0.4


def test_cpu_lost_is_what_parents_did_not_collect() -> None:
    top, daemon, one, two = (1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0)
    before = {
        top: _Times(None, 1.0, 0.0),
        daemon: _Times(top, 1.0, 0.5),
        one: _Times(daemon, 2.0, 0.0),
        two: _Times(daemon, 3.0, 1.0),
    }
    assert lost(before, before) == 0
    assert lost(before, {top: before[top], daemon: before[daemon]}) == 6.0
    assert lost(before, {top: before[top], daemon: _Times(top, 1.0, 6.5)}) == 0
    assert lost(before, {top: before[top], daemon: _Times(top, 1.0, 2.5)}) == 4.0
