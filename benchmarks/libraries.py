"""CPU time of this process by the library that spends it, sampled by ``perf``: also of code without symbols."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Final

_HERTZ: Final = 499
_LIBRARIES: Final[Mapping[str, str]] = {
    "_internal": "deltalake (Rust)",
    "libparquet": "Arrow's Parquet",
    "libarrow": "Arrow",
    "libsha3_multibuffer": "SHA3-256 in lanes",
    "libpython": "Python",
    "python": "Python",
    "libc.so": "C library: copies, memory",
    "[kernel": "kernel: page faults, files",
}
OTHERS: Final = "others"


def cpu_by_library(work: Callable[[], object]) -> dict[str, float] | None:
    """Run work and return the CPU seconds of each library, the most first; None where perf does not run."""
    program = which("perf")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="kubothek-perf-") as directory:
        data = Path(directory) / "perf.data"
        if not _is_recorded(program, data, work):
            return None
        report = [program, "report", "-i", str(data), "--stdio", "-F", "sample,dso", "--sort", "dso", "-t", ";"]
        text = subprocess.run(report, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return seconds_of(text)


def _is_recorded(program: str, data: Path, work: Callable[[], object]) -> bool:
    """Sample this process while it works; return False, without work, if perf may not observe it."""
    asked, asks = os.pipe()
    answers, answer = os.pipe()
    command = [program, "record", "-e", "cpu-clock", "-F", str(_HERTZ), "-p", str(os.getpid()), "-o", str(data)]
    command += ["-D", "-1", "--control", f"fd:{asked},{answer}"]  # it attaches, and samples once it is enabled
    process = subprocess.Popen(  # noqa: S603
        command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(asked, answer)
    )
    for each in (asked, answer):
        os.close(each)
    try:
        with suppress(BrokenPipeError):
            os.write(asks, b"enable\n")
        if not os.read(answers, 16):  # it has ended
            return False
        work()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        for each in (asks, answers):
            os.close(each)
    return True


def seconds_of(report: str) -> dict[str, float]:
    """Return the seconds of each library in a report of ``perf`` whose fields are samples and library."""
    found: dict[str, float] = {}
    for line in report.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        samples, _, library = line.partition(";")
        name = next((name for start, name in _LIBRARIES.items() if library.strip().startswith(start)), OTHERS)
        found[name] = found.get(name, 0.0) + int(samples) / _HERTZ
    return dict(sorted(found.items(), key=lambda item: -item[1]))
