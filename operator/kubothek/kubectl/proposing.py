"""Dry run of manifests against an API server, with the consequences of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubothek.api.kinds import KINDS, InvalidResource, manifest_of, parse
from kubothek.api.meta import Resource
from kubothek.cluster.api import Api, ApiError
from kubothek.controller.validation.resource_set import Gathered
from kubothek.controller.validation.rules import new_findings
from kubothek.kubectl.consequences import Consequence, of_change, of_deletion
from kubothek.local.changes import Change, changes
from kubothek.local.manifests import Key, Manifests


@dataclass(frozen=True, slots=True)
class Proposal:
    """Planned action for one resource: ``create``, ``change``, ``keep``, ``delete`` or ``refuse``."""

    action: str
    key: Key
    where: str
    """The manifest, as ``file:line``; empty if there is none."""
    changes: Sequence[Change] = ()
    consequences: Sequence[Consequence] = ()
    problems: Sequence[str] = ()
    """Why it is refused; otherwise remarks."""


@dataclass(slots=True)
class _There:
    """Resources in the cluster by key: raw objects and parsed ones."""

    objects: dict[Key, dict[str, Any]] = field(default_factory=dict)
    resources: dict[Key, Resource] = field(default_factory=dict)


async def proposals(api: Api, manifests: Manifests, namespace: str, prune: str) -> list[Proposal]:
    """Return what applying the manifests would do, in an order in which they can be applied; deletions last.

    ``namespace`` is the default for manifests. ``prune`` selects by label what is deleted when no manifest has it.
    Raises ApiError, ApiUnavailable.
    """
    wanted = {_placed(key, manifests, namespace): resource for key, resource in manifests.resources.items()}
    origin = {_placed(key, manifests, namespace): key for key in manifests.resources}
    spaces = sorted({key.namespace for key in wanted} or {namespace})
    there = await _existing(api, spaces)
    tried: dict[Key, Resource | ApiError] = {}
    for key, resource in wanted.items():
        tried[key] = await _try(api, key, resource, there)
    after = Gathered({**there.resources, **{k: r for k, r in tried.items() if isinstance(r, Resource)}}.values())
    found = [_proposal(key, tried[key], there, after, manifests.where(origin[key])) for key in wanted]
    removed = [key async for key in _pruned(api, spaces, prune) if key not in wanted] if prune else []
    left = Gathered(resource for key, resource in there.resources.items() if key not in removed)
    return [*found, *_deletions(removed, there, left)]


def _placed(key: Key, manifests: Manifests, namespace: str) -> Key:
    """Return the key with the namespace that kubectl would use."""
    document = manifests.documents[key].content
    metadata = document.get("metadata") if isinstance(document, dict) else None
    named = isinstance(metadata, dict) and "namespace" in metadata
    return key if named else key._replace(namespace=namespace)


async def _existing(api: Api, spaces: Sequence[str]) -> _There:
    there = _There()
    for space in spaces:
        for kind in KINDS:
            async for page, _ in api.pages(kind, space):
                for obj in page:
                    key = Key(kind, space, obj["metadata"]["name"])
                    there.objects[key] = {"apiVersion": "kubothek.io/v1alpha1", "kind": kind, **obj}
                    resource = _parsed(there.objects[key])
                    if resource is not None:
                        there.resources[key] = resource
    return there


async def _try(api: Api, key: Key, resource: Resource, there: _There) -> Resource | ApiError:
    manifest = manifest_of(resource)
    manifest["metadata"] = {
        name: value for name, value in manifest["metadata"].items() if name in ("name", "labels", "annotations")
    } | {"namespace": key.namespace}
    manifest.pop("status", None)
    try:
        answer = await api.try_out(manifest, there.objects.get(key))
    except ApiError as error:
        return error
    found = _parsed(answer)
    if found is None:
        return ApiError(422, "Invalid", f"{key} is of another release than this command", "plan")
    return found


def _proposal(key: Key, tried: Resource | ApiError, there: _There, after: Gathered, where: str) -> Proposal:
    if isinstance(tried, ApiError):
        return Proposal("refuse", key, where, problems=[tried.message.strip()])
    old = there.resources.get(key)
    found = list(new_findings(tried, old, after))
    denials, remarks = ([str(each) for each in found if each.denies is denies] for denies in (True, False))
    differences = list(changes(old.spec, tried.spec)) if old is not None else []
    action = "refuse" if denials else "create" if old is None else "change" if differences else "keep"
    followed = list(of_change(old, tried, after)) if action in ("create", "change") else []
    return Proposal(action, key, where, differences, followed, denials or remarks)


async def _pruned(api: Api, spaces: Sequence[str], labels: str) -> AsyncIterator[Key]:
    for space in spaces:
        for kind in KINDS:
            async for page, _ in api.pages(kind, space, labels=labels):
                for obj in page:
                    yield Key(kind, space, obj["metadata"]["name"])


def _deletions(removed: Sequence[Key], there: _There, left: Gathered) -> Iterator[Proposal]:
    for key in removed:
        resource = there.resources.get(key)
        followed = list(of_deletion(resource, left)) if resource is not None else []
        yield Proposal("delete", key, "", consequences=followed)


def _parsed(obj: Mapping[str, Any]) -> Resource | None:
    try:
        return parse(obj)
    except InvalidResource:
        return None
