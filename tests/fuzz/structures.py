"""Mutations of JSON documents by their structure: each part of one replaced by what does not belong there."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

Path = tuple[str | int, ...]

_DEEP: Any = 0
for _ in range(100):
    _DEEP = [_DEEP]
VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "x",
    -1,
    0.5,
    (1 << 63),
    (1 << 64) - 1,
    [],
    {},
    ["x", None, -1],
    {"x": {"y": None}},
    _DEEP,
    "../outside/x.parquet",
    "/etc/passwd",
    "flights/../../outside/x.parquet",
    "flights/table/%2e%2e/x.parquet",
    "other/table/x.parquet",
    ".kubothek/other/x.json",
    f"flights/table/month={1 << 63}/x.parquet",
    "flights/table/nowhere=1/x.parquet",
    "\ud800",
)
_ITEMS = 2
"""Items of a list, and of a map with many alike, that are mutated one by one."""


def paths(document: Any, at: Path = ()) -> Iterator[Path]:
    """The paths of all parts of a document, but for those of alike items."""
    if at:
        yield at
    items: list[tuple[str | int, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document[:_ITEMS]))
    for name, value in items:
        yield from paths(value, (*at, name))


def changed(document: Any, path: Path, value: Any) -> Any:
    """A copy with another value at a path."""
    found = copy.deepcopy(document)
    place = found
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return found


def without(document: Any, path: Path) -> Any:
    """A copy without what is at a path."""
    found = copy.deepcopy(document)
    place = found
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    return found


def mutations(document: Any) -> Iterator[tuple[str, Any]]:
    """Each part missing and replaced by each value, with the name of the mutation."""
    for path in paths(document):
        name = "/".join(map(str, path))
        yield f"{name} missing", without(document, path)
        for value in VALUES:
            yield f"{name} = {value!r:.40}", changed(document, path, value)


def mutated(random: Random, data: bytes) -> bytes:
    """A JSON document with up to three such mutations; for :func:`tests.fuzz.harness.fuzz`."""
    document = json.loads(data)
    for _ in range(random.choice((1, 1, 2, 3))):
        if not (found := list(paths(document))):
            break
        path = random.choice(found)
        document = without(document, path) if random.random() < 0.1 else changed(document, path, random.choice(VALUES))
    return json.dumps(document).encode()
