"""``kubothek run`` without its display: from manifests to a report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kubothek.api.meta import Resource
from kubothek.local.apply import Applied, apply, save, states_of
from kubothek.local.manifests import Key, Manifests
from kubothek.local.processes import JOB_COMMAND
from kubothek.local.runner import Runner
from kubothek.local.state import locked
from kubothek.local.summary import Summary, summarise


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a run."""

    summaries: Sequence[Summary]
    jobs: int
    """Number of jobs that it started."""
    stopped: bool

    @property
    def fine(self) -> bool:
        """Whether everything that the manifests ask for is done."""
        return not self.stopped and all(summary.phase.fine for summary in self.summaries)


class Session:
    """One run over manifests, while it holds the locks of their stores."""

    def __init__(self, applied: Applied, base: Path, command: tuple[str, ...], clock: Callable[[], datetime]) -> None:
        self.applied = applied
        self._runner = Runner(applied, base=base, slots=os.cpu_count() or 1, command=command, clock=clock)

    @property
    def summaries(self) -> Sequence[Summary]:
        """All resources in their present state, in the order in which they are applied."""
        return [summarise(resource) for resource in self._runner.in_order()]

    def run(self, on_change: Callable[[Resource], None]) -> Report:
        """Run to the end, or until :meth:`stop`; ``on_change`` is called with every changed resource."""
        finished = self._runner.run(on_change)
        return Report(self.summaries, self._runner.jobs_started, not finished)

    def stop(self) -> None:
        """End the run as soon as possible; may be called from a signal handler."""
        self._runner.stop()

    def log_of(self, key: Key) -> Path | None:
        """Return the log of the newest attempt of a resource that this run has observed."""
        return self._runner.log_of(key)


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def session(
    manifests: Manifests,
    base: Path,
    command: tuple[str, ...] = JOB_COMMAND,
    clock: Callable[[], datetime] = _now,
) -> Iterator[Session]:
    """Apply the manifests and lock their stores. Raises ManifestError for forbidden edits, LockedError."""
    states = states_of(manifests, base)
    with locked(list(states.values())):
        applied = apply(manifests, states, clock())
        save(applied)
        yield Session(applied, base, command, clock)
