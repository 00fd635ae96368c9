"""The manifests of the documentation and of the examples, all of them, found where people find them.

A block of YAML in a page is a whole manifest or several. What is only a part of one says so where the block begins,
after the word ``yaml``: ``part=Dataset`` (a part of a Dataset, or documents of kinds that they name), ``values`` (the
chart's), ``prometheus``, ``tokens`` (of ``kubothek serve``). GitHub shows such a block as any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[1]
API = "kubothek.io/v1alpha1"

OTHER = ("values", "prometheus", "tokens")
"""Marks of what no API server takes."""

_STORE = {"storeRef": {"name": "lake"}}
_LEDGER = {"metadata": [{"kind": "AddPushSource", "sourceName": "default", "read": {"kind": "NdJson"}}]}
_LEDGER["metadata"][0] |= {"merge": {"kind": "Append"}}
_CONTAINER = {
    "name": "main",
    "image": "example.org/main",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
_POD = {"serviceAccountName": "kubothek-job", "containers": [_CONTAINER]}
_POLL = {"kind": "SetPollingSource", "read": {"kind": "Csv", "header": True}, "merge": {"kind": "Append"}}


def _of_kubothek(kind: str, **spec: Any) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": "whole"}, "spec": spec}


WHOLES: Mapping[str, Json] = {
    "ObjectStore": _of_kubothek("ObjectStore", url="s3://lake/warehouse"),
    "Dataset": _of_kubothek("Dataset", **_STORE),
    "Ledger": _of_kubothek("Dataset", **_STORE, ledger=_LEDGER),
    "Commit": _of_kubothek("Commit"),
    "Query": _of_kubothek("Query"),
    "GCPolicy": _of_kubothek("GCPolicy"),
    "Engine": _of_kubothek("Engine"),
    "Pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "whole"}, "spec": _POD},
}
"""What a part is put into, by what the part is called."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The YAML documents of one file, or of one block of a page."""

    place: str
    documents: tuple[Any, ...]
    mark: str = ""

    def manifests(self) -> tuple[Json, ...]:
        """Whole manifests: parts are put into what they are parts of."""
        if not self.mark:
            return self.documents
        part = self.mark.removeprefix("part=")
        return tuple(_whole(part, document) for document in self.documents)


def _whole(part: str, given: Json) -> Json:
    if part == "fetch":
        return _of_kubothek("Dataset", **_STORE, ledger={"metadata": [_POLL | given]})
    if part == "Pod":
        given = {"spec": given}
    return merged(WHOLES[given.get("kind", part)], given)


def merged(under: Json, over: Json) -> Json:
    """Objects become one, of anything else that of ``over`` stays."""
    both = under.keys() & over.keys()
    deep = {key: merged(under[key], over[key]) for key in both if isinstance(under[key], dict)}
    return under | over | deep


def pages() -> list[Path]:
    """Every page of documentation, of decisions, and of the examples."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
        + [ROOT / name / "README.md" for name in ("spark-images", "benchmarks")]
    )


def blocks() -> Iterator[Documents]:
    """Every block of YAML in a page, with its mark."""
    for page in pages():
        text = page.read_text()
        for block in re.finditer(r"^```yaml[ \t]*(.*)\n((?:.*\n)*?)```", text, re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 1
            documents = tuple(document for document in yaml.safe_load_all(block[2]) if document)
            yield Documents(f"{page.relative_to(ROOT)}:{line}", documents, block[1].strip())


def examples() -> Iterator[Documents]:
    """Every file of manifests in ``examples/``."""
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        documents = tuple(document for document in yaml.safe_load_all(file.read_text()) if document)
        yield Documents(str(file.relative_to(ROOT)), documents)
