"""Changes that an edit of a manifest makes, field by field, and when each takes effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_EFFECTS = ("Takes effect", "May be edited", "A job on edit", "A checked contract")
"""First words of the part of a field's description that says when an edit takes effect."""


@dataclass(frozen=True, slots=True)
class Change:
    """Changed field; ``effect`` is when the change takes effect, from the field's description, or empty."""

    path: str
    before: object
    after: object
    effect: str


def changes(old: BaseModel, new: BaseModel, path: str = "spec") -> Iterator[Change]:
    """Yield the fields in which two versions of a spec differ."""
    for name, info in type(new).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        field = f"{path}.{info.alias or name}"
        if before == after:
            continue
        if isinstance(before, BaseModel) and type(before) is type(after):
            yield from changes(before, after, field)
        else:
            yield Change(field, _plain(before), _plain(after), _effect(info))


def _effect(info: FieldInfo) -> str:
    sentence = (info.description or "").partition(". ")[0].partition(": ")[0].rstrip(".")
    return sentence[0].lower() + sentence[1:] if sentence.startswith(_EFFECTS) else ""


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
