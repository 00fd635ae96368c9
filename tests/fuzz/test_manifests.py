"""Bytes of manifests, as `kubothek lint` reads them: resources, or problems with file and line."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from kubothek.cli.lint import check
from kubothek.local.documents import ManifestError
from tests.fuzz.harness import fuzz

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SEEDS = [data for file in sorted((ROOT / "examples").rglob("*.yaml")) if b"kubothek.io/" in (data := file.read_bytes())]
SEEDS.append(
    b"apiVersion: kubothek.io/v1alpha1\nkind: Dataset\nmetadata: &m {name: x, labels: *m}\n"
    b"spec: {a: !!int '', b: !!bool maybe, c: !!float x, d: .nan, e: 0x_, f: 1:2:3, ? [g] : 1, <<: {h: 1}}\n"
)
VALUES: tuple[Any, ...] = (
    None,
    [],
    {},
    "",
    "x" * 300,
    "é",
    "1 AND",
    "../..",
    True,
    0,
    -1,
    1 << 63,
    1e300,
    [[]],
    {"": None},
)


def lint(data: bytes) -> None:
    """Raise ManifestError for problems, AssertionError for one without a place."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "m.yaml"
        file.write_bytes(data)
        _, mistakes = check([file])
        for mistake in mistakes:
            assert mistake.file == str(file), mistake
            assert mistake.message.encode(), mistake
            assert "\n" not in mistake.message, mistake
        if any(mistake.level == "error" for mistake in mistakes):
            raise ManifestError([])


def changed(random: Random, data: bytes) -> bytes:
    """Return well-formed manifests with one field changed, removed, or in the place of another."""
    try:
        documents = [each for each in yaml.load_all(data, yaml.CSafeLoader) if each]
    except Exception:  # noqa: BLE001 - the seed of odd YAML
        return data
    document = random.choice(documents)
    places = list(_places(document))
    container, key = random.choice(places)
    match random.randrange(4):
        case 0:
            del container[key]
        case 1:
            other, there = random.choice(places)
            container[key] = yaml.safe_load(yaml.safe_dump(other[there]))
        case _:
            container[key] = random.choice(VALUES)
    return yaml.dump_all(documents, Dumper=yaml.CSafeDumper).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def test_fuzzed_manifest_gives_result_or_named_error() -> None:
    # DuckDB reserves address space and crashes without it; resident memory is what counts.
    report = fuzz(lint, SEEDS, variants=60, mutate=changed, memory=8 << 30).check()
    assert report.peak < 256 << 20
    assert report.results
    assert report.named
