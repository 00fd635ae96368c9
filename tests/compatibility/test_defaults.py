"""Defaults of the CRDs beside an operator of an earlier commit, which refuses fields that it does not know.

CRDs are upgraded before the operator, and operators of several versions can share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.compatibility.former import extract_former
from tests.testcluster.paths import CHECKOUT


def unknown_defaults(former: dict[str, Any], present: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the fields that the API server adds to objects which the former schema allows, and it does not know."""
    if "items" in present and "items" in former:
        yield from unknown_defaults(former["items"], present["items"], f"{path}[]")
    known = former.get("properties", {})
    for name, schema in present.get("properties", {}).items():
        if name in known:
            yield from unknown_defaults(known[name], schema, f"{path}.{name}")
        elif known and "default" in schema:
            yield f"{path}.{name}"


def test_defaults_of_crds_add_no_field_that_a_former_operator_refuses(tmp_path: Path) -> None:
    extract_former(tmp_path, "crds")
    found: list[str] = []
    for file in sorted((tmp_path / "crds").glob("kubothek.io_*.yaml")):
        former, present = (
            yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            for path in (file, CHECKOUT / "crds" / file.name)
        )
        found += unknown_defaults(former, present, f"{file.stem}.spec")
    assert found == []
