"""Labels and annotations of Open Data Fabric resources (RFC-018), as those of a Dataset in a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kubothek.odf.spec.resources import Headers

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KEY: Final = re.compile(rf"((?=[^/]{{1,253}}/){_PART}(\.{_PART})*/)?{_NAME}")
_LABEL: Final = re.compile(rf"({_NAME})?")
_BYTES: Final = 256 << 10
"""The most bytes of all annotations of an object."""


def marks_in_cluster(headers: Headers) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the labels and annotations that an object of Kubernetes can have, and a message on each other one."""
    marks, left = dict[str, dict[str, str]](), list[str]()
    for resource, kept in headers.items():
        for part in ("labels", "annotations"):
            size = 0
            for key, value in kept.get(part, {}).items():
                size += len(key.encode()) + len(str(value).encode())
                if why := next(_faults(resource, part, key, value, size), None):
                    left.append(f"not in the manifest: {part.removesuffix('s')} {key!r} of the {resource}: {why}")
                else:
                    marks.setdefault(part, {})[key] = value
    return marks, left


def _faults(resource: str, part: str, key: str, value: Any, size: int) -> Iterator[str]:
    if resource != "Dataset":
        yield "a Source is no object of the cluster"
    if not _KEY.fullmatch(key):
        yield "Kubernetes has keys of the form [domain/]name, the name with at most 63 of A-Z, a-z, 0-9, '-', '_', '.'"
    if not isinstance(value, str):
        yield "Kubernetes has texts as values only"
    elif part == "labels" and not _LABEL.fullmatch(value):
        yield "Kubernetes has values of labels with at most 63 of A-Z, a-z, 0-9, '-', '_', '.'"
    if part == "annotations" and size > _BYTES:
        yield "Kubernetes has at most 256 KiB of annotations"
