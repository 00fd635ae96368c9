"""Commands that change a resource: retry, suspend, resume, reconcile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kubothek.api.runs import TRACKS
from kubothek.kubectl.cluster import Cluster, ClusterProblem, cluster_options
from kubothek.kubectl.naming import Named, ResourceName

if TYPE_CHECKING:
    from kubothek.cluster.api import Api, Object

_RUNS = ("Commit", "Query", "Compaction", "Verification")
_DELETION_SECONDS = 60.0
"""Seconds within which a deleted run must disappear: it has no finalizer."""


@click.command()
@click.argument("resource", type=ResourceName(), metavar="KIND/NAME")
@cluster_options
def suspend(resource: Named, cluster: Cluster) -> None:
    """Start no new jobs for a resource; running jobs continue."""
    _set_suspend(resource, cluster, wanted=True)


@click.command()
@click.argument("resource", type=ResourceName(), metavar="KIND/NAME")
@cluster_options
def resume(resource: Named, cluster: Cluster) -> None:
    """Undo suspend."""
    _set_suspend(resource, cluster, wanted=False)


@click.command()
@click.argument("resource", type=ResourceName(), metavar="KIND/NAME")
@cluster_options
def reconcile(resource: Named, cluster: Cluster) -> None:
    """Do now what otherwise happens at intervals: inspect, check sources, poll, collect, sync, query."""
    cluster.run(lambda api, namespace: _request(api, namespace, resource))
    click.echo(f"{resource} requested")


@click.command()
@click.argument("resource", type=ResourceName(), metavar="KIND/NAME")
@cluster_options
def retry(resource: Named, cluster: Cluster) -> None:
    """Retry what failed.

    A run that is out of attempts gets one more. A run that failed permanently is deleted and created again with the
    same spec; even so, a Commit happens only once. For other kinds, and for a Query with `schedule` or `follow`, this
    is the same as `reconcile`.
    """
    click.echo(cluster.run(lambda api, namespace: _retry(api, namespace, resource)))


def _set_suspend(resource: Named, cluster: Cluster, *, wanted: bool) -> None:
    async def work(api: Api, namespace: str) -> Object:
        there = await existing(api, namespace, resource)
        if bool(there["spec"].get("suspend")) is wanted:
            return there
        return await api.merge_patch(resource.kind, namespace, resource.name, {"spec": {"suspend": wanted}})

    if resource.kind in ("Engine", "ObjectStore", "Repository"):
        raise ClusterProblem(f"a {resource.kind} starts nothing that could be suspended")
    there = cluster.run(work)
    click.echo(f"{resource} {'suspended' if wanted else 'resumed'}")
    tracked = {**(there["metadata"].get("labels") or {}), **(there["metadata"].get("annotations") or {})}
    if any(key in tracked for key in TRACKS):
        click.echo("note: a GitOps tool applies this resource; spec.suspend belongs into its repository too", err=True)


async def existing(api: Api, namespace: str, resource: Named) -> Object:
    """Return the resource. Raises ClusterProblem if there is none."""
    there = await api.get(resource.kind, namespace, resource.name)
    if there is None:
        raise ClusterProblem(f"there is no {resource.kind} {resource.name!r} in namespace {namespace!r}")
    return there


async def _request(api: Api, namespace: str, resource: Named) -> None:
    from kubothek.api.meta import REQUEST_ANNOTATIONS

    await existing(api, namespace, resource)
    stamp = datetime.now(UTC).isoformat(timespec="microseconds")
    patch = {"metadata": {"annotations": {REQUEST_ANNOTATIONS[0]: stamp}}}
    await api.merge_patch(resource.kind, namespace, resource.name, patch)


async def _retry(api: Api, namespace: str, resource: Named) -> str:
    there = await existing(api, namespace, resource)
    is_standing = resource.kind == "Query" and ("schedule" in there["spec"] or there["spec"].get("follow"))
    if resource.kind not in _RUNS or is_standing:
        await _request(api, namespace, resource)
        return f"{resource} requested"
    status: dict[str, Any] = there.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or () if each["status"] == "True"}
    if "Failed" not in conditions:
        raise ClusterProblem(f"{resource} has not failed: there is nothing to try again")
    if conditions["Failed"]["reason"] == "RetryLimitReached":
        limit = int(status.get("failures") or 0)
        if limit > _MOST_RETRIES:
            raise ClusterProblem(f"{resource} was tried {limit} times, which is the limit; create it again")
        await api.merge_patch(resource.kind, namespace, resource.name, {"spec": {"retryLimit": limit}})
        return f"{resource} gets another attempt: spec.retryLimit is {limit}"
    await _anew(api, namespace, resource, there)
    return f"{resource} created anew"


_MOST_RETRIES = 20
"""Limit of ``retryLimit`` in the schema."""


async def _anew(api: Api, namespace: str, resource: Named, there: Object) -> None:
    """Delete the run and create it again. If that fails in between, the error contains its manifest."""
    from kubothek.cluster.api import CONFLICT, ApiError, ApiUnavailable

    meta = there["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "labels", "annotations") if name in meta}
    owners = {"ownerReferences": meta["ownerReferences"]} if "ownerReferences" in meta else {}
    manifest = {
        "apiVersion": "kubothek.io/v1alpha1",
        "kind": resource.kind,
        "metadata": kept | owners,
        "spec": there["spec"],
    }
    await api.delete(resource.kind, namespace, resource.name, meta["uid"])
    try:
        async with asyncio.timeout(_DELETION_SECONDS):
            while (left := await api.get(resource.kind, namespace, resource.name)) is not None:
                if left["metadata"]["uid"] != meta["uid"]:
                    return  # a GitOps tool created it first
                await asyncio.sleep(0.2)
        await api.create(resource.kind, namespace, manifest)
    except ApiError as error:
        if error.status != CONFLICT:
            raise _lost(manifest, error) from error
    except (ApiUnavailable, TimeoutError) as error:
        raise _lost(manifest, error) from error


def _lost(manifest: Object, error: Exception) -> ClusterProblem:
    import yaml

    text = yaml.safe_dump(manifest, sort_keys=False)
    return ClusterProblem(f"it was deleted, and not created again ({error or 'timed out'}); apply this:\n{text}")
