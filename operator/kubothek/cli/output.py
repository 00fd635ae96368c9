"""The output formats: tables for users, paged if they are long; JSON, YAML and CSV for programs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml", "csv")


def output_option(*more: str, json_flag: bool = False) -> Callable[[F], F]:
    """Add ``-o``, passed as ``output: str``; ``more`` are further formats. ``json_flag`` adds ``--json``."""

    def decorate(command: F) -> F:
        if json_flag:
            command = click.option("--json", "output", flag_value="json", hidden=True)(command)
        option = click.option(
            "-o",
            "--output",
            "output",
            type=click.Choice([*FORMATS, *more]),
            default="table",
            show_default=True,
            help="wide: a table with all columns, none cut.",
        )
        return option(command)

    return decorate


def show(output: str, found: Mapping[str, Any] | Sequence[Mapping[str, Any]], lines: Iterable[str]) -> None:
    """Print an object, or a list of objects, in this format. ``lines`` are the lines of the table."""
    if output == "json":
        import orjson

        click.echo(orjson.dumps(found, default=plain, option=orjson.OPT_INDENT_2))
    elif output == "yaml":
        click.echo(yaml_text(found), nl=False)
    elif output == "csv":
        _write_csv([found] if isinstance(found, Mapping) else found)
    else:
        print_lines(lines, chop=output == "wide")


def yaml_text(found: object) -> str:
    """Return the object as YAML, with fields in their order."""
    import orjson
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    content = orjson.loads(orjson.dumps(found, default=plain))
    text: str = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text


def plain(value: object) -> object:
    """Convert a value that JSON lacks: sets and tuples to lists, bytes to hexadecimal digits, others to text."""
    if isinstance(value, bytes):
        return value.hex()
    return list(value) if isinstance(value, set | frozenset | tuple) else str(value)


def _write_csv(found: Sequence[Mapping[str, Any]]) -> None:
    """Write one line per object. Lists and objects in it are written as JSON."""
    import csv

    import orjson

    def cell(value: object) -> object:
        nested = isinstance(value, Mapping | list | tuple | set | frozenset)
        return orjson.dumps(value, default=plain).decode() if nested else value

    writer = csv.DictWriter(sys.stdout, list(found[0]) if found else [], lineterminator="\n")
    if found:
        writer.writeheader()
    writer.writerows({name: cell(value) for name, value in each.items()} for each in found)
    sys.stdout.flush()


def print_lines(lines: Iterable[str], *, chop: bool = False) -> None:
    """Print lines; on a terminal through ``$PAGER`` if they do not fit.

    ``chop``: long lines are cut at the edge of the screen, and less scrolls sideways.
    """
    pager = shlex.split(os.environ.get("PAGER", "less")) if sys.stdout.isatty() else []
    if pager and shutil.which(pager[0]):
        lines = list(lines)
        if len(lines) >= shutil.get_terminal_size().lines:
            _page(pager, lines, {"LESS": "FRSX" if chop else "FRX"})
            return
    for line in lines:
        click.echo(line)


def _page(pager: Sequence[str], lines: Iterable[str], defaults: Mapping[str, str]) -> None:
    """Write lines to a pager and wait for its end. Once it has started, only the pager handles Ctrl-C."""
    import signal
    import subprocess

    sys.stdout.flush()
    environment = {**defaults, **os.environ}
    process = subprocess.Popen(pager, stdin=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - the user's own
    assert process.stdin is not None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):  # the user has quit the pager
            process.stdin.writelines(f"{line}\n" for line in lines)
        with suppress(BrokenPipeError):
            process.stdin.close()
    finally:
        process.wait()
        signal.signal(signal.SIGINT, before)
