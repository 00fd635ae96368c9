"""Parsing of manifests to resources, and the problems of invalid ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kubothek.api.commit import Commit
from kubothek.api.compaction import Compaction
from kubothek.api.cube import Cube
from kubothek.api.dataset import Dataset
from kubothek.api.engine import Engine
from kubothek.api.gcpolicy import GCPolicy
from kubothek.api.meta import API_VERSION, OBJECT_NAME_PATTERN, Resource
from kubothek.api.objectstore import ObjectStore
from kubothek.api.query import Query
from kubothek.api.repository import Repository
from kubothek.api.rules import Path, Problem, broken_rules, broken_transitions, render_path
from kubothek.api.skippingindex import SkippingIndex
from kubothek.api.sync import Sync
from kubothek.api.values import DURATION_PATTERN, NAME_PATTERN
from kubothek.api.verification import Verification
from kubothek.words import count

KINDS: dict[str, type[Resource]] = {
    "ObjectStore": ObjectStore,
    "Engine": Engine,
    "Cube": Cube,
    "Dataset": Dataset,
    "Commit": Commit,
    "Query": Query,
    "Compaction": Compaction,
    "Verification": Verification,
    "GCPolicy": GCPolicy,
    "SkippingIndex": SkippingIndex,
    "Repository": Repository,
    "Sync": Sync,
}
"""All kinds by name, in an order in which they can be applied."""


class InvalidResource(ValueError):
    """A manifest that is not a valid resource; ``problems`` has all errors with their paths."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def parse(manifest: Mapping[str, Any], *, local: bool = False) -> Resource:
    """Return the resource of a manifest. Raises InvalidResource with everything that the API server would refuse.

    ``local`` is for manifests that run on one machine, where ``file:`` urls need no volume.
    """
    kind = manifest.get("kind")
    if manifest.get("apiVersion") != API_VERSION:
        raise InvalidResource(
            (Problem("apiVersion", f"must be {API_VERSION}, not {_shown(manifest.get('apiVersion'))}"),)
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidResource(
            (Problem("kind", f"unknown kind {_shown(kind)} of {API_VERSION}{_suggestion(str(kind), KINDS)}"),)
        )
    model = KINDS[kind]
    try:
        # Through JSON, as strict validation accepts arrays for tuples only there.
        resource = model.model_validate_json(json.dumps(manifest, default=_plain), by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResource(tuple(_problems(model, error.errors(include_url=False)))) from None
    problems = tuple(broken_rules(resource, local=local))
    if problems:
        raise InvalidResource(problems)
    return resource


def check_edit(old: Resource, new: Resource) -> tuple[Problem, ...]:
    """Return what the API server would refuse about replacing ``old`` by ``new``, both valid on their own."""
    return tuple(broken_transitions(old, new))


def manifest_of(resource: Resource) -> dict[str, Any]:
    """Return the manifest of a resource, without fields that were not set."""
    return resource.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def _plain(value: object) -> str:
    """Return dates as text, as YAML parses unquoted ones; outside of metadata the model then refuses the text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise InvalidResource((Problem("", f"{value!r} is no JSON value"),))


_LONGEST_SHOWN: Final = 60
"""Maximum characters of a wrong value in a message."""
_TYPES: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""Types as YAML names them, by the type of the error."""
_FORMS: Final = {
    NAME_PATTERN: "use lower-case letters, digits and -",
    OBJECT_NAME_PATTERN: "use lower-case letters, digits, - and .",
    DURATION_PATTERN: "write a number and ms, s, m or h, such as 90s or 1h30m",
}
"""Descriptions of patterns for messages; other patterns appear as they are."""


def _problems(model: type[BaseModel], errors: Sequence[ErrorDetails]) -> Iterator[Problem]:
    """Yield a problem for each error, except that a list is too short only because its items are invalid."""
    paths = [details["loc"] for details in errors]
    for details in errors:
        path = details["loc"]
        inner = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
        if details["type"] != "too_short" or not inner:
            yield _problem(model, details)


def _problem(model: type[BaseModel], details: ErrorDetails) -> Problem:
    path: Path = tuple(step for step in details["loc"] if not _is_internal(step))
    kind, context, given = details["type"], details.get("ctx", {}), _shown(details["input"])
    if kind in _TYPES:
        return Problem(render_path(path), f"must be {_TYPES[kind]}, not {given}")
    match kind:
        case "missing":
            message = "is required"
        case "extra_forbidden":
            message = f"is not a known field{_suggestion(str(path[-1]), _fields(model, path[:-1]))}"
        case "literal_error":
            message = f"must be {context['expected']}, not {given}"
        case "string_pattern_mismatch":
            pattern = context["pattern"]
            message = f"{given} is not valid: {_FORMS.get(pattern, f'it must match {pattern}')}"
        case "value_error":
            message = str(context["error"])
        case "too_short" | "string_too_short":
            message = f"must have at least {count(context['min_length'], _item(kind))}"
        case "too_long" | "string_too_long":
            message = f"must have at most {count(context['max_length'], _item(kind))}"
        case "greater_than_equal" | "less_than_equal":
            least = kind == "greater_than_equal"
            message = f"must be at {'least' if least else 'most'} {context['ge' if least else 'le']}, not {given}"
        case _:
            wrong = details["msg"].removeprefix("Input ").removeprefix("Value ")
            message = f"{wrong.replace('should be', 'must be', 1)}, not {given}"
    return Problem(render_path(path), message)


def _item(kind: str) -> str:
    return "character" if kind.startswith("string") else "item"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _is_internal(step: str | int) -> bool:
    """Return whether a step of a path is a member of a union, which pydantic includes, and no field."""
    return step in ("int", "str", "nullable")


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    """Return the names of the fields of the model at ``path`` below ``model``."""
    for step in path:
        if isinstance(step, int):
            continue
        found = next((info for name, info in model.model_fields.items() if (info.alias or name) == step), None)
        inner = next(iter(_models(found.annotation)), None) if found else None
        if inner is None:
            return []
        model = inner
    return [info.alias or name for name, info in model.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _suggestion(wrong: str, known: Mapping[str, object] | list[str]) -> str:
    close = get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known are {', '.join(known)}" if known else ""
