"""Progress of a transfer, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.odf.sync import Progress, Told

_SECONDS = 0.2


@contextmanager
def shown() -> Iterator[Told]:
    """Yield a callback that shows progress if there is a terminal."""
    last = 0.0
    wide = 0

    def report(progress: Progress) -> None:
        nonlocal last, wide
        now = time.monotonic()
        if not sys.stderr.isatty() or now - last < _SECONDS:
            return
        last = now
        line = f"{count(progress.blocks, 'block')}"
        if progress.objects_total:
            line += f", {progress.objects:,} of {count(progress.objects_total, 'object')}"
            line += f", {progress.fetched >> 20:,} MiB"
        wide = max(wide, len(line))
        sys.stderr.write(f"\r{line:<{wide}}")
        sys.stderr.flush()

    try:
        yield report
    finally:
        if wide:
            sys.stderr.write(f"\r{'':<{wide}}\r")
