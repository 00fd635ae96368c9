"""The generated CustomResourceDefinitions, as files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubothek.api.crds import crd, file_name, render
from kubothek.api.kinds import KINDS
from kubothek.api.meta import Resource

ROOT = Path(__file__).resolve().parents[2]
SIZE_LIMIT = 200_000
"""Client-side apply keeps the whole object in an annotation of at most 256 KiB."""

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.mark.parametrize("directory", ["crds", "charts/kubothek/files/crds"])
@kinds
def test_crd_files_match_models(kind: type[Resource], directory: str) -> None:
    assert (ROOT / directory / file_name(kind)).read_text() == render(kind), "run `make crds`"


def test_crd_directory_has_no_file_of_removed_kind() -> None:
    assert {file.name for file in (ROOT / "crds").iterdir()} == {file_name(kind) for kind in KINDS.values()}


@pytest.mark.slow
def test_crd_generation_is_reproducible(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kubothek.api.crds", "--out", str(tmp_path)]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        file_name(kind): render(kind) for kind in KINDS.values()
    }


@kinds
def test_crd_fits_client_side_apply_limit(kind: type[Resource]) -> None:
    assert len(render(kind).encode()) < SIZE_LIMIT


@kinds
def test_crd_spec_fields_all_have_descriptions(kind: type[Resource]) -> None:
    spec = _schema(kind)["properties"]["spec"]
    undescribed = [path for path, schema in _fields(spec, "spec") if not schema.get("description")]
    assert undescribed == []


def test_dataset_fields_all_state_effect_of_edit() -> None:
    spec = _schema(KINDS["Dataset"])["properties"]["spec"]
    classes = ("Immutable.", "A job on edit.", "Takes effect at", "A checked contract:")
    of_layout = dict(_fields(spec["properties"]["table"], "spec.table"))
    fields = {f"spec.{name}": field for name, field in spec["properties"].items() if name != "table"}
    fields |= {path: field for path, field in of_layout.items() if path.count(".") == 2 and "[" not in path}
    assert len(fields) > 9
    assert [path for path, field in fields.items() if not field["description"].startswith(classes)] == []


@kinds
def test_crd_schema_is_structural(kind: type[Resource]) -> None:
    """No references, no unions beyond int-or-string, nothing unknown kept but pod templates, a type everywhere."""
    for path, schema in _fields(_schema(kind), ""):
        assert not schema.keys() & {"$ref", "$defs", "allOf", "oneOf", "not", "const", "title"}, path
        if schema.get("x-kubernetes-int-or-string"):
            continue
        assert "anyOf" not in schema, path
        assert "type" in schema, path
        kept = schema.get("x-kubernetes-preserve-unknown-fields", False)
        assert kept == path.startswith((".spec.podTemplate.driver", ".spec.podTemplate.executor")), path


@kinds
def test_crd_spec_fields_are_all_bounded(kind: type[Resource]) -> None:
    """Without bounds the API server must assume the worst of every rule that looks at a field. It knows how long a
    date-time can be.
    """
    for path, schema in _fields(_schema(kind)["properties"]["spec"], "spec"):
        if schema.get("type") == "string":
            assert schema.keys() & {"maxLength", "enum"} or schema.get("format") == "date-time", path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


@kinds
def test_crd_status_default_is_not_current(kind: type[Resource]) -> None:
    assert _schema(kind)["properties"]["status"]["default"] == {"observedGeneration": -1}


def _schema(kind: type[Resource]) -> dict[str, Any]:
    schema: dict[str, Any] = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from _fields(field, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], f"{path}{{}}")
