"""Display of a run: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

import click
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kubothek.api.jobs import Progress
from kubothek.api.meta import Resource
from kubothek.local.manifests import Key
from kubothek.local.summary import Phase, Summary, summarise
from kubothek.words import count

_STYLES = {
    Phase.READY: "green",
    Phase.DONE: "green",
    Phase.SUSPENDED: "dim",
    Phase.RUNNING: "cyan",
    Phase.WAITING: "yellow",
    Phase.FAILED: "bold red",
}
_MARKS = {Phase.READY: "✓", Phase.DONE: "✓", Phase.SUSPENDED: "‖", Phase.WAITING: "·", Phase.FAILED: "✗"}
_URGENCY = (Phase.FAILED, Phase.RUNNING, Phase.WAITING, Phase.SUSPENDED, Phase.READY, Phase.DONE)
"""The order in which lines are shown if there is no room for all."""

_LINES_AROUND = 6
"""Lines of the terminal for header, count and prompt."""


class Screen(Protocol):
    """Display of a run."""

    def update(self, resource: Resource) -> None:
        """Show a resource's new status."""


@contextmanager
def display(summaries: Sequence[Summary]) -> Iterator[Screen]:
    """Yield a screen for these resources, live if standard output is a terminal."""
    console = Console()
    if not console.is_terminal:
        yield PlainScreen(summaries)
        return
    table = LiveTable(summaries, console)
    with Live(console=console, get_renderable=table.render, refresh_per_second=5):
        yield table


_ROUTINE = ("", "DependencyNotReady", "Waiting", "Queued")
"""Reasons for waiting that need no line of their own."""


_NAME_WIDTH = 28
"""Least width of the names."""


class PlainScreen:
    """One line per relevant change, for logs; progress only as stages."""

    def __init__(self, summaries: Sequence[Summary]) -> None:
        self._last = {summary.key: _news(summary) for summary in summaries}
        self._width = max((_NAME_WIDTH, *(len(str(summary.key)) for summary in summaries)))

    def update(self, resource: Resource) -> None:
        summary = summarise(resource)
        news = _news(summary)
        if news is None or self._last.get(summary.key) == news:
            return
        self._last[summary.key] = news
        time = datetime.now().astimezone().strftime("%H:%M:%S")
        click.echo(f"{time} {summary.key!s:<{self._width}} {summary.phase}: {_description(summary)}")
        sys.stdout.flush()


def _news(summary: Summary) -> tuple[str, ...] | None:
    """Return what makes a line differ from the previous one; None if no line is needed."""
    waits = summary.phase is Phase.WAITING and summary.reason in _ROUTINE
    if waits or summary.key.kind == "Engine":  # a missing Engine makes the manifests invalid
        return None
    stage = summary.progress.stage if summary.progress is not None else ""
    return summary.phase, summary.message, stage


class LiveTable:
    """Table of all resources, or as many as fit, with progress bars."""

    def __init__(self, summaries: Sequence[Summary], console: Console) -> None:
        self._console = console
        self._summaries: dict[Key, Summary] = {summary.key: summary for summary in summaries}
        self._spinner = Spinner("dots", style="cyan")

    def update(self, resource: Resource) -> None:
        summary = summarise(resource)
        self._summaries[summary.key] = summary

    def render(self) -> RenderableType:
        """Return the current table."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for header in ("", "Kind", "Name", "State", "Progress", "Message"):
            table.add_column(header, no_wrap=header != "Message", overflow="ellipsis")
        shown, hidden = self._choose()
        for summary in shown:
            table.add_row(*self._row(summary))
        if hidden:
            counts = Counter(summary.phase for summary in hidden)
            text = ", ".join(f"{count} {phase}" for phase, count in counts.items())
            table.add_row("", "", f"… {len(hidden)} more", "", "", text, style="dim")
        return table

    def _choose(self) -> tuple[list[Summary], list[Summary]]:
        summaries = list(self._summaries.values())
        room = max(5, self._console.height - _LINES_AROUND)
        if len(summaries) <= room:
            return summaries, []
        ranked = sorted(summaries, key=lambda summary: _URGENCY.index(summary.phase))
        return ranked[: room - 1], ranked[room - 1 :]

    def _row(self, summary: Summary) -> tuple[RenderableType, ...]:
        style = _STYLES[summary.phase]
        running = summary.phase is Phase.RUNNING
        return (
            self._spinner if running else Text(_MARKS[summary.phase], style),
            summary.key.kind,
            summary.key.name,
            Text(summary.phase, style),
            _bar(summary.progress) if summary.progress is not None else "",
            Text(
                _description(summary), "" if summary.phase is Phase.FAILED else "dim", overflow="ellipsis", no_wrap=True
            ),
        )


def _bar(progress: Progress) -> RenderableType:
    if progress.tasks_total:
        return ProgressBar(total=progress.tasks_total, completed=progress.tasks_done, width=20)
    return ProgressBar(pulse=True, width=20)


def _description(summary: Summary) -> str:
    progress = summary.progress
    if progress is None:
        return summary.message
    rows = f", {count(progress.rows, 'row')}" if progress.rows else ""
    return f"{progress.stage}{rows}"
