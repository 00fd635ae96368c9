"""Every manifest in docs/ and examples/ is applied: a real API server takes it, and stores what our models read."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubothek.api.kinds import KINDS, InvalidResource, parse
from kubothek.cli.main import cli
from kubothek.cluster.api import RESOURCES
from tests.cluster.apiserver import ApiServer
from tests.documented import API, OTHER, ROOT, Documents, blocks, examples

LOCAL = {"examples/exchange/pull.yaml", "examples/exchange/push.yaml", "examples/stores/local.yaml"}
"""Examples for one's own machine, with a store or a Repository that is a directory."""
TOOLS = ("argoproj.io/", "fluxcd.io/", "kustomize.config.k8s.io/")
"""What belongs to tools that are not here: tests/cluster/test_gitops.py looks at it."""
RBAC = {"Role": "roles", "ClusterRole": "clusterroles"}

FILES = list(examples())
BLOCKS = [given for given in blocks() if given.mark not in OTHER]


def apply(server: ApiServer, manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Apply one, as strictly as can be; what belongs to no namespace is tried only, as all tests share the server."""
    kind = manifest["kind"]
    root, plural = RESOURCES.get(kind) or ("/apis/rbac.authorization.k8s.io/v1", RBAC[kind])
    scope, dry = ("", "&dryRun=All") if kind.startswith("Cluster") else (f"/namespaces/{namespace}", "")
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    stored = server.request(
        "PATCH",
        f"{root}{scope}/{plural}/{metadata['name']}?fieldManager=docs&fieldValidation=Strict{dry}",
        manifest | {"metadata": metadata},
        "application/apply-patch+yaml",
    )
    return dict(stored)


def told(error: urllib.error.HTTPError) -> str:
    return str(json.load(error)["message"])


@pytest.mark.parametrize("given", [*BLOCKS, *FILES], ids=lambda given: given.place)
def test_documented_manifest_is_accepted_by_api_server(
    server: ApiServer, make_namespace: Callable[[], str], given: Documents
) -> None:
    namespace = make_namespace()
    for manifest in given.manifests():
        if any(tool in manifest["apiVersion"] for tool in TOOLS):
            continue
        try:
            stored = apply(server, manifest, namespace)
        except urllib.error.HTTPError as error:
            message = told(error)
            assert given.place in LOCAL, message
            with pytest.raises(InvalidResource) as refused:
                parse(manifest)
            assert all(problem.message in message for problem in refused.value.problems)
            parse(manifest, local=True)
            continue
        if manifest["apiVersion"] == API:
            assert parse(stored).spec == parse(manifest).spec


def test_documentation_and_examples_show_every_kind() -> None:
    for where in (BLOCKS, FILES):
        shown = {manifest.get("kind") for given in where for manifest in given.manifests()}
        assert set(KINDS) <= shown, where[0].place


def test_documented_helm_values_exist_in_chart() -> None:
    known = yaml.safe_load((ROOT / "charts" / "kubothek" / "values.yaml").read_text())
    found = [document for given in blocks() if given.mark == "values" for document in given.documents]
    assert found
    for values in found:
        for path in paths(values):
            at = known
            for step in path:
                assert step in at, ".".join(path)
                at = at[step]


def paths(values: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The places of all leaves."""
    inner = (
        paths(value, (*above, key)) if isinstance(value, dict) and value else [(*above, key)]
        for key, value in values.items()
    )
    return list(itertools.chain.from_iterable(inner))


def test_example_manifests_have_no_admission_findings() -> None:
    """Names that refer to each other, layouts, circles: what the webhook would look at."""
    groups = {file.place.rpartition("/")[0] for file in FILES} - {"examples/stores", "examples/gitops"}
    for group in sorted(groups - {"examples/gitops/argocd", "examples/gitops/flux"}):
        stores = [] if group.startswith("examples/gitops") else [str(ROOT / "examples/stores/cluster.yaml")]
        said = CliRunner().invoke(cli, ["lint", str(ROOT / group), *stores, "-o", "json"])
        problems = json.loads(said.output)["problems"]
        local = [problem for problem in problems if re.search(r"file: repository", problem["message"])]
        assert [problem for problem in problems if problem not in local and problem["level"] == "error"] == [], group
