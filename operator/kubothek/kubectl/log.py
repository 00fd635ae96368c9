"""``kubectl kubothek log``: the runs of a Dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kubothek.cli.columns import columns
from kubothek.kubectl.acting import existing
from kubothek.kubectl.cluster import Cluster, cluster_options
from kubothek.kubectl.naming import Named, ResourceName

if TYPE_CHECKING:
    from kubothek.cluster.api import Api, Object


@click.command()
@click.argument("dataset", type=ResourceName("Dataset"))
@cluster_options
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="How many; 0 for all.")
def log(dataset: Named, cluster: Cluster, limit: int) -> None:
    """Show the runs of a Dataset that still exist in the cluster, newest first.

    The whole history is in the store: `kubothek log --store URL DATASET` shows it.
    """
    runs = cluster.run(lambda api, namespace: _runs(api, namespace, dataset))
    if not runs:
        click.echo(f"no run of {dataset} is in the cluster")
        return
    runs.sort(key=_time, reverse=True)
    headers = ("TIME", "RUN", "WHAT", "STATE", "VERSION", "ROWS", "MESSAGE")
    for line in columns(headers, [_row(run) for run in runs[: limit or None]], right=("VERSION", "ROWS")):
        click.echo(line)
    if limit and len(runs) > limit:
        click.echo(f"… and {len(runs) - limit} older ones: --limit shows more")


async def _runs(api: Api, namespace: str, dataset: Named) -> list[Object]:
    """Return every run that refers to the Dataset, or to the Cube that it belongs to."""
    there = await existing(api, namespace, dataset)
    owners = there["metadata"].get("ownerReferences") or ()
    cube = next((each["name"] for each in owners if each.get("controller") and each["kind"] == "Cube"), None)
    found = []
    for kind in ("Commit", "Query", "Compaction", "Verification", "Sync"):
        async for page, _ in api.pages(kind, namespace):
            found += [{"kind": kind, **obj} for obj in page if _is_of(obj["spec"], dataset.name, cube)]
    return found


def _is_of(spec: Object, name: str, cube: str | None) -> bool:
    result = (spec.get("result") or {}).get("datasetRef")
    refs = [ref["name"] for ref in (spec.get("datasetRef"), result) if ref is not None]
    of = spec.get("cube") if isinstance(spec.get("cube"), dict) else None
    return name in refs or (of is not None and cube is not None and (of.get("cubeRef") or {}).get("name") == cube)


def _time(run: Object) -> str:
    status: Object = run.get("status") or {}
    for field in ("completionTime", "lastSyncTime", "startTime"):
        if field in status:
            return str(status[field])
    return str(run["metadata"]["creationTimestamp"])


def _row(run: Object) -> tuple[str, ...]:
    spec, status = run["spec"], run.get("status") or {}
    what: Any = spec.get("operation") or spec.get("direction") or (spec.get("cube") or {}).get("operation") or "-"
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ended = next((kind for kind in ("Complete", "Failed") if kind in conditions), None)
    ready = conditions.get("Ready", {})
    state = ended or ready.get("reason") or "Waiting"
    name = f"{run['kind'].lower()}/{run['metadata']['name']}"
    numbers = (str(status.get(field, "-")) for field in ("version", "rows"))
    return _time(run), name, what, state, *numbers, "" if ended == "Complete" else ready.get("message", "")
