"""Polling sources in containers: which images may run, and the container in the job spec of a poll."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubothek.api.conditions import State, stalled
from kubothek.api.jobs import SourceContainer
from kubothek.api.ledger import Ledger
from kubothek.controller.context import Settings

LAUNCHER_DIRECTORY = "/var/run/kubothek/launcher"
"""Directory that holds the program with which the source's container starts."""

OUTPUT_DIRECTORY = "/opt/odf/out"
"""Directory of the container's output; the name is fixed by Open Data Fabric."""

_HOST = r"(?:[a-zA-Z0-9.-]+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?P<repository>(?:{_HOST}/)?{_PART}(?:/{_PART})*)(?P<version>(?::[a-zA-Z0-9_][a-zA-Z0-9._-]*)?(?:@[a-z0-9]+:[0-9a-f]+)?)"
)


def source_container(ledger: Ledger, settings: Settings) -> SourceContainer | None:
    """Return the container for the pod of a poll; None if the source needs none, or in local mode."""
    image = _image(ledger)
    if image is None or settings.allow_local_sources:
        return None
    return SourceContainer(image=image, launcher_dir=LAUNCHER_DIRECTORY, output_dir=OUTPUT_DIRECTORY)


def refused_container(ledger: Ledger, settings: Settings) -> State | None:
    """Return why the container of the source may not run in the cluster; None if it may, or if there is none."""
    image, fetch = _image(ledger), ledger.fetch
    if image is None or fetch is None or settings.allow_local_sources:
        return None
    if not is_allowed(image, settings.allowed_source_images):
        listed = ", ".join(settings.allowed_source_images) or "none"
        return stalled(
            "ImageNotAllowed",
            f"the polling source is a container of image {image!r}, which this operator does not allow (it allows: "
            f"{listed}): name another, or have it added to allowedSourceImages of the chart; Commits continue",
        )
    if not fetch.get("command"):
        return stalled(
            "SourceStalled",
            f"the polling source is a container of image {image!r} without a command: add fetch.command, as only the "
            "image knows its entry point; Commits continue",
        )
    return None


def is_allowed(image: str, allowed: Sequence[str]) -> bool:
    """Return whether a rule covers the image: ``*`` all, ``ghcr.io/acme/*`` all below, ``ghcr.io/acme/fetch`` a
    repository in each version, ``ghcr.io/acme/fetch:1`` or ``…@sha256:…`` one version.

    Names are completed as in containerd: ``python`` is ``docker.io/library/python``.
    """
    if (found := _IMAGE.fullmatch(image)) is None:
        return False
    repository, version = _with_registry(found["repository"]), found["version"]
    for rule in allowed:
        if rule == "*":
            return True
        if rule.endswith("/*"):
            if repository.startswith(_with_registry(rule.removesuffix("*"))):
                return True
            continue
        named = _IMAGE.fullmatch(rule)
        # A digest determines the image, so a rule for a tag covers that tag only without a digest.
        if (
            named is not None
            and _with_registry(named["repository"]) == repository
            and named["version"] in ("", version)
        ):
            return True
    return False


def _image(ledger: Ledger) -> str | None:
    fetch = ledger.fetch
    return fetch["image"] if fetch is not None and fetch["kind"] == "Container" else None


def _with_registry(repository: str) -> str:
    """Return the repository, or a prefix of one, with its registry."""
    first, slash, rest = repository.partition("/")
    if slash and first == "docker.io" and rest and "/" not in rest:
        return f"docker.io/library/{rest}"
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        return repository
    return f"docker.io/{repository}" if slash else f"docker.io/library/{repository}"
