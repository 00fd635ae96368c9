"""Directory of manifests as resources, or every problem in them, each with its file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Final, NamedTuple

from pydantic import ValidationError

from kubothek.api.bounds import BOUNDING, Bound, bounds_of
from kubothek.api.dataset import Dataset
from kubothek.api.kinds import KINDS, InvalidResource, parse
from kubothek.api.meta import API_VERSION, GROUP, Resource
from kubothek.api.values import NAME_PATTERN
from kubothek.controller.validation.cycles import of_inputs
from kubothek.controller.validation.resource_set import Gathered
from kubothek.local.credentials import Secret
from kubothek.local.documents import Document, ManifestError, Problem, manifest_files, read_documents

_LONGEST_SHOWN: Final = 320
"""Characters of a kind and a name that a message repeats: those that are valid fit."""


class Key(NamedTuple):
    """Unique key of a resource."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        namespace = "" if self.namespace == "default" else f" in namespace {self.namespace}"
        return f"{self.kind.lower()}/{self.name}{namespace}"


def key_of(resource: Resource) -> Key:
    """Return the key of the resource."""
    return Key(resource.kind, resource.namespace, resource.name)


@dataclass(frozen=True, slots=True)
class Manifests:
    """Everything that ``-f`` names: resources, in an order in which they can be applied, and Secrets."""

    resources: Mapping[Key, Resource]
    documents: Mapping[Key, Document]
    secrets: Mapping[tuple[str, str], Mapping[str, bytes]] = field(default_factory=dict)
    """Contents of core Secrets by namespace and name; ``credentialsSecretRef`` refers to them."""
    bounds: Mapping[str, Sequence[Bound]] = field(default_factory=dict)
    """Bounds from the ResourceQuotas and LimitRanges among the manifests, by namespace."""
    foreign: Sequence[str] = ()
    """Skipped manifests of other API groups: kind and position."""

    def where(self, key: Key, path: str = "") -> str:
        """Return ``file:line`` of a field, given as ``spec.source.paths[0]``; a phrase if no manifest has it."""
        document = self.documents.get(key)
        return "not in these manifests" if document is None else document.where(_steps(path))


def load(paths: Sequence[Path]) -> Manifests:
    """Read and validate every manifest below ``paths``. Raises ManifestError with all problems at once."""
    manifests, problems = read(paths)
    problems += _circles(manifests)
    if problems:
        raise ManifestError(problems)
    return manifests


def read(paths: Sequence[Path], *, others: bool = False) -> tuple[Manifests, list[Problem]]:
    """Return the manifests below ``paths`` that are valid by themselves, and the problems of the others.

    Manifests of other API groups are skipped; with ``others``, also documents that are no manifests, such as the values
    of a chart. Raises ManifestError for paths without manifests.
    """
    resources: dict[Key, Resource] = {}
    documents: dict[Key, Document] = {}
    secrets: dict[tuple[str, str], Mapping[str, bytes]] = {}
    bounds: dict[str, list[Bound]] = {}
    foreign: list[str] = []
    problems: list[Problem] = []
    for file in manifest_files(paths):
        found, unreadable = read_documents(file)
        for document in found:
            if _is_foreign(document.content, others=others):
                foreign.append(f"{_label(document.content)} ({document.where()})")
                for namespace, found_bounds in _bounds(document.content):
                    bounds.setdefault(namespace, []).extend(found_bounds)
                continue
            if document.faults:
                problems += document.faults
                continue
            if _is_secret(document.content):
                secret, wrong = _parse_secret(document)
                problems += wrong
                if secret is not None:
                    secrets[secret.metadata.namespace, secret.metadata.name] = secret.contents
                continue
            resource, wrong = _parse(document)
            problems += wrong
            if resource is None:
                continue
            key = key_of(resource)
            if key in documents:
                twice = f"{key} occurs twice; the other one is at {documents[key].where()}"
                problems.append(Problem(document.where(("metadata", "name")), twice))
            documents[key] = document
            resources[key] = resource
        problems += unreadable
    if paths and not documents and not secrets and not problems:
        problems = [Problem(" ".join(map(str, paths)), "no Kubothek manifests found")]
    order = {kind: number for number, kind in enumerate(KINDS)}
    ordered = sorted(resources, key=lambda key: (order[key.kind], key.namespace, key.name))
    return Manifests({key: resources[key] for key in ordered}, documents, secrets, bounds, foreign), problems


