"""Secrets that a manifest names: its author must be allowed to read each of them.

Jobs read these Secrets with the kubelet's rights and send what they hold to hosts that the manifest names. Without this
check, any author of a manifest could read every Secret of the namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubothek.cluster.api import Api, Object
from kubothek.controller.finding import Finding


def named_secrets(value: object, path: str = "spec") -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each Secret that a spec refers to, in pod templates too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            where = f"{path}.{key}"
            refers = key in ("secret", "secretRef", "secretKeyRef") or key.endswith("SecretRef")
            if key == "secretName" and isinstance(inner, str):
                yield where, inner
            elif refers and isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                yield f"{where}.name", inner["name"]
            else:
                yield from named_secrets(inner, where)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from named_secrets(inner, f"{path}[{index}]")


async def forbidden_secrets(api: Api, request: Mapping[str, Any]) -> Sequence[Finding]:
    """Return a finding for each Secret that an admission request newly refers to and its author may not get.

    Raises ApiError and ApiUnavailable: then the API server does what the webhook's failurePolicy says.
    """
    if request["operation"] not in ("CREATE", "UPDATE") or request["object"]["metadata"].get("deletionTimestamp"):
        return ()
    known = {name for _, name in named_secrets((request.get("oldObject") or {}).get("spec"))}
    new = {path: name for path, name in named_secrets(request["object"].get("spec")) if name not in known}
    names = sorted(set(new.values()))
    answers = await asyncio.gather(*(_may_get(api, request, name) for name in names))
    allowed = dict(zip(names, answers, strict=True))
    user = request["userInfo"].get("username", "")
    return [
        Finding(
            "SecretForbidden",
            path,
            f"user {user!r} may not get Secret {name!r}, which jobs would read; grant the right, or apply the manifest "
            "as a user who has it",
        )
        for path, name in new.items()
        if not allowed[name]
    ]


async def _may_get(api: Api, request: Mapping[str, Any], name: str) -> bool:
    user = request["userInfo"]
    attributes = {
        "namespace": request["namespace"],
        "verb": "get",
        "version": "v1",
        "resource": "secrets",
        "name": name,
    }
    spec: Object = {
        "user": user.get("username"),
        "uid": user.get("uid"),
        "groups": user.get("groups"),
        "extra": user.get("extra"),
        "resourceAttributes": attributes,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {key: value for key, value in spec.items() if value},
    }
    answer = await api.create("SubjectAccessReview", None, review)
    return bool(answer["status"].get("allowed"))
