"""Local record of the URLs from which this user last pulled each ledger, and to which they last pushed it.

The name of a dataset elsewhere is an alias of this user, and can change at any time (AL-01): the dataset and its id do
not contain it. ``$XDG_STATE_HOME/kubothek/remotes`` (default: ``~/.local/state``) has one file per store.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

Direction: TypeAlias = Literal["pull", "push"]


def remembered(store: str, dataset: str, direction: Direction) -> str | None:
    """Return the URL; None if there is none."""
    url = _read(store).get(dataset, {}).get(direction)
    return url if isinstance(url, str) else None


def remember(store: str, dataset: str, direction: Direction, url: str) -> None:
    """Store the URL. A failure, such as a missing home directory, does not fail the transfer."""
    with suppress(OSError, RuntimeError):
        found = _read(store)
        if found.get(dataset, {}).get(direction) == url:
            return
        found.setdefault(dataset, {})[direction] = url
        path = _path(store)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        new.write_text(json.dumps(found, indent=1))
        new.replace(path)


def _read(store: str) -> dict[str, dict[str, object]]:
    try:
        found = json.loads(_path(store).read_text())
    except (OSError, RuntimeError, ValueError):
        return {}
    return {name: each for name, each in found.items() if isinstance(each, dict)} if isinstance(found, dict) else {}


def _path(store: str) -> Path:
    """Return the file of a store. Raises RuntimeError without a home directory."""
    state = os.environ.get("XDG_STATE_HOME")
    root = Path(state) if state else Path.home() / ".local" / "state"
    return root / "kubothek" / "remotes" / f"{sha256(store.encode()).hexdigest()[:32]}.json"
