"""Engines of other parties that somebody started on this machine, as ``KUBOTHEK_ENGINES`` names them."""

from __future__ import annotations

import re
from typing import Final

from kubothek.local.errors import LocalError

_ENGINE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=(?P<address>[^/\s,]+:[0-9]{1,5})(?P<directory>/[^,]*)"
)


def running_engines(text: str) -> dict[str, tuple[str, str]]:
    """``NAME=HOST:PORT/DIRECTORY,…``: where each listens, and the directory that it shares. Raises LocalError."""
    found: dict[str, tuple[str, str]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        if (engine := _ENGINE.fullmatch(part)) is None:
            raise LocalError(
                f"KUBOTHEK_ENGINES: {part!r} is not NAME=HOST:PORT/DIRECTORY, such as flink=127.0.0.1:5544/tmp/engine"
            )
        found[engine["name"].lower()] = (engine["address"], engine["directory"])
    return found
