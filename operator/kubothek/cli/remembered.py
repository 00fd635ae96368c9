"""Local record of this user's newest queries: what skipping metadata saved them, and what they filtered by.

``$XDG_STATE_HOME/kubothek/queries`` (default: ``~/.local/state``) has one file per store, of some dozen kilobytes at
most. Nothing is written to the store: queries only read it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kubothek.sql.read import Read

MOST = 128
"""Most queries that are kept per store."""
_SLACK = 2


@dataclass(frozen=True, slots=True)
class Remembered:
    """One query's read of one dataset; see :class:`~kubothek.sql.read.Read`."""

    dataset: str
    considered: int
    skipped: int
    filters: tuple[str, ...]


def remember(url: str, reads: Sequence[Read]) -> None:
    """Record what a query skipped. A failure, such as a missing home directory, does not fail the query."""
    lines = [
        orjson.dumps([read.name, read.considered, read.skipped, read.filters])
        for read in reads
        if read.considered or read.filters
    ]
    try:
        path = _path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = path.read_bytes().splitlines() if path.exists() else []
        if len(kept) < _SLACK * MOST:
            with path.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in lines))
            return
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_bytes(b"".join(line + b"\n" for line in [*kept, *lines][-MOST:]))
        scratch.replace(path)
    except (OSError, RuntimeError):
        return


def recent(url: str, *names: str) -> list[Remembered]:
    """Return the newest queries of a dataset, or of other files, with any of these names; oldest first."""
    try:
        lines = _path(url).read_bytes().splitlines()
    except (OSError, RuntimeError):
        return []
    return [found for found in _parsed(lines[-MOST:]) if found.dataset in names]


def _parsed(lines: Sequence[bytes]) -> Iterator[Remembered]:
    for line in lines:
        try:
            dataset, considered, skipped, filters = orjson.loads(line)
            yield Remembered(str(dataset), int(considered), int(skipped), tuple(map(str, filters)))
        except (ValueError, TypeError):  # an incomplete line of a killed process
            continue


def _path(url: str) -> Path:
    """Return the file of a store. Raises RuntimeError without a home directory."""
    state = os.environ.get("XDG_STATE_HOME")
    root = Path(state) if state else Path.home() / ".local" / "state"
    return root / "kubothek" / "queries" / f"{sha256(url.encode()).hexdigest()[:32]}.jsonl"
