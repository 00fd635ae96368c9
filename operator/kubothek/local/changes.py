"""What an edit of a manifest changes, field by field, and when each change takes effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_EFFECTS = ("Takes effect", "May be edited", "A job on edit", "A checked contract")
"""How the description of a field begins that says when an edit of it takes effect."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; ``effect`` is the class of the field, as its description puts it, if it says so."""

    path: str
    before: object
    after: object
    effect: str


def changes(old: BaseModel, new: BaseModel, path: str = "spec") -> Iterator[Change]:
    """The fields in which two versions of a spec differ."""
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
