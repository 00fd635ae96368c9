"""The processor cores that this process may use."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""Of a container, as the container sees it (Linux kernel, "Control Group v2", "CPU Interface Files")."""

_ADDRESS_SPACE: Final = (resource.RLIMIT_AS, resource.RLIMIT_DATA)


def available_cores(quota: Path = _QUOTA) -> int:
    """Return how many cores this process may use: those of its CPU affinity, or fewer if its container has a limit.

    A limit counts as its whole cores, at least one. ``quota`` is the file of the limit; it may be absent. A process
    with a limited address space, such as a worker of :mod:`kubothek.sandbox`, has one: there are several of them, and
    a thread takes 72 MiB of that space (8 of stack, 64 of glibc's malloc).
    """
    if any(resource.getrlimit(limit)[0] != resource.RLIM_INFINITY for limit in _ADDRESS_SPACE):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        most, period = quota.read_text().split()
        return max(1, min(cores, int(most) // int(period)))
    except (OSError, ValueError):  # no control groups of version 2, or "max": no limit
        return cores
