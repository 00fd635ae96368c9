"""``python -m kubothek.runtime.kubernetes``: run the operator."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta

import click

from kubothek.reconcile.world import Limits
from kubothek.runtime.kubernetes.config import OperatorConfig
from kubothek.runtime.kubernetes.process import run


def _words(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


@click.command(context_settings={"auto_envvar_prefix": "KUBOTHEK", "show_default": True})
@click.option("--namespaces", default="", callback=_words, help="Namespaces to serve, by comma.")
@click.option("--all-namespaces", is_flag=True, help="Serve every namespace (needs a ClusterRole).")
@click.option("--job-image", required=True, help="Image of jobs whose Engine names none.")
@click.option("--job-image-pull-policy", default="IfNotPresent", type=click.Choice(["Always", "IfNotPresent", "Never"]))
@click.option("--job-service-account", default="kubothek-job", help="Service account of jobs, in their namespace.")
@click.option("--cluster-id", default="", help="First part of every claim on a dataset; default: uid of kube-system.")
@click.option("--allowed-source-hosts", default="", callback=_words, help="Hosts that source URLs may name, by comma.")
@click.option("--open-lineage-url", default="", help="Collector of OpenLineage that is told of runs of derivatives.")
@click.option("--allowed-source-images", default="", callback=_words, help="Images that sources may run, by comma.")
@click.option("--inspect-interval", default=600, type=click.IntRange(min=10), help="Seconds between looks at a store.")
@click.option("--limit-jobs", default=0, type=click.IntRange(min=0), help="Jobs that read data at a time; 0 = any.")
@click.option("--limit-jobs-per-namespace", default=0, type=click.IntRange(min=0), help="The same of one namespace.")
@click.option("--limit-jobs-per-store", default=0, type=click.IntRange(min=0), help="The same on one ObjectStore.")
@click.option("--concurrency", default=8, type=click.IntRange(min=1), help="Resources worked on at a time.")
@click.option("--probe-port", default=8080, type=click.IntRange(0, 65535), help="Port of /healthz and /readyz.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]))
@click.option("--kubeconfig", default=None, envvar="KUBECONFIG", help="Run outside the cluster.")
def main(
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    inspect_interval: int,
    limit_jobs: int,
    limit_jobs_per_namespace: int,
    limit_jobs_per_store: int,
    log_level: str,
    kubeconfig: str | None,
    **flags: object,
) -> None:
    """Keep the cluster's Kubothek resources in step with their specs, until told to stop."""
    if all_namespaces == bool(namespaces):
        raise click.UsageError("give either --namespaces or --all-namespaces")
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = kubeconfig  # where kopf looks for it
    config = OperatorConfig(
        namespaces=namespaces,
        inspect_interval=timedelta(seconds=inspect_interval),
        limits=Limits(limit_jobs, limit_jobs_per_namespace, limit_jobs_per_store),
        kubeconfig=kubeconfig,
        **flags,  # type: ignore[arg-type]
    )
    asyncio.run(run(config))


if __name__ == "__main__":
    main()
