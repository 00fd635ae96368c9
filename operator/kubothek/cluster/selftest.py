"""``python -m kubothek.cluster.selftest``: a check of the cluster and of the operator's rights (`helm test`).

It checks as the operator's service account that the API server serves the CRDs in this version and allows every call of
the operator. It writes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Final

import click

from kubothek.api.bounds import BOUNDING
from kubothek.api.kinds import KINDS
from kubothek.cluster.api import RESOURCES, Api, ApiError, ApiUnavailable

_OWNED: Final = tuple(kind for kind in KINDS if kind != "Repository")
"""Kinds that own pods or Datasets."""

NEEDED: Final = (
    *((kind, "", verb) for kind in KINDS for verb in ("get", "list", "watch")),
    *((kind, "status", "patch") for kind in KINDS),
    *((kind, "finalizers", "update") for kind in _OWNED),
    ("Dataset", "", "create"),  # for a Cube
    ("Dataset", "", "patch"),  # for a Cube, and for the finalizer
    ("SkippingIndex", "", "patch"),
    *((kind, "", "delete") for kind in ("Commit", "Query", "Compaction", "Verification")),  # after their time to live
    *(("Pod", "", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *(("ConfigMap", "", verb) for verb in ("get", "create", "delete")),
    *((kind, "", verb) for kind in BOUNDING for verb in ("list", "watch")),
    ("Secret", "", "create"),  # the private key of a ledger, and the secret of a driver pod
    ("CoreEvent", "", "list"),
    ("Event", "", "create"),
    ("Event", "", "patch"),
)
"""Every call of the operator in the namespaces that it serves, as (kind, subresource, verb)."""


async def problems(api: Api, namespaces: Sequence[str | None]) -> AsyncIterator[str]:
    """Yield what is missing, a line each. None as a namespace means all of them. Raises ApiUnavailable."""
    for kind in KINDS:
        try:
            async for _ in api.pages(kind, namespaces[0]):
                break
        except ApiError as error:
            if error.status == 404:
                yield f"the API server has no {RESOURCES[kind][1]}.kubothek.io: install this version's CRDs"
    for namespace in namespaces:
        for kind, subresource, verb in NEEDED:
            if not await _may(api, namespace, kind, subresource, verb):
                what = "/".join(filter(None, (RESOURCES[kind][1], subresource)))
                where = f"in namespace {namespace}" if namespace else "in all namespaces"
                yield f"may not {verb} {what} {where}: give the operator's service account the chart's roles"


async def _may(api: Api, namespace: str | None, kind: str, subresource: str, verb: str) -> bool:
    root, plural = RESOURCES[kind]
    wanted = {
        "group": root.removeprefix("/apis/").rpartition("/")[0] if root.startswith("/apis/") else "",
        "resource": plural,
        "subresource": subresource,
        "verb": verb,
        **({"namespace": namespace} if namespace else {}),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    answer = await api.create("SelfSubjectAccessReview", None, review)
    return bool(answer["status"]["allowed"])


async def _run(namespaces: Sequence[str | None], kubeconfig: str | None) -> int:
    api = await Api.connect(kubeconfig)
    try:
        found = [problem async for problem in problems(api, namespaces)]
    finally:
        await api.close()
    for problem in found:
        click.echo(problem)
    if not found:
        click.echo(f"{len(KINDS)} kinds are served, and all {len(NEEDED)} calls may be made")
    return 1 if found else 0


@click.command()
@click.option("--namespaces", default="", help="Namespaces that are served, by comma.")
@click.option("--all-namespaces", is_flag=True, help="Every namespace is.")
@click.option("--kubeconfig", default=None, envvar="KUBECONFIG", help="Run outside the cluster.")
def main(namespaces: str, all_namespaces: bool, kubeconfig: str | None) -> None:
    """Print what an operator cannot do here; exit with 1 if there is anything, 2 if the API server does not answer."""
    served = [name.strip() for name in namespaces.split(",") if name.strip()]
    if all_namespaces == bool(served):
        raise click.UsageError("give either --namespaces or --all-namespaces")
    try:
        sys.exit(asyncio.run(_run([None] if all_namespaces else served, kubeconfig)))
    except ApiUnavailable as error:
        click.echo(f"the API server is out of reach: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
