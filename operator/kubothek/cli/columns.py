"""Aligned columns of text, as kubectl prints them: easy to read, easy to cut."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kubothek.words import count


def columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), *, gap: int = 3
) -> Iterator[str]:
    """Yield the lines of a table; columns named in ``right``, such as numbers, are right-aligned."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        cells = (
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, row, widths, strict=True)
        )
        yield (" " * gap).join(cells).rstrip()


def shown_time(moment: datetime | None) -> str:
    """Return a time in UTC, to the second, as AS OF and ``--as-of`` read it; a dash for None."""
    if moment is None:
        return "-"
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age(moment: datetime | None) -> str:
    """Return the age in the largest unit that gives 2 or more: ``50s``, ``5m``, ``36h``, ``12d``; a dash for None."""
    if moment is None:
        return "-"
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    seconds = max(0, int((datetime.now(UTC) - aware).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def cut(text: str, width: int) -> str:
    """Cut the text to ``width`` characters; an ellipsis marks a cut."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


_SHORTEST = 12
"""Characters that a cell is cut to at least."""


def listed(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str] = (),
    *,
    shorten: Sequence[str] = (),
    spare: Sequence[str] = (),
    wide: bool = False,
) -> Iterator[str]:
    """The lines of a table; on a terminal no wider than it, unless it is ``wide``.

    A terminal that is too narrow gets remarks (a last column without a header) below their rows, not the columns
    ``spare``, of which the first go first, and the cells of ``shorten`` in part.
    """
    lines = list(columns(headers, rows, right))
    width = shutil.get_terminal_size().columns
    if wide or not sys.stdout.isatty() or max(map(len, lines)) <= width:
        yield from lines
    else:
        yield from _narrow(headers, rows, right, shorten, spare, width)


def _narrow(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    shorten: Sequence[str],
    spare: Sequence[str],
    width: int,
) -> Iterator[str]:
    remarks = [row[-1] for row in rows] if headers[-1] == "" else [""] * len(rows)
    shown = {name: [row[at] for row in rows] for at, name in enumerate(headers) if name}
    widths = {name: max(map(len, (name, *cells))) for name, cells in shown.items()}
    gaps = _GAP * (len(shown) - 1)
    dropped = []
    for name in spare:
        if sum(min(most, _SHORTEST) if each in shorten else most for each, most in widths.items()) + gaps <= width:
            break
        del widths[name]
        gaps -= _GAP
        dropped.append(name)
    while sum(widths.values()) + gaps > width:
        longest = max((name for name in widths if name in shorten), key=widths.__getitem__, default=None)
        if longest is None or widths[longest] <= _SHORTEST:
            break
        widths[longest] -= 1
    cells = [[_shortened(shown[name][at], widths[name]) for name in widths] for at in range(len(rows))]
    header, *lines = columns(list(widths), cells, right, gap=_GAP)
    yield header
    for line, remark in zip(lines, remarks, strict=True):
        yield line
        if remark:
            yield cut(f"    {remark}", width)
    if dropped:
        yield f"… without {', '.join(dropped)}: -o wide shows all"


def _shortened(text: str, width: int) -> str:
    """The text in at most this many characters: the beginning of a sentence, both ends of a name."""
    if len(text) <= width or " " in text:
        return cut(text, width)
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


_VERTICAL_ROWS = 10
"""Most rows of a too wide result that are shown with one column per line."""
_LONGEST_CELL = 60
_GAP = 2
"""Spaces between columns."""


def fitted(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], width: int) -> Iterator[str]:
    """Yield the lines of a table that is at most ``width`` wide.

    If it is wider, a few rows are written with one column per line; for many rows, middle columns are left out.
    """
    short = [[cut(" ".join(cell.split()), _LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *short, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) <= width:
        yield from columns(headers, short, right, gap=_GAP)
        return
    if len(rows) <= _VERTICAL_ROWS:
        longest = max(map(len, headers))
        for number, row in enumerate(rows, 1):
            yield f"-- row {number} " + "-" * max(0, min(width, 60) - 8 - len(str(number)))
            yield from (f"{name:<{longest}}  {value}" for name, value in zip(headers, row, strict=True))
        return
    shown = _outer(widths, width)
    names = ["…" if at is None else headers[at] for at in shown]
    cells = [["…" if at is None else row[at] for at in shown] for row in short]
    yield from columns(names, cells, right, gap=_GAP)
    hidden = len(headers) - (len(shown) - 1)
    yield f"… {count(hidden, 'more column')}: -o wide shows all, as does SELECT with their names"


def _outer(widths: Sequence[int], width: int) -> list[int | None]:
    """Return the first and last columns that fit, taken from both sides in turns; None marks the gap."""
    room = width - 1
    left, right = list[int](), list[int]()
    for turn in range(len(widths)):
        at = len(left) if turn % 2 == 0 else len(widths) - 1 - len(right)
        room -= widths[at] + _GAP
        if room < 0 and turn:
            break
        (left if turn % 2 == 0 else right).append(at)
    return [*left, None, *reversed(right)]
