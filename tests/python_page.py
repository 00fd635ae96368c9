"""The reference of the Python API, docs/python.md, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import FunctionType, UnionType
from typing import Any, Final

import kubothek

_ROLE: Final = re.compile(r":\w+:`[~.]*([^`]+)`")
_ARGUMENT: Final = re.compile(r"``(.+?)`` {2,}(.*)")
_ORDER: Final = ("open", "Lake", "Dataset", "Cube")
"""What comes first."""
_INTERNAL: Final = frozenset(
    {"from_json", "to_json", "look", "Cube.create", "Cube.open", "Record.render", "Record.parse"}
) | {
    "Record.content_parent",
    "CubeCommitted.of",
    "CubeAlreadyApplied.of",
}
_WIDTH: Final = 100


def reference() -> str:
    """All that ``dir(kubothek)`` names: functions and classes with their public members."""
    return "\n".join(line for name in dict.fromkeys((*_ORDER, *kubothek.__all__)) for line in _entry(name)).strip()


def _entry(name: str) -> Iterator[str]:
    found = getattr(kubothek, name)
    if isinstance(found, FunctionType):
        yield from _function(f"kubothek.{name}", found, "##")
    elif isinstance(found, type):
        yield from _class(name, found)
    elif isinstance(found, UnionType):
        yield from [f"## {name}", "", " or ".join(f"`{each.__name__}`" for each in found.__args__), ""]


def _class(name: str, found: type) -> Iterator[str]:
    yield from [f"## {name}", "", *_text(found)]
    for member, value in _members(found):
        if not _INTERNAL.isdisjoint((member, f"{name}.{member}")):
            continue
        if isinstance(value, property):
            yield from [f"### {name}.{member}", "", *_text(value)]
        elif isinstance(value, classmethod | FunctionType):
            plain = value.__func__ if isinstance(value, classmethod) else value
            yield from _function(f"{name}.{member}", plain, "###")


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """Those of the class and of its own bases, as they are written, without what only other modules use."""
    for base in reversed(found.__mro__):
        if base.__module__.startswith("kubothek."):
            yield from ((name, value) for name, value in vars(base).items() if not name.startswith("_"))


def _function(name: str, function: Any, level: str) -> Iterator[str]:
    signature = inspect.signature(function)
    given = [_parameter(each) for each in signature.parameters.values() if each.name not in ("self", "cls")]
    keywords = [each.kind is each.KEYWORD_ONLY for each in signature.parameters.values()]
    if True in keywords:
        given.insert(keywords.index(True) - (len(keywords) - len(given)), "*")
    text = f"{name.rpartition('.')[2]}({', '.join(given)})"
    if len(text) > _WIDTH:
        text = f"{name.rpartition('.')[2]}(\n    " + ",\n    ".join(given) + ",\n)"
    yield from [f"{level} {name}", "", "```", f"{text} -> {signature.return_annotation}", "```", "", *_text(function)]


def _parameter(each: inspect.Parameter) -> str:
    stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    text = f"{stars}{each.name}: {each.annotation}"
    if each.default is each.empty:
        return text
    default = each.default
    shown = f"{type(default).__name__}.{default.name}" if isinstance(default, Enum) else repr(default)
    return f"{text} = {'…' if callable(default) else shown}"


def _text(documented: Any) -> Iterator[str]:
    """A docstring as Markdown: its table of arguments becomes a list."""
    for paragraph in (inspect.getdoc(documented) or "").split("\n\n"):
        if paragraph.startswith("    "):
            yield from ["```", inspect.cleandoc(paragraph), "```", ""]
            continue
        for line in paragraph.splitlines():
            plain = _ROLE.sub(r"`\1`", line)
            if found := _ARGUMENT.match(plain):
                yield f"* `{found[1]}`: {found[2]}".replace("``", "`")
            else:
                yield plain.replace("``", "`") if not line.startswith(" ") else f"  {plain.strip()}".replace("``", "`")
        yield ""
