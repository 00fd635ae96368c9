"""Tenants of one cluster: what people and jobs of a namespace may do, as the API server's own authoriser has it.

That a reference never leaves its namespace is for tests/controller/test_tenants.py; that NetworkPolicies name pods of
one namespace only for test_chart.py. There is nothing here that would enforce a NetworkPolicy.
"""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from kubothek.api.kinds import KINDS
from kubothek.api.values import ObjectReference, Reference
from kubothek.cluster.api import RESOURCES
from tests.chart.conftest import Objects, Render
from tests.chart.test_roles import binding
from tests.cluster.apiserver import OPERATOR_USER, ApiServer
from tests.cluster.harness import resource_path
from tests.documented import API, Json, blocks

PLURALS = {kind: RESOURCES[kind][1] for kind in KINDS}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "push", "ingest")
SUBRESOURCES = ("", "status", "scale", "finalizers")
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def spaces(server: ApiServer, make_namespace: Callable[[], str]) -> tuple[str, str]:
    return make_namespace(), make_namespace()


@pytest.fixture(scope="module")
def chart(render: Render, spaces: tuple[str, str]) -> Objects:
    return render("kubothek", namespaces=list(spaces))


@pytest.fixture(scope="module")
def bound(server: ApiServer, chart: Objects, spaces: tuple[str, str]) -> Iterator[None]:
    """The operator serves two namespaces; in the first vera may view, and ada has the roles of an admin."""
    roles = [obj for obj in chart if "-to-" in str(obj["metadata"].get("labels"))]
    given = [binding(spaces[0], role, "ada") for role in roles]
    given += [binding(spaces[0], role, "vera") for role in roles if role["metadata"]["name"].endswith("-view")]
    rights = [obj for obj in chart if obj["apiVersion"].startswith("rbac.")]
    accounts = [obj for obj in chart if obj["kind"] == "ServiceAccount" and obj["metadata"]["namespace"] in spaces]
    release = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubothek"}}
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([release, *accounts, *rights, *given]))
    yield
    cluster = [f"{obj['kind']}/{obj['metadata']['name']}" for obj in rights if "namespace" not in obj["metadata"]]
    server.kubectl("delete", "--ignore-not-found", *cluster)


@pytest.fixture(scope="module")
def manifests(server: ApiServer, spaces: tuple[str, str], bound: None) -> dict[str, Json]:
    """A resource of each kind, in both namespaces, as the documentation shows it."""
    shown = [manifest for given in blocks() if not given.mark for manifest in given.manifests()]
    found = {manifest["kind"]: manifest for manifest in reversed(shown) if manifest["apiVersion"] == API}
    for kind, manifest in found.items():
        for namespace in spaces:
            server.request("POST", resource_path_of(kind, namespace), manifest)
    return found


def resource_path_of(kind: str, namespace: str, name: str = "") -> str:
    path = resource_path(kind, namespace, name)
    return path.replace(f"/{kind.lower()}s", f"/{PLURALS[kind]}")


def code(
    server: ApiServer, user: str, method: str, path: str, body: Any = None, content: str = "application/json"
) -> int:
    """How the server answers."""
    try:
        server.request(method, path, body, content, user)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    return 200


def writes(kind: str, namespace: str, manifest: Json) -> Iterator[tuple[str, str, Any, str]]:
    """Every way to change a resource or to make one: method, path, body, type of the body."""
    every, name = resource_path_of(kind, namespace), manifest["metadata"]["name"]
    one = f"{every}/{name}"
    patch = {"metadata": {"labels": {"a": "b"}}}
    applied = manifest | {"metadata": {"name": name, "labels": {"a": "b"}}}
    yield "POST", every, manifest | {"metadata": {"name": "another"}}, "application/json"
    yield "PUT", one, manifest, "application/json"
    yield "PATCH", one, patch, MERGE
    yield "PATCH", f"{one}?fieldManager=x", applied, APPLY
    yield "PATCH", f"{every}/another?fieldManager=x", applied | {"metadata": {"name": "another"}}, APPLY
    yield "PUT", f"{one}/status", manifest, "application/json"
    yield "PATCH", f"{one}/status", {"status": {"observedGeneration": 7}}, MERGE
    yield "PATCH", f"{one}/status?fieldManager=x&force=true", applied, APPLY
    yield "DELETE", one, None, "application/json"
    yield "DELETE", every, None, "application/json"


def everything(server: ApiServer, namespace: str) -> Json:
    """All resources of ours, as they are."""
    return {kind: server.request("GET", resource_path_of(kind, namespace))["items"] for kind in KINDS}


