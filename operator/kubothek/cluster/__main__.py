"""``python -m kubothek.cluster``: run the operator."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from pathlib import Path

import click
from pydantic import ValidationError

from kubothek.api.engine import EngineSpec
from kubothek.api.profiles import said
from kubothek.api.rules import broken_rules
from kubothek.api.sizes import Sizes
from kubothek.cluster.config import OperatorConfig, TracingConfig, WebhookConfig
from kubothek.cluster.process import run
from kubothek.cluster.telemetry.logs import log_to_stderr
from kubothek.controller.context import Limits
from kubothek.tracing.sending import ENDPOINT, RATIO


def _words(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(",") if word.strip())


class _Json(click.ParamType[EngineSpec | Sizes]):
    """An object in JSON that a model accepts."""

    name = "json"

    def __init__(self, model: type[EngineSpec | Sizes]) -> None:
        self._model = model

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> EngineSpec | Sizes:
        """Return the parsed model. Raises BadParameter with the path and the message of each error."""
        if isinstance(value, EngineSpec | Sizes):
            return value
        try:
            model = self._model.model_validate_json(str(value) or "{}")
        except ValidationError as error:
            text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            self.fail(f"{text or error}", param, ctx)
        if wrong := "; ".join(map(str, broken_rules(model, local=False))):
            self.fail(wrong, param, ctx)
        return model


@click.command(context_settings={"auto_envvar_prefix": "KUBOTHEK", "show_default": True})
@click.option("--namespaces", default="", callback=_words, help="Namespaces to serve, by comma.")
@click.option("--all-namespaces", is_flag=True, help="Serve every namespace (needs a ClusterRole).")
@click.option("--job-image", required=True, help="Image of jobs whose Engine names none.")
@click.option("--job-image-pull-policy", default="IfNotPresent", type=click.Choice(["Always", "IfNotPresent", "Never"]))
@click.option("--job-service-account", default="kubothek-job", help="Service account of jobs, in their namespace.")
@click.option("--job-network-policy", is_flag=True, help="Create a NetworkPolicy where jobs run.")
@click.option("--cluster-id", default="", help="First part of every claim on a dataset; default: uid of kube-system.")
@click.option("--allowed-source-hosts", default="", callback=_words, help="Hosts that source URLs may name, by comma.")
@click.option(
    "--open-lineage-url",
    default="",
    help="OpenLineage collector that receives the runs of derivatives, Queries and Commits of SQL.",
)
@click.option("--allowed-source-images", default="", callback=_words, help="Images that sources may run, by comma.")
@click.option(
    "--inspect-interval", default=600, type=click.IntRange(min=10), help="Seconds between inspections of a store."
)
@click.option("--limit-jobs", default=0, type=click.IntRange(min=0), help="Jobs that read data at a time; 0 = any.")
@click.option("--limit-jobs-per-namespace", default=0, type=click.IntRange(min=0), help="The same of one namespace.")
@click.option("--limit-jobs-per-store", default=0, type=click.IntRange(min=0), help="The same on one ObjectStore.")
@click.option("--engine-defaults", default="{}", type=_Json(EngineSpec), help="What Engines do not say, in JSON.")
@click.option("--engine-limits", default="{}", type=_Json(Sizes), help="The largest sizes of jobs, in JSON.")
@click.option("--logs", default="", help="URL of a job's log, with {namespace}, {pod}, {start} and {end}.")
@click.option("--lease", default="", help="Of several operators the holder of this Lease works: namespace/name.")
@click.option("--concurrency", default=24, type=click.IntRange(min=1), help="Resources worked on at a time.")
@click.option("--probe-port", default=8080, type=click.IntRange(0, 65535), help="Port of /healthz and /readyz.")
@click.option("--metrics-port", default=8081, type=click.IntRange(0, 65535), help="Port of /metrics.")
@click.option(
    "--metrics-objects",
    default=1000,
    type=click.IntRange(min=0),
    help="Up to how many resources of a kind each has metrics of its own.",
)
@click.option("--log-format", default="text", type=click.Choice(["text", "json"]), help="Of the log.")
@click.option("--webhook-port", default=0, type=click.IntRange(0, 65535), help="Port of the webhook; 0 = none.")
@click.option("--webhook-service", default="", help="The webhook's Service: name.namespace.")
@click.option("--webhook-secret", default="kubothek-webhook", help="Secret for the webhook's own certificate.")
@click.option("--webhook-configuration", default="kubothek", help="ValidatingWebhookConfiguration that trusts it.")
@click.option("--webhook-certificates", default=None, type=click.Path(path_type=Path), help="Those of cert-manager.")
@click.option("--otlp-endpoint", default="", envvar=ENDPOINT, help="Collector of OpenTelemetry, if runs are traced.")
@click.option("--trace-ratio", default=1.0, envvar=RATIO, type=click.FloatRange(0, 1), help="The part that is traced.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]))
@click.option("--kubeconfig", default=None, envvar="KUBECONFIG", help="Run outside the cluster.")
def main(
    *,
    namespaces: tuple[str, ...],
    all_namespaces: bool,
    inspect_interval: int,
    engine_defaults: EngineSpec,
    limit_jobs: int,
    limit_jobs_per_namespace: int,
    limit_jobs_per_store: int,
    log_format: str,
    webhook_port: int,
    webhook_service: str,
    webhook_secret: str,
    webhook_configuration: str,
    webhook_certificates: Path | None,
    log_level: str,
    otlp_endpoint: str,
    trace_ratio: float,
    kubeconfig: str | None,
    **flags: object,
) -> None:
    """Reconcile the cluster's Kubothek resources until the process is stopped."""
    if all_namespaces == bool(namespaces):
        raise click.UsageError("give either --namespaces or --all-namespaces")
    if webhook_port and "." not in webhook_service:
        raise click.UsageError("--webhook-port goes with --webhook-service NAME.NAMESPACE")
    if flags["lease"] and str(flags["lease"]).count("/") != 1:
        raise click.UsageError("--lease is given as NAMESPACE/NAME")
    webhook = WebhookConfig(webhook_port, webhook_service, webhook_certificates, webhook_secret, webhook_configuration)
    log_to_stderr(log_level, as_json=log_format == "json")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = kubeconfig  # kopf reads it from here
    config = OperatorConfig(
        namespaces=namespaces,
        inspect_interval=timedelta(seconds=inspect_interval),
        engine_defaults=said(engine_defaults),
        limits=Limits(limit_jobs, limit_jobs_per_namespace, limit_jobs_per_store),
        webhook=webhook if webhook_port else None,
        tracing=TracingConfig(otlp_endpoint, trace_ratio) if otlp_endpoint else None,
        kubeconfig=kubeconfig,
        **flags,  # type: ignore[arg-type]
    )
    asyncio.run(run(config))


if __name__ == "__main__":
    main()
