"""The operator's configuration: one frozen value, from flags or ``KUBOTHEK_*`` variables, read once at the start."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from kubothek.reconcile.world import Limits


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """See the flags in :mod:`kubothek.runtime.kubernetes.__main__` for what each means to a user."""

    namespaces: tuple[str, ...]
    """Namespaces to serve; empty = all."""
    job_image: str
    """Image of jobs whose Engine names none."""
    job_image_pull_policy: str = "IfNotPresent"
    cluster_id: str = ""
    """Empty = the uid of the namespace kube-system."""
    job_service_account: str = "kubothek-job"
    allowed_source_hosts: tuple[str, ...] = ()
    open_lineage_url: str = ""
    """Empty = nobody is told of runs."""
    allowed_source_images: tuple[str, ...] = ()
    inspect_interval: timedelta = timedelta(minutes=10)
    limits: Limits = field(default_factory=Limits)
    concurrency: int = 8
    """How many resources are worked on at a time."""
    probe_port: int = 8080
    kubeconfig: str | None = None

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """What to list and watch: each namespace, or None for all of them."""
        return self.namespaces or (None,)
