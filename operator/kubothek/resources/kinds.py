"""From manifests to resources, and what is wrong with those that are none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kubothek.resources.commit import Commit
from kubothek.resources.compaction import Compaction
from kubothek.resources.cube import Cube
from kubothek.resources.dataset import Dataset
from kubothek.resources.engine import Engine
from kubothek.resources.gcpolicy import GCPolicy
from kubothek.resources.meta import API_VERSION, Resource
from kubothek.resources.objectstore import ObjectStore
from kubothek.resources.query import Query
from kubothek.resources.repository import Repository
from kubothek.resources.rules import Path, Problem, broken_rules, broken_transitions, render_path
from kubothek.resources.skippingindex import SkippingIndex
from kubothek.resources.sync import Sync
from kubothek.resources.verification import Verification

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
    """A manifest that is no valid resource; ``problems`` says where and why, all at once."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def parse(manifest: Mapping[str, Any], *, local: bool = False) -> Resource:
    """The resource of a manifest, or :class:`InvalidResource` with everything that the API server would refuse.

    ``local`` is for manifests that are run on one machine, where ``file:`` urls need no volume.
    """
    kind = manifest.get("kind")
    if manifest.get("apiVersion") != API_VERSION:
        raise InvalidResource((Problem("apiVersion", f"must be {API_VERSION}, not {manifest.get('apiVersion')!r}"),))
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidResource((Problem("kind", f"no kind {kind!r} in {API_VERSION}{_suggestion(str(kind), KINDS)}"),))
    model = KINDS[kind]
    try:
        # By way of JSON, as strict validation accepts arrays for tuples only there.
        resource = model.model_validate_json(json.dumps(manifest, default=_plain), by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResource(tuple(_problem(model, details) for details in error.errors(include_url=False))) from None
    problems = tuple(broken_rules(resource, local=local))
    if problems:
        raise InvalidResource(problems)
    return resource


def check_edit(old: Resource, new: Resource) -> tuple[Problem, ...]:
    """What the API server would refuse about replacing ``old`` by ``new``, both valid by themselves."""
    return tuple(broken_transitions(old, new))


def manifest_of(resource: Resource) -> dict[str, Any]:
    """The manifest of a resource, without what was not set."""
    return resource.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


def _plain(value: object) -> str:
    """YAML reads unquoted dates as such; elsewhere than in metadata the model will then refuse the text."""
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise InvalidResource((Problem("", f"{value!r} is no JSON value"),))


def _problem(model: type[BaseModel], details: ErrorDetails) -> Problem:
    path: Path = tuple(step for step in details["loc"] if not _is_internal(step))
    given = details["input"]
    match details["type"]:
        case "missing":
            message = "is required"
        case "extra_forbidden":
            message = f"is not a known field{_suggestion(str(path[-1]), _fields(model, path[:-1]))}"
        case "literal_error":
            message = f"must be {details['ctx']['expected']}, not {given!r}"
        case "string_pattern_mismatch":
            message = f"{given!r} does not have the form {details['ctx']['pattern']}"
        case "value_error":
            message = str(details["ctx"]["error"])
        case _:
            message = f"{details['msg'].removeprefix('Input ').removeprefix('Value ')}, not {given!r}"
    return Problem(render_path(path), message)


def _is_internal(step: str | int) -> bool:
    """Pydantic names the members of a union in its paths; they are no fields."""
    return step in ("int", "str", "nullable")


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    """The names of the fields of the model at ``path`` below ``model``."""
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
