"""Names, as people write them: lists of them, and time zones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from zoneinfo import ZoneInfo

from kubothek.errors import InputError

_OFFSET: Final = re.compile(r"[+-]\d\d:\d\d")


def names_in(what: str, given: Iterable[str] | str) -> tuple[str, ...]:
    """Return the names of a list of columns or datasets; a string is one name, not a sequence of letters.

    Raises InputError for anything else; ``what`` names the list in the message.
    """
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise InputError(f"{what}: {given!r} is not a list of names")
    names = tuple(given)
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"{what}: {strange[0]!r} of type {type(strange[0]).__name__} is not a name")
    return names


def is_zone(name: str) -> bool:
    """Whether this names a time zone: of the IANA database, or an offset."""
    if _OFFSET.fullmatch(name):
        return True
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
