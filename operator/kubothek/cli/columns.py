"""Aligned columns of text, as kubectl prints them: easy to read, easy to cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> Iterator[str]:
    """The lines of a table; columns named in ``right`` are aligned right, as numbers are read."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        )
        yield "   ".join(cells).rstrip()


def shown_time(moment: datetime | None) -> str:
    """A time in UTC, to the second, as AS OF and ``--as-of`` read it; a dash for none."""
    if moment is None:
        return "-"
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a framed table on the terminal, folded to its width."""
    from rich.box import ROUNDED
    from rich.console import Console
    from rich.table import Table

    table = Table(box=ROUNDED, header_style="bold")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, emoji=False).print(table)
