"""The line number of a row, for error messages."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from kubothek.errors import LakeError
from kubothek.ingest.model import CsvOptions
from kubothek.ingest.readers.streams import TextStream

_ROW: Final = re.compile(r"(?<=['0-9A-Za-z])(?:,? row) (\d+)(?=: | is no | has )")
_HEADER_BYTES: Final = 1 << 20
_MOST_ROWS: Final = 1_000_000
"""Beyond this row the line number is omitted, because finding it takes as long as reading the rows."""


def with_line(error: LakeError, lines: Callable[[], Iterator[int]]) -> LakeError:
    """Return the same error with the line of its row; ``lines`` yields the line where each row begins."""
    text = str(error)
    if (found := _ROW.search(text)) is None or (row := int(found[1])) > _MOST_ROWS:
        return error
    line = None
    with suppress(csv.Error, LakeError):
        line = next(islice(lines(), row - 1, None), None)
    return error if line is None else type(error)(f"{text[: found.end()]} (line {line}){text[found.end() :]}")


def csv_lines(open_stream: Callable[[], TextStream], options: CsvOptions) -> Iterator[int]:
    """Yield the line where each row begins, from 1, without the header and empty lines."""
    header = options.header
    with open_stream() as stream:
        reader = csv.reader(
            io.TextIOWrapper(io.BufferedReader(stream), "utf-8", "replace", newline=""), **_dialect(options)
        )
        begin = 1
        for row in reader:
            if row and not header:
                yield begin
            header = header and not row
            begin = reader.line_num + 1


def header_bytes(open_stream: Callable[[], TextStream], options: CsvOptions) -> int:
    """Return the size of the header, with all bytes before it and its line end."""
    with open_stream() as stream:
        text = stream.read(_HEADER_BYTES).decode(errors="surrogateescape")
    size = 0

    def lines() -> Iterator[str]:
        nonlocal size
        for line in io.StringIO(text, newline=""):
            size += len(line.encode(errors="surrogateescape"))
            yield line

    next((row for row in csv.reader(lines(), **_dialect(options)) if row), None)
    return size


def _dialect(options: CsvOptions) -> dict[str, Any]:
    quoting = {"quotechar": options.quote} if options.quote else {"quoting": csv.QUOTE_NONE}
    return {"delimiter": options.delimiter, **quoting}


def text_lines(open_stream: Callable[[], TextStream]) -> Iterator[int]:
    """Yield the lines that are not blank, from 1."""
    with open_stream() as stream:
        for number, line in enumerate(io.BufferedReader(stream), 1):
            if line.strip():
                yield number
