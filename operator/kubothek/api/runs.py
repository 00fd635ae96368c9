"""Common parts of the kinds that run once: Commit, Query, Compaction, Verification."""

from __future__ import annotations

from typing import Final

from kubothek.api.meta import ObjectMeta, Resource

EDITABLE: Final = "suspend, retryLimit and ttlSecondsAfterFinished"
"""The editable fields of their specs."""

TRACKS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
    "app.kubernetes.io/instance": "Argo CD or Helm",
}
"""Labels and annotations that deployment tools set on resources, and the tool."""


def tracker_of(metadata: ObjectMeta) -> str | None:
    """Return the tool that deployed the resource, by its labels and annotations; None if there is no sign of one."""
    return next((tool for key, tool in TRACKS.items() if key in metadata.labels or key in metadata.annotations), None)


class RunResource(Resource):
    """A resource of a kind that runs once."""

    @property
    def finished(self) -> bool:
        """Whether the run has ended: no job will start for it."""
        return self.status.holds("Complete") or self.status.holds("Failed")
