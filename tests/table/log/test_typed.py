"""Dataclasses read from JSON: a value of a wrong type is an error that names the field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import pytest

from kubothek.table.checked_types import checked


class _Kind(StrEnum):
    A = "a"


@dataclass(frozen=True)
class _Inner:
    key: str
    size: int = 0


@dataclass(frozen=True)
class _Outer:
    text: str = ""
    number: int = 0
    flag: bool = False
    kind: _Kind = _Kind.A
    maybe: str | None = None
    bound: int | float | str = 0
    names: tuple[str, ...] = ()
    pair: tuple[str, int] = ("", 0)
    some: frozenset[str] = frozenset()
    inner: tuple[_Inner, ...] = ()
    by_name: Mapping[str, _Inner | None] = field(default_factory=dict)
    free: Any = None


GOOD = _Outer(
    maybe="x",
    bound=0.5,
    names=("a",),
    pair=("a", -(1 << 63)),
    some=frozenset("a"),
    inner=(_Inner("k", 1),),
    by_name={"a": _Inner("k"), "b": None},
    free=[1],
)
WRONG: tuple[tuple[str, Any], ...] = (
    ("text", None),
    ("text", 1),
    ("number", "1"),
    ("number", True),
    ("number", 0.5),
    ("number", 1 << 63),
    ("flag", 1),
    ("kind", "a"),
    ("maybe", 1),
    ("bound", None),
    ("bound", True),
    ("names", "ab"),
    ("names", ["a"]),
    ("names", ("a", 1)),
    ("pair", ("a",)),
    ("pair", (1, "a")),
    ("some", frozenset((1,))),
    ("inner", ({"key": "k"},)),
    ("inner", (_Inner("k"), _Inner("k", "1"))),  # type: ignore[arg-type]
    ("by_name", {1: None}),
    ("by_name", {"a": "b"}),
    ("by_name", []),
)


def test_dataclass_with_declared_types_is_returned() -> None:
    assert checked(GOOD) is GOOD
    assert checked(_Outer()) == _Outer()
    assert checked(_Outer(bound=(1 << 64) - 1))


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_dataclass_with_wrong_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"_Outer\.{name}"):
        checked(replace(GOOD, **{name: value}))
