"""``kubothek run``: a directory of manifests made true on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubothek.cli.options import manifests_option
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.runtime.local.manifests import Key, Manifests
    from kubothek.runtime.local.session import Report, Session

_SHOWN = 20
"""How many of many lines are printed before the rest is counted."""


@click.command()
@manifests_option
def run(manifests: tuple[Path, ...]) -> int:
    """Make a directory of manifests come true on this machine.

    Creates what is missing, runs the Commits that have not happened yet, each exactly once, and ends when there is
    nothing left to do. Running it again is safe: what is done stays done, what was interrupted goes on, what
    failed is tried again. The same manifests work in a cluster.
    """
    from kubothek.cli.display import display
    from kubothek.runtime.local.manifests import load
    from kubothek.runtime.local.session import session

    loaded = load(manifests)
    started = time.monotonic()
    with session(loaded, Path.cwd()) as running:
        _tell_absent(running.applied.absent)
        with _signals(running.stop), display(running.summaries) as screen:
            report = running.run(screen.update)
        return _conclude(report, running, loaded, time.monotonic() - started)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the run, and nothing else in it."""

    def handle(*_: object) -> None:
        os.write(sys.stderr.fileno(), b"stopping the jobs ...\n")  # not print: it may be at work right now
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_absent(absent: Sequence[Key]) -> None:
    if absent:
        named = ", ".join(map(str, absent[:_SHOWN])) + (" …" if len(absent) > _SHOWN else "")
        click.echo(f"note: in no manifest any more, and left as it is: {named}", err=True)


def _conclude(report: Report, running: Session, manifests: Manifests, seconds: float) -> int:
    """Say how it ended; returns the exit code."""
    jobs = f"{count(report.jobs, 'job')} started, {seconds:.1f} s"
    if report.stopped:
        click.echo(f"stopped ({jobs}); the same command goes on from here", err=True)
        return 130
    wrong = [summary for summary in report.summaries if not summary.phase.fine]
    for summary in wrong[:_SHOWN]:
        where, log = manifests.where(summary.key), running.log_of(summary.key)
        click.echo(f"{summary.phase.lower()}: {summary.key} ({where}): {summary.reason}: {summary.message}", err=True)
        if log is not None:
            click.echo(f"        log: {log}", err=True)
    if len(wrong) > _SHOWN:
        click.echo(f"… and {len(wrong) - _SHOWN} more", err=True)
    total = count(len(report.summaries), "resource")
    if wrong:
        click.echo(
            f"{len(wrong)} of {total} not as they should be ({jobs}). Mend what is named above, then run this again",
            err=True,
        )
        return 1
    click.echo(f"all is as it should be: {total} ({jobs})")
    return 0
