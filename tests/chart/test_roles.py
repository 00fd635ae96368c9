"""Who may do what by the chart's roles, as the API server's own authoriser says; and the operator's self-test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import yaml

from kubothek.api.kinds import KINDS
from kubothek.cluster.api import RESOURCES
from tests.chart.conftest import Objects, Render, grant
from tests.cluster.apiserver import OPERATOR, ApiServer
from tests.cluster.harness import manifest

READ = {"get", "list", "watch"}
WRITE = {"create", "update", "patch"}
DELETE = {"delete", "deletecollection"}
PLURALS = {kind: RESOURCES[kind][1] for kind in KINDS}

DATA = {"Commit", "Query", "Compaction", "Verification", "SkippingIndex", "Sync"}
"""What people with the role edit make and delete."""
KEPT = {"Dataset", "Cube"}
"""What they make, and only admins delete, as data may go with it."""


def expected(role: str, kind: str) -> set[str]:
    edits = role in ("edit", "admin") and kind in DATA | KEPT
    deletes = role == "admin" or (role == "edit" and kind in DATA)
    return READ | (WRITE if edits or role == "admin" else set()) | (DELETE if deletes else set())


@pytest.fixture(scope="module")
def bound(server: ApiServer, make_namespace: Callable[[], str], render: Render) -> Iterator[str]:
    """A namespace in which vera has the role view, ed also edit, and ada also admin.

    The controller that adds our rules to the cluster's own roles does not run here: the roles are bound as they are.
    """
    namespace = make_namespace()
    roles = [role for role in render(namespace) if role["metadata"]["name"].rpartition("-")[2] in USERS.values()]
    given = [binding(namespace, role, user) for role, user in product(roles, USERS) if has(user, role)]
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([*roles, *given]))
    yield namespace
    server.kubectl("delete", "clusterrole", *(role["metadata"]["name"] for role in roles))


USERS = {"vera": "view", "ed": "edit", "ada": "admin"}


def has(user: str, role: dict[str, Any]) -> bool:
    order = list(USERS.values())
    return order.index(role["metadata"]["name"].rpartition("-")[2]) <= order.index(USERS[user])


def binding(namespace: str, role: dict[str, Any], user: str) -> dict[str, Any]:
    name = role["metadata"]["name"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{name}-{user}", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def rules_of(server: ApiServer, user: str, namespace: str) -> Objects:
    """What the authoriser lets a user do in a namespace, by one of our roles or any other."""
    token = ["--as", user, "--as-group", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    shown = server.kubectl("create", *token, "--validate=false", "-o", "yaml", "-f", "-", stdin=yaml.safe_dump(review))
    rules: Objects = yaml.safe_load(shown)["status"]["resourceRules"]
    return [rule for rule in rules if rule.get("resources")]


def test_user_role_grants_exactly_expected_verbs(server: ApiServer, bound: str) -> None:
    for user, role in USERS.items():
        allowed: dict[str, set[str]] = {}
        for rule in rules_of(server, user, bound):
            if set(rule["apiGroups"]) & {"kubothek.io", "*"}:
                for resource in rule["resources"]:
                    allowed.setdefault(resource, set()).update(rule["verbs"])
            else:
                # What every user may: to ask about oneself.
                assert rule["verbs"] == ["create"], rule
                assert all(resource.startswith("selfsubject") for resource in rule["resources"]), rule
        assert allowed == {plural: expected(role, kind) for kind, plural in PLURALS.items()}


def test_viewer_commands_change_nothing(server: ApiServer, bound: str) -> None:
    server.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest("Engine", bound, "default", {})))
    as_vera = ("--as", "vera", "--namespace", bound)
    assert "default" in server.kubectl("get", "engines", *as_vera)
    for command in (
        ("delete", "engine", "default"),
        ("annotate", "engine", "default", "kubothek.io/requestedAt=now"),
        ("patch", "engine", "default", "--subresource=status", "--type=merge", "--patch={}"),
        ("create", "job", "--image=x", "y"),
    ):
        with pytest.raises(AssertionError, match=r"(?i)forbidden"):
            server.kubectl(*command, *as_vera)


def test_selftest_reports_whether_operator_can_work(server: ApiServer, namespace: str, render: Render) -> None:
    objects = render("kubothek", namespaces=[namespace])
    (pod,) = (obj for obj in objects if obj["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == "kubothek"

    def selftest() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *container["command"][1:], *container["args"]]
        environment = {"KUBECONFIG": str(server.kubeconfig(OPERATOR))}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    without = selftest()
    assert without.returncode == 1, without.stderr
    assert f"may not create pods in namespace {namespace}" in without.stdout
    grant(server, objects)
    given = selftest()
    assert given.returncode == 0, given.stdout + given.stderr
    assert "12 kinds are served" in given.stdout
