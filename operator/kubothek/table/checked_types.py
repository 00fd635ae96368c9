"""Check that a dataclass that was read from JSON has the types of its annotations.

A JSON document can come from another program and hold any types. A parser builds its dataclass and passes it through
:func:`checked`: a wrong type then fails where the document is read, not later.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_INT64 = 1 << 63
_UNIONS = (Union, types.UnionType)
_PLAIN: frozenset[Any] = frozenset((str, bool, types.NoneType))


def checked(value: T) -> T:
    """Return the dataclass instance. Raises TypeError, which names the field, unless each field has its type.

    Collections and dataclasses in it are checked as well, by column: a record can name a hundred thousand files. An
    integer must fit a signed 64-bit integer, unless the annotation also allows a float; a bool is not an integer. Other
    annotations, such as ``Any``, allow anything.
    """
    check_all([value])
    return value


def check_all(values: Sequence[object]) -> None:
    """Check instances of one dataclass as :func:`checked` does, for a fraction of the time of checking each."""
    if values:
        _check(type(values[0]).__name__, values, type(values[0]))


def _check(where: str, values: Collection[Any], wanted: Any) -> None:
    if not values or wanted is Any:
        return
    origin, arguments = _parts(wanted)
    if origin in _UNIONS:
        _check_union(where, values, arguments)
    elif origin is not None:
        _require(where, values, (origin,))
        _check_items(where, values, origin, arguments)
    elif isinstance(wanted, type):
        _require(where, values, (wanted,))
        if wanted is int and not -_INT64 <= min(values) <= max(values) < _INT64:
            raise TypeError(f"{where}: an integer of more than 64 bits")
        for name, hint, plain in _fields(wanted):
            column = list(map(attrgetter(name), values))
            if not plain.issuperset(map(type, column)):
                _check(f"{where}.{name}", column, hint)


def _check_union(where: str, values: Collection[Any], options: tuple[Any, ...]) -> None:
    left = values
    for option in options:
        kind = _parts(option)[0] or option
        if isinstance(kind, type):
            mine = [each for each in left if _is(type(each), kind)]
            if option is not int or float not in options:  # with float, an integer may have any size, such as uint64
                _check(where, mine, option)
            left = [each for each in left if not _is(type(each), kind)]
    _require(where, left, ())


def _check_items(where: str, values: Collection[Any], origin: type, arguments: tuple[Any, ...]) -> None:
    if issubclass(origin, Mapping):
        _check(where, [key for each in values for key in each], arguments[0])
        _check(where, [item for each in values for item in each.values()], arguments[1])
    elif origin is tuple and arguments[-1:] != (...,):
        if any(len(each) != len(arguments) for each in values):
            raise TypeError(f"{where}: not {len(arguments)} items")
        for column, hint in zip(zip(*values, strict=True), arguments, strict=True):
            _check(where, column, hint)
    elif issubclass(origin, Collection):
        _check(where, [item for each in values for item in each], arguments[0])


def _require(where: str, values: Collection[Any], kinds: tuple[type, ...]) -> None:
    for kind in set(map(type, values)):
        if kind not in kinds and not any(_is(kind, each) for each in kinds):
            raise TypeError(f"{where}: a value of type {kind.__name__}")


def _is(kind: type, wanted: type) -> bool:
    return kind is wanted if wanted is int else issubclass(kind, wanted)


@cache
def _parts(wanted: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return origin and arguments of an annotation; ``None`` and ``()`` for a class."""
    return get_origin(wanted), get_args(wanted)


@cache
def _fields(kind: type) -> tuple[tuple[str, Any, frozenset[Any]], ...]:
    """Return name and annotation of each field of a dataclass, and the types that need no further check."""
    if not is_dataclass(kind):
        return ()
    return tuple((name, hint, _PLAIN.intersection(_options(hint))) for name, hint in get_type_hints(kind).items())


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in _UNIONS else (hint,)
