"""What the kinds that run once have in common: Commit, Query, Compaction, Verification."""

from __future__ import annotations

from typing import Final

from kubothek.api.meta import ObjectMeta

EDITABLE: Final = "suspend, retryLimit and ttlSecondsAfterFinished"
"""What of their specs may be edited."""

TRACKS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
    "app.kubernetes.io/instance": "Argo CD or Helm",
}
"""Labels and annotations that tools put on what they apply."""


def tracker_of(metadata: ObjectMeta) -> str | None:
    """The tool that keeps the resource as its repository or chart says; None if there is none to be seen."""
    return next((tool for key, tool in TRACKS.items() if key in metadata.labels or key in metadata.annotations), None)
