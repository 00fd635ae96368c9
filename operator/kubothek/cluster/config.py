"""The operator's configuration, from flags or ``KUBOTHEK_*`` variables, read once at the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from kubothek.api.sizes import Sizes
from kubothek.controller.context import Limits


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """How API servers reach the validating webhook, and its certificate."""

    port: int
    service: str
    """The Service in front of it, as ``name.namespace``."""
    certificates: Path | None = None
    """A directory with ``tls.crt`` and ``tls.key`` from cert-manager; None = the operator issues its own."""
    secret: str = "kubothek-webhook"  # noqa: S105 - its name
    """The Secret with the operator's own certificate, in the namespace of the Service."""
    configuration: str = "kubothek"
    """The ValidatingWebhookConfiguration that trusts it."""

    @property
    def namespace(self) -> str:
        """The namespace of the Service, and of the operator."""
        return self.service.partition(".")[2]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names by which API servers call the webhook."""
        return f"{self.service}.svc", f"{self.service}.svc.cluster.local"


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """The collector of traces, and the part of the runs that is traced: ``ratio``, from 0 to 1."""

    endpoint: str
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """The configuration. :mod:`kubothek.cluster.__main__` has a flag for each field, with its meaning to a user."""

    namespaces: tuple[str, ...]
    """Namespaces to serve; empty = all."""
    job_image: str
    """Image of jobs whose Engine names none."""
    job_image_pull_policy: str = "IfNotPresent"
    cluster_id: str = ""
    """Empty = the uid of the namespace kube-system."""
    job_service_account: str = "kubothek-job"
    job_network_policy: bool = False
    """Create a NetworkPolicy for jobs in each namespace before the first job there."""
    allowed_source_hosts: tuple[str, ...] = ()
    open_lineage_url: str = ""
    """Empty = no lineage events."""
    allowed_source_images: tuple[str, ...] = ()
    inspect_interval: timedelta = timedelta(minutes=10)
    limits: Limits = field(default_factory=Limits)
    engine_defaults: Mapping[str, Any] = field(default_factory=dict)
    engine_limits: Sizes = field(default_factory=Sizes)
    logs: str = ""
    """URL template of a job's log; empty = none."""
    lease: str = ""
    """The Lease for leader election, as ``namespace/name``; empty = no leader election."""
    concurrency: int = 24
    """Resources reconciled at a time."""
    probe_port: int = 8080
    metrics_port: int = 8081
    metrics_objects: int = 1000
    """Maximum number of resources of a kind with metrics of their own."""
    webhook: WebhookConfig | None = None
    tracing: TracingConfig | None = None
    kubeconfig: str | None = None

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """The scopes to list and watch: each namespace, or None for all of them."""
        return self.namespaces or (None,)
