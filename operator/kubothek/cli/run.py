"""``kubothek run``: apply manifests on this machine."""

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
    from kubothek.local.manifests import Key, Manifests
    from kubothek.local.session import Report, Session

_SHOWN = 20
"""Most lines that are printed; further ones are only counted."""


@click.command()
@manifests_option
def run(manifests: tuple[Path, ...]) -> int:
    """Apply manifests on this machine.

    Creates what is missing, runs each Commit exactly once, and ends when nothing is left to do. Repeating it is safe:
    finished work is skipped, interrupted work continues, failed work is retried. Manifests of other API groups are
    skipped. The same manifests work in a cluster.
    """
    from kubothek.cli.display import display
    from kubothek.local.manifests import load
    from kubothek.local.session import session

    loaded = load(manifests)
    report_foreign(loaded)
    started = time.monotonic()
    with session(loaded, Path.cwd()) as running:
        _report_absent(running.applied.absent)
        with _signals(running.stop), display(running.summaries) as screen:
            report = running.run(screen.update)
        return _conclude(report, running, loaded, time.monotonic() - started)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the run, and nothing else in it."""

    def handle(*_: object) -> None:
        os.write(sys.stderr.fileno(), b"stopping the jobs ...\n")  # not print, which the signal may have interrupted
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report_absent(absent: Sequence[Key]) -> None:
    if absent:
        named = ", ".join(map(str, absent[:_SHOWN])) + (" …" if len(absent) > _SHOWN else "")
        click.echo(f"note: not in these manifests; unchanged: {named}", err=True)


def report_foreign(loaded: Manifests) -> None:
    """Note the manifests of other API groups, which are skipped."""
    if loaded.foreign:
        named = ", ".join(loaded.foreign[:_SHOWN]) + (" …" if len(loaded.foreign) > _SHOWN else "")
        click.echo(f"note: {count(len(loaded.foreign), 'manifest')} of other API groups skipped: {named}", err=True)


def _conclude(report: Report, running: Session, manifests: Manifests, seconds: float) -> int:
    """Print the result; return the exit code."""
    jobs = f"{count(report.jobs, 'job')}, {seconds:.1f} s"
    if report.stopped:
        click.echo(f"stopped ({jobs}); run the same command to continue", err=True)
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
            f"{len(wrong)} of {total} failed or waiting ({jobs}). Fix the above, then run this again",
            err=True,
        )
        return 1
    click.echo(f"{total} ready ({jobs})" if report.jobs else f"up to date: {total} ({jobs})")
    return 0
