"""Validation rules that both the API server (CEL) and this process (Python) apply.

Each rule is written in both languages, next to its model. ``tests/api`` runs one table of manifests through the real
API server and through :func:`broken_rules`, so that the two cannot diverge. Types, patterns, limits and enums need no
rules: the schema is generated from the pydantic model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a manifest: its path (``spec.source.paths[0]``), and what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on one object: ``cel`` for the API server, ``holds`` for Python, and the ``message`` for users.

    ``cluster_only`` rules do not apply to the local runtime, where data has ``file:`` urls.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    cluster_only: bool = False

    def render(self) -> dict[str, object]:
        """Return the entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": self.message}


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """A condition on an edit: ``holds(old, new)``."""

    cel: str
    message: str
    holds: Callable[[Any, Any], bool]

    def render(self) -> dict[str, object]:
        """Return the entry of ``x-kubernetes-validations``."""
        return {"rule": self.cel, "message": self.message, "reason": "FieldValueForbidden"}


@dataclass(frozen=True, slots=True)
class Immutable:
    """Mark of a field (in ``Annotated``) whose value, or absence, cannot change after creation."""

    message: str


@dataclass(frozen=True, slots=True)
class UniqueBy:
    """Mark of a list (in ``Annotated``) whose items differ in the field ``key``: ``x-kubernetes-list-type: map``."""

    key: str


def field_rules(model: type[BaseModel]) -> Iterator[tuple[str, TransitionRule]]:
    """Yield the immutable fields of a model by alias, as rules on the model.

    A rule on the field itself would not suffice: the API server skips it when an optional field is removed.
    """
    for name, info in model.model_fields.items():
        alias = info.alias or name
        for mark in info.metadata:
            if isinstance(mark, Immutable):
                yield alias, TransitionRule(_unchanged_cel(alias, info), mark.message, _unchanged(name))


def _unchanged_cel(alias: str, info: FieldInfo) -> str:
    same = f"self.{alias} == oldSelf.{alias}"
    # The API server fills in a default that is not empty.
    if info.is_required() or info.default not in (None, (), [], {}):
        return same
    if info.default is None:
        return f"has(self.{alias}) == has(oldSelf.{alias}) && (!has(self.{alias}) || {same})"
    # empty is the same as absent
    now, before = (f"(has({side}.{alias}) ? {side}.{alias} : [])" for side in ("self", "oldSelf"))
    return f"{now} == {before}"


def _unchanged(name: str) -> Callable[[Any, Any], bool]:
    return lambda old, new: getattr(old, name) == getattr(new, name)


def broken_rules(model: BaseModel, *, local: bool, at: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each rule that ``model``, or a part of it, breaks. ``local`` skips cluster-only rules."""
    rule: Rule
    for rule in getattr(type(model), "rules", ()):
        if not (local and rule.cluster_only) and not rule.holds(model):
            yield Problem(render_path(at), rule.message)
    yield from _duplicates(model, at)
    for step, child in _children(model):
        yield from broken_rules(child, local=local, at=(*at, *step))


def broken_transitions(old: BaseModel, new: BaseModel, *, at: Path = ()) -> Iterator[Problem]:
    """Yield a problem for each immutable field that differs between two objects, and each other forbidden edit."""
    rule: TransitionRule
    for rule in getattr(type(new), "transitions", ()):
        if not rule.holds(old, new):
            yield Problem(render_path(at), rule.message)
    for alias, rule in field_rules(type(new)):
        if not rule.holds(old, new):
            yield Problem(render_path((*at, alias)), rule.message)
    before = {name: child for name, _, child in _corresponding(old)}
    for name, step, child in _corresponding(new):
        if name in before:
            yield from broken_transitions(before[name], child, at=(*at, *step))


def _corresponding(model: BaseModel) -> Iterator[tuple[Path, Path, BaseModel]]:
    """Yield the parts of a model that can be compared with those of another: identity, path, and part.

    As in the API server, items of a list correspond if they have the same key; without a key none do.
    """
    keys = {alias: key for _, alias, key in _unique(type(model))}
    for step, child in _children(model):
        if len(step) == 1:
            yield step, step, child
        elif (key := keys.get(str(step[0]))) is not None:
            yield (step[0], getattr(child, key)), step, child


def _duplicates(model: BaseModel, at: Path) -> Iterator[Problem]:
    for name, alias, unique in _unique(type(model)):
        seen: set[object] = set()
        for index, item in enumerate(getattr(model, name) or ()):
            key = getattr(item, unique)
            if key in seen:
                yield Problem(render_path((*at, alias, index)), f"Duplicate value: {unique} {key!r}")
            seen.add(key)


@cache
def _unique(model: type[BaseModel]) -> tuple[tuple[str, str, str], ...]:
    """Return the fields with :class:`UniqueBy`: name, alias, and key."""
    fields = ((name, alias, model.model_fields[name].metadata) for name, alias in _fields(model))
    return tuple(
        (name, alias, mark.key) for name, alias, marks in fields for mark in marks if isinstance(mark, UniqueBy)
    )


@cache
def _fields(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    """Return names and aliases of the fields. Cached, as pydantic's lookup dominates the cost of small resources."""
    return tuple((name, info.alias or name) for name, info in model.model_fields.items())


def _children(model: BaseModel) -> Iterator[tuple[Path, BaseModel]]:
    for name, alias in _fields(type(model)):
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield (alias,), value
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield (alias, index), item


def parts(model: BaseModel, at: Path) -> Iterator[tuple[Path, BaseModel]]:
    """Yield the path of each part of a model, at any depth, and the part; ``at`` is the path of the model."""
    for step, child in _children(model):
        yield (*at, *step), child
        yield from parts(child, (*at, *step))


def render_path(path: Path) -> str:
    """Render ``("spec", "where", 0)`` as ``spec.where[0]``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
