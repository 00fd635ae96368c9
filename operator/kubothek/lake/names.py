"""Lists of names, as people write them."""

from __future__ import annotations

from collections.abc import Iterable

from kubothek.lake.errors import InputError


def names_in(what: str, given: Iterable[str] | str) -> tuple[str, ...]:
    """The names of a list of columns or datasets; a text is one name, not a sequence of letters.

    Raises InputError, saying ``what`` it is, for anything that is no name.
    """
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise InputError(f"{what}: {given!r} is not a list of names")
    names = tuple(given)
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"{what}: {strange[0]!r} of type {type(strange[0]).__name__} is not a name")
    return names
