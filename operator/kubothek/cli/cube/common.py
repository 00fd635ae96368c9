"""Common parts of the cube commands: opening a cube, choosing datasets, messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubothek.cli.parameters import Names
from kubothek.words import count

if TYPE_CHECKING:
    from kubothek.cube.handle import Cube
    from kubothek.cube.log import CubeCommitted
    from kubothek.storage import Store
    from kubothek.table.log.multi.spec import CubeSpec

F = TypeVar("F", bound=Callable[..., Any])


def choice_options(command: F) -> F:
    """Add ``--include`` and ``--exclude``, which choose datasets."""
    for option in (
        click.option("--exclude", metavar="GLOBS", help="Leave out these datasets: a,b*."),
        click.option("--include", metavar="GLOBS", help="Only these datasets: a,b*; default: all."),
    ):
        command = option(command)
    return command


def open_cube(store: Store, prefix: str, spec: CubeSpec | None = None, *, unowned_only: bool = True) -> Cube:
    """Return the cube for a user with the store's credentials, who may write only datasets without an owner.

    ``unowned_only``  False for manual maintenance, which changes no row that the owner wrote

    The store is probed before the first write, not for reads.
    """
    from kubothek.cube.handle import Cube
    from kubothek.cube.log import CubeLog
    from kubothek.errors import OwnedByAnother

    @cache
    def require_conditional_writes() -> None:
        if not store.probe().conditional_writes:
            raise OwnedByAnother(f"{store.url} has no conditional writes: only the owner of a cube may write it")

    log = CubeLog(store, prefix, unowned_only=unowned_only, by="cli", before_writing=require_conditional_writes)
    return Cube(store, log, spec)


def chosen(names: Collection[str], include: str | None, exclude: str | None) -> tuple[str, ...]:
    """Return the datasets that the globs choose, in order. Raises UsageError for a glob without a match."""
    for option, globs in (("--include", include), ("--exclude", exclude)):
        for glob in _globs(globs):
            if not any(fnmatchcase(name, glob) for name in names):
                raise click.UsageError(f"{option}: no dataset is called {glob!r}; there are {', '.join(names)}")
    wanted, unwanted = _globs(include) or ("*",), _globs(exclude)
    found = tuple(name for name in names if _means(wanted, name) and not _means(unwanted, name))
    if not found:
        raise click.UsageError("--include and --exclude leave no dataset")
    return found


def _globs(text: str | None) -> tuple[str, ...]:
    return Names().convert(text, None, None) if text else ()


def _means(globs: Collection[str], name: str) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def commit_message(prefix: str, done: CubeCommitted) -> str:
    """Return a message about the result of a change."""
    from kubothek.cube.log import CubeAlreadyApplied

    if isinstance(done, CubeAlreadyApplied):
        return f"{prefix}: version {done.version} made this change before"
    rows = {name: totals.rows for name, totals in done.added.items() if totals.rows}
    return f"{prefix}: version {done.version}" + (f": {added(rows)}" if rows else "")


def added(rows: Mapping[str, int]) -> str:
    """Return ``3 rows added to seed, 1 row to weather``."""
    first, *others = [
        f"{count(number, 'row')}{' added' if not at else ''} to {name}"
        for at, (name, number) in enumerate(rows.items())
    ]
    return ", ".join([first, *others])
