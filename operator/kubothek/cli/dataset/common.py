"""Common parts of the commands that change a dataset: handles, options, messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubothek.cli.parameters import id_option
from kubothek.cli.source_rows import FORMATS
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.dataset import CommitResult

F = TypeVar("F", bound=Callable[..., Any])

conflict_option = click.option(
    "--retry",
    "on_conflict",
    flag_value="Retry",
    default="Fail",
    help="If another commit changed these rows meanwhile: do it again on the newest version, instead of an error.",
)


def source_options(command: F) -> F:
    """Add ``FILE…``, ``--format`` and ``--id``: rows to write, and the id of their commit."""
    for parameter in (
        id_option,
        click.option("--format", "form", type=click.Choice(list(FORMATS)), help="Default: what the names say."),
        click.argument("files", nargs=-1, required=True, metavar="FILE..."),
    ):
        command = parameter(command)
    return command


evolve_option = click.option(
    "--evolve", is_flag=True, help="Allow new columns, which are null in older rows, and missing ones."
)


@contextmanager
def schema_hint(hint: str) -> Iterator[None]:
    """Add to a SchemaMismatch which option of the command allows the columns."""
    from kubothek.errors import SchemaMismatch

    try:
        yield
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{error}; on the command line: {hint}") from error


def commit_message(name: str, done: CommitResult, *, adds: bool = False) -> str:
    """Return a message about the result of a change; ``adds``: it only adds rows, and says how many."""
    from kubothek.table.log import AlreadyApplied

    if isinstance(done, AlreadyApplied):
        return f"{name}: version {done.version} made this change before"
    added = f"{count(done.added.rows, 'row')} added, " if adds else ""
    return f"{name}: version {done.version}: {added}{count(done.totals.rows, 'row')} in all"