def allowed(server: ApiServer, user: str, namespace: str, group: str, resource: str, verb: str) -> bool:
    """What the authoriser says of a request."""
    plural, _, subresource = resource.partition("/")
    asked = {"namespace": namespace, "group": group, "resource": plural, "subresource": subresource, "verb": verb}
    groups = ["system:authenticated"]
    if user.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": asked},
    }
    answer = server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_viewer_changes_nothing_by_any_verb(
    server: ApiServer, spaces: tuple[str, str], manifests: dict[str, Json]
) -> None:
    assert set(manifests) == set(KINDS)
    ours, _ = spaces
    before = everything(server, ours)
    for kind, manifest in manifests.items():
        assert code(server, "vera", "GET", resource_path_of(kind, ours, manifest["metadata"]["name"])) == 200
        for method, path, body, content in writes(kind, ours, manifest):
            assert code(server, "vera", method, path, body, content) == 403, (method, path)
    assert everything(server, ours) == before
    may = {
        (plural, sub, verb)
        for plural in PLURALS.values()
        for sub in SUBRESOURCES
        for verb in VERBS
        if allowed(server, "vera", ours, "kubothek.io", f"{plural}/{sub}", verb)
    }
    assert may == {(plural, "", verb) for plural in PLURALS.values() for verb in ("get", "list", "watch")}


def test_status_is_writable_by_operator_only(
    server: ApiServer, spaces: tuple[str, str], manifests: dict[str, Json]
) -> None:
    """A status says what has been committed: an admin who writes it would make the operator believe it."""
    for plural in PLURALS.values():
        assert allowed(server, OPERATOR_USER, spaces[0], "kubothek.io", f"{plural}/status", "patch"), plural
        for verb in ("update", "patch"):
            assert not allowed(server, "ada", spaces[0], "kubothek.io", f"{plural}/status", verb), plural


def test_namespace_admin_reaches_nothing_in_other_namespace(
    server: ApiServer, spaces: tuple[str, str], manifests: dict[str, Json]
) -> None:
    ours, theirs = spaces
    before = everything(server, theirs)
    for kind, manifest in manifests.items():
        name = manifest["metadata"]["name"]
        assert (
            code(
                server, "ada", "PATCH", resource_path_of(kind, ours, name), {"metadata": {"labels": {"a": "b"}}}, MERGE
            )
            == 200
        )
        for path in (
            resource_path_of(kind, theirs, name),
            resource_path_of(kind, theirs),
            f"/apis/{API}/{PLURALS[kind]}",
        ):
            assert code(server, "ada", "GET", path) == 403, path
        for method, path, body, content in writes(kind, theirs, manifest):
            assert code(server, "ada", method, path, body, content) == 403, (method, path)
    assert everything(server, theirs) == before


def test_job_account_is_limited_to_own_namespace_and_reads_no_secret(
    server: ApiServer, spaces: tuple[str, str], bound: None
) -> None:
    ours, theirs = spaces
    job = f"system:serviceaccount:{ours}:kubothek-job"
    core = (
        "pods",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "serviceaccounts",
        "serviceaccounts/token",
        "services",
    )
    asked = [("", resource) for resource in (*core, "pods/exec", "pods/log", "pods/ephemeralcontainers")]
    asked += [("kubothek.io", plural) for plural in PLURALS.values()]
    may = {
        (namespace, resource, verb)
        for namespace in spaces
        for group, resource in asked
        for verb in VERBS
        if allowed(server, job, namespace, group, resource, verb)
    }
    pods = ("get", "list", "watch", "create", "delete", "deletecollection", "patch")
    assert may == {(ours, "pods", verb) for verb in pods}
    assert not any(allowed(server, OPERATOR_USER, theirs, "", "secrets", verb) for verb in ("get", "list", "watch"))


def test_reference_to_other_namespace_is_impossible(
    server: ApiServer, spaces: tuple[str, str], manifests: dict[str, Json]
) -> None:
    """There is no field for it in any kind, and what is written all the same is refused, or pruned.

    A writer of a Dataset is no reference: it names who is permitted, as a subject of a RoleBinding, and nothing of that
    namespace is read.
    """
    for kind, model in KINDS.items():
        schema = model.model_fields["spec"].annotation.model_json_schema()  # type: ignore[union-attr]
        schema["$defs"].pop("Writer", None)
        assert '"namespace"' not in json.dumps(schema).lower(), kind
    assert set(Reference.model_fields) == set(ObjectReference.model_fields) == {"name"}
    pattern_of_names = ("b/lake", "b.lake", "../lake", "*", "")
    for kind, manifest in manifests.items():
        for at in references(manifest["spec"]):
            path = resource_path_of(kind, spaces[0])
            for spec in (given(manifest["spec"], at, {"name": "x", "namespace": spaces[1]}),):
                body = manifest | {"metadata": {"name": "another"}, "spec": spec}
                assert code(server, "", "POST", f"{path}?fieldValidation=Strict&dryRun=All", body) == 400, (kind, at)
            if not at[-1].endswith(("SecretRef", "Secrets")):
                for name in pattern_of_names:
                    body = manifest | {
                        "metadata": {"name": "another"},
                        "spec": given(manifest["spec"], at, {"name": name}),
                    }
                    assert code(server, "", "POST", f"{path}?dryRun=All", body) == 422, (kind, at, name)


def references(spec: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places of references in a manifest's spec."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key.endswith("Ref") and isinstance(value, dict):
                yield (*at, key)
            else:
                yield from references(value, (*at, key))


def given(spec: Json, at: tuple[str, ...], value: Json) -> Json:
    """The spec with another value there."""
    first, *rest = at
    return spec | {first: given(spec[first], tuple(rest), value) if rest else value}