def _circles(manifests: Manifests) -> Iterator[Problem]:
    """Yield a problem for each derivative of itself: these have no valid order."""
    there = Gathered(manifests.resources.values())
    for key, resource in manifests.resources.items():
        for found in of_inputs(resource, there) if isinstance(resource, Dataset) else ():
            yield Problem(manifests.where(key, found.path), f"{key.kind} {key.name}: {found}", found.path)


def _parse(document: Document) -> tuple[Resource | None, list[Problem]]:
    content = document.content
    if not isinstance(content, dict):
        return None, [Problem(document.where(), "not a manifest: it has no fields apiVersion, kind, metadata")]
    name, kind = _name(content), content.get("kind")
    label = _one_line(f"{kind} {name}") if isinstance(kind, str) and name else "manifest"
    if content.get("apiVersion") != API_VERSION and isinstance(kind, str) and kind not in KINDS:
        known = f"{', '.join(KINDS)} of {API_VERSION}, and Secret for credentials"
        shown = _one_line(f"{content.get('apiVersion')} {kind}")
        refusal = f"{label}: unknown kind {shown}; known kinds: {known}"
        return None, [Problem(document.where(("kind",)), refusal)]
    try:
        resource = parse(content, local=True)
    except InvalidResource as error:
        return None, [
            Problem(document.where(_steps(problem.path)), f"{label}: {problem}", problem.path)
            for problem in error.problems
        ]
    if not re.fullmatch(NAME_PATTERN, resource.namespace):
        where = document.where(("metadata", "namespace"))
        return None, [Problem(where, f"{label}: metadata.namespace: {resource.namespace!r} is not a valid namespace")]
    return resource, []


def _one_line(text: str) -> str:
    return shorten(text, _LONGEST_SHOWN, placeholder="…")


def _is_foreign(content: object, *, others: bool) -> bool:
    """Return whether the document belongs to another API group or, with ``others``, is not a manifest at all."""
    if not isinstance(content, dict) or _is_secret(content):
        return False
    version, kind = content.get("apiVersion"), content.get("kind")
    if not isinstance(kind, str) or kind in KINDS:
        return others and kind is None
    return not str(version).startswith(f"{GROUP}/") and (others or isinstance(version, str))


def _label(content: object) -> str:
    kind = content.get("kind") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else "not a manifest"


def _bounds(content: object) -> Iterator[tuple[str, Sequence[Bound]]]:
    if isinstance(content, dict) and content.get("apiVersion") == "v1" and content.get("kind") in BOUNDING:
        metadata = content.get("metadata")
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        with suppress(AttributeError, TypeError):  # malformed: the API server will reject it
            yield str(namespace or "default"), bounds_of(content["kind"], content)


def _is_secret(content: object) -> bool:
    return isinstance(content, dict) and (content.get("apiVersion"), content.get("kind")) == ("v1", "Secret")


def _parse_secret(document: Document) -> tuple[Secret | None, list[Problem]]:
    try:
        return Secret.model_validate(document.content), []
    except ValidationError as error:
        return None, [
            Problem(document.where(wrong["loc"]), f"Secret: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}")
            for wrong in error.errors()
        ]


def _name(content: Mapping[str, object]) -> str | None:
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else None


def _steps(path: str) -> list[str | int]:
    """Split a path such as ``spec.source.paths[0]`` into steps."""
    return [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]
