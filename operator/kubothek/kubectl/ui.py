"""``kubectl kubothek ui``: the Spark UI of a running job."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from kubothek.kubectl.acting import existing
from kubothek.kubectl.cluster import Cluster, ClusterProblem, cluster_options
from kubothek.kubectl.naming import Named, ResourceName

if TYPE_CHECKING:
    from kubothek.cluster.api import Api

UI_PORT = 4040
"""Default port of the Spark UI, unless ``spark.ui.port`` changes it."""


@click.command()
@click.argument("resource", type=ResourceName("Commit"), metavar="KIND/NAME")
@cluster_options
@click.option("--port", default=UI_PORT, show_default=True, type=click.IntRange(1, 65535), help="On this machine.")
def ui(resource: Named, cluster: Cluster, port: int) -> None:
    """Forward the Spark UI of a running job to this machine, until interrupted.

    Jobs serve it if `spark.ui.enabled` is `"true"` in `spec.sparkConf` of their Engine. Needs `kubectl`.
    """
    pod, namespace, serves = cluster.run(lambda api, space: _driver(api, space, resource))
    if not serves:
        hint = "set spark.ui.enabled to 'true' in spec.sparkConf of its Engine, for the next job"
        raise ClusterProblem(f"the job {pod} serves no Spark UI: {hint}")
    click.echo(f"http://localhost:{port} is the Spark UI of {pod}")
    where = [*cluster.kubectl, f"--namespace={namespace}"]
    command = ["kubectl", *where, "port-forward", f"pod/{pod}", f"{port}:{UI_PORT}"]
    try:
        os.execvp("kubectl", command)  # noqa: S606, S607 - the user's own kubectl
    except FileNotFoundError:
        raise ClusterProblem("kubectl is not on the PATH: it forwards the port") from None


async def _driver(api: Api, namespace: str, resource: Named) -> tuple[str, str, bool]:
    """Return the pod of the running job, its namespace, and whether it has a Spark UI. Raises ClusterProblem."""
    import json

    from kubothek.cluster import names

    there = await existing(api, namespace, resource)
    pods = [pod async for page, _ in api.pages("Pod", namespace, labels=names.JOB) for pod in page]
    own = [pod for pod in pods if (names.controller_of(pod) or {}).get("uid") == there["metadata"]["uid"]]
    running = [pod["metadata"]["name"] for pod in own if (pod.get("status") or {}).get("phase") == "Running"]
    if not running:
        raise ClusterProblem(f"no job of {resource} is running")
    config = await api.get("ConfigMap", namespace, running[0])
    job = json.loads(((config or {}).get("data") or {}).get("job.json") or "{}")
    conf = (job.get("spark") or {}).get("conf") or {}
    return running[0], namespace, conf.get("spark.ui.enabled") == "true"
