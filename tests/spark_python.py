"""Python for the workers of the tests' Spark session, with the modules of our data source imported before daemons fork.

Each write starts three short-lived workers besides those of its tasks, and each imports pyarrow, pandas and kubothek
anew: a second of CPU. Spark forks them from daemons, ``python -m pyspark.daemon``, which import nothing, since
threads do not survive a fork. Those that these imports start, of a memory allocator and of OpenBLAS, handle it.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

_DAEMON = ["-m", "pyspark.daemon"]


def executable(directory: Path) -> Path:
    """Write a program to this directory which is called as ``python`` is: for ``PYSPARK_PYTHON``."""
    program = directory / "python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n')
    program.chmod(0o755)
    return program


def main(arguments: list[str]) -> None:
    """Run a daemon here, and anything else as Python itself does."""
    if arguments[:2] != _DAEMON:
        os.execv(sys.executable, [sys.executable, *arguments])
    sys.path[0] = str(Path.cwd())  # as with -m
    import kubothek.spark.datasource  # noqa: F401 - for the workers

    sys.argv = arguments[1:]
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
