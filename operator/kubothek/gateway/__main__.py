"""``python -m kubothek.gateway``: serve the exposed Datasets of a namespace."""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from kubothek.gateway.gate import AUDIT
from kubothek.gateway.kubernetes.process import GatewayConfig, run
from kubothek.gateway.limits import Limits

_LIMIT = "limit_"


def _with_limits(command: click.Command) -> click.Command:
    """Add an option for each limit, such as ``--limit-per-second``."""
    for limit in fields(Limits):
        name = f"{_LIMIT}{limit.name}"
        kind: click.ParamType[Any] = click.STRING
        if isinstance(limit.default, int):
            kind = click.IntRange(min=1)
        elif isinstance(limit.default, float):
            kind = click.FloatRange(min=0, min_open=True)
        command.params.append(
            click.Option([f"--{name.replace('_', '-')}", name], type=kind, default=limit.default, show_default=True)
        )
    return command


@click.command(context_settings={"show_default": True})
@click.option("--namespace", required=True, help="Whose Datasets are served.")
@click.option("--audience", required=True, help="What tokens must have been made for: kubectl create token --audience.")
@click.option("--cluster-id", default="", help="As the operator's; default: uid of kube-system.")
@click.option("--port", default=8080, type=click.IntRange(0, 65535), help="Where it serves.")
@click.option("--probe-port", default=8081, type=click.IntRange(0, 65535), help="Port of /healthz and /readyz.")
@click.option("--metrics-port", default=8082, type=click.IntRange(0, 65535), help="Port of /metrics.")
@click.option(
    "--tls-dir", type=click.Path(path_type=Path, exists=True), help="Directory with tls.crt and tls.key, for https."
)
@click.option(
    "--presigned", default=0, type=click.IntRange(0, 604800), help="Seconds for which URLs of the store are given out."
)
@click.option("--url", default=None, help="Where clients reach it, if something in front changes what they ask for.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="CIDR",
    help="What is in front of it, whose X-Forwarded-For is believed; repeatable.",
)
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]))
@click.option("--kubeconfig", default=None, envvar="KUBECONFIG", help="Run outside the cluster.")
def main(*, log_level: str, **flags: Any) -> None:
    """Serve the ledgers that Datasets of a namespace expose, to clients that the cluster authorises, until stopped.

    Audit lines, one JSON object each, go to standard output; all other logs go to standard error.
    """
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    audit = logging.StreamHandler(sys.stdout)
    audit.setFormatter(logging.Formatter("%(message)s"))
    AUDIT.addHandler(audit)
    AUDIT.setLevel(logging.INFO)
    AUDIT.propagate = False
    limits = Limits(**{name.removeprefix(_LIMIT): flags.pop(name) for name in list(flags) if name.startswith(_LIMIT)})
    config = GatewayConfig(limits=limits, **flags)

    def listening(port: int) -> None:
        logging.getLogger("kubothek.gateway").info("serving %s on port %d", config.namespace, port)

    asyncio.run(run(config, listening))


_with_limits(main)

if __name__ == "__main__":
    main()
