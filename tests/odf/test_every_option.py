"""Every event with every option set and unset, as the published JSON schemas have them (EV-01, MF-01, MF-04, HS-09).

Nothing here is drawn from the classes: manifests are made from the schemas and written by PyYAML, and blocks are read
by the code that flatc generates from the published FlatBuffers schema.
"""

from __future__ import annotations

import base64
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from kubothek.errors import FormatInvalid
from kubothek.odf.spec import plain_yaml
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.events import MetadataEvent
from kubothek.odf.spec.fields import union_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.manifests import plain_value, read_event, read_manifest, write_block
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.timestamps import Timestamp
from tests.odf.making import KEY
from tests.odf.vectors import GOLDEN

pytestmark = pytest.mark.slow

Schema = dict[str, Any]
HASH = str(Multihash.sha3(b"x"))
TEXTS = {
    "multihash": [HASH, str(Multihash(Codec.ARROW0_SHA3_256, b"\x07" * 32))],
    "dataset-id": [str(KEY.dataset_id)],
    "date-time": ["2050-01-02T03:04:05.123456789Z", "0001-01-01T00:00:00Z", "2024-12-31T23:59:59.500Z"],
    "flatbuffers": [base64.b64encode(bytes(range(256))).decode(), ""],
    None: ["Grüße, 日本 🛩: # 'x' \"y\"\t\x85\ufeff", "", "off\n1e3\n", "012"],
}
NUMBERS = [0, 1, (1 << 53) + 1, (1 << 63) - 1, (1 << 64) - 1]


@cache
def schemas() -> dict[str, Schema]:
    return {path.stem: json.loads(path.read_text()) for path in (GOLDEN / "schemas").rglob("*.json")}


def followed(schema: Schema, root: Schema) -> tuple[Schema, Schema]:
    """What a reference means, and where the references in that start."""
    ref = schema.get("$ref", "")
    if ref.startswith("/schemas/"):
        found = schemas()[ref.removeprefix("/schemas/")]
        return followed(found, found)
    return (root["$defs"][ref.removeprefix("#/$defs/")], root) if ref else (schema, root)


def members(schema: Schema, root: Schema) -> Iterator[tuple[str, Schema, Schema]]:
    for each in schema["oneOf"]:
        yield each["$ref"].rpartition("/")[2], *followed(each, root)


def values(schema: Schema, root: Schema) -> list[Any]:
    """Values of a schema that between them have every member, and every field present and absent."""
    schema, root = followed(schema, root)
    if "oneOf" in schema:
        return [{"kind": kind, **value} for kind, each, at in members(schema, root) for value in values(each, at)]
    if "enum" in schema:
        return list(schema["enum"])
    match schema["type"]:
        case "boolean":
            return [True, False]
        case "integer":
            return NUMBERS
        case "array":
            items = values(schema["items"], root)
            return [items, [], items[-1:]]
        case "string":
            return TEXTS.get(schema.get("format"), TEXTS[None])
    each = {name: values(kind, root) for name, kind in schema.get("properties", {}).items()}
    required = {name: each[name][0] for name in schema.get("required", ())}
    everything = {name: found[0] for name, found in each.items()}
    varied = [{**required, name: value} for name, found in each.items() for value in found]
    return [everything, required, *varied]


def events() -> list[Any]:
    schema = schemas()["MetadataEvent"]
    return values(schema, schema)


# --- the code that flatc generates ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Imports a module of the generated code."""
    directory = tmp_path_factory.mktemp("generated")
    flatc = shutil.which("flatc", path=str(Path(sys.executable).parent))
    assert flatc, "flatc is part of the test extra"
    command = [flatc, "--python", "--gen-object-api", "-o", str(directory), str(GOLDEN / "opendatafabric.fbs")]
    subprocess.run(command, check=True)
    before = set(sys.modules)
    sys.path.insert(0, str(directory))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(directory))
        for name in set(sys.modules) - before:
            del sys.modules[name]


def plain(schema: Schema, root: Schema, found: Any) -> Any:
    """What the generated code read, as a manifest has it."""
    schema, root = followed(schema, root)
    if "oneOf" in schema:
        for kind, each, at in members(schema, root):
            if type(found).__name__ in (f"{kind}T", f"{schema['$id'].rpartition('/')[2]}{kind}T"):
                return {"kind": kind, **plain(each, at, found)}
        raise AssertionError(f"{type(found).__name__} is none of {[kind for kind, *_ in members(schema, root)]}")
    if "enum" in schema:
        return schema["enum"][found]
    match schema["type"]:
        case "array":
            items = (each.value if type(each).__name__.endswith("WrapperT") else each for each in found)
            return [plain(schema["items"], root, each) for each in items]
        case "string":
            return _text(schema.get("format"), found)
        case "object":
            fields = schema.get("properties", {}).items()
            there = {name: getattr(found, name) for name, _ in fields}
            return {name: plain(kind, root, there[name]) for name, kind in fields if there[name] is not None}
    return found


def _text(form: str | None, found: Any) -> str:
    if form == "date-time":
        moment = (found.year, found.ordinal, found.secondsFromMidnight, found.nanoseconds)
        raw = b"".join(n.to_bytes(size, "little") for n, size in zip(moment, (4, 4, 4, 4), strict=True))
        return str(Timestamp.unpack(raw, 0))
    if form == "flatbuffers":
        return base64.b64encode(bytes(found)).decode()
    if form == "multihash":
        return str(Multihash.from_bytes(bytes(found)))
    if form == "dataset-id" and not isinstance(found, bytes):
        return str(DatasetId.from_bytes(bytes(found)))
    text = found.decode() if isinstance(found, bytes) else bytes(found).decode()
    return str(text)


class _Dumper(yaml.SafeDumper):
    """PyYAML's, with all texts quoted: its YAML is 1.1, where other texts are numbers. Without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


def _manifest(content: Any) -> str:
    manifest = {"kind": "MetadataBlock", "version": 2, "content": content}
    return str(yaml.dump(manifest, Dumper=_Dumper, allow_unicode=True))


def read_by_generated_code(generated: Any, block: Block) -> Any:
    manifest: ModuleType = generated("Manifest")
    content: ModuleType = generated("MetadataBlock")
    outer = manifest.ManifestT.InitFromPackedBuf(block.data)
    assert (outer.kind, outer.version) == (0x400000, block.dialect)
    schema = schemas()["MetadataBlock"]
    return plain(schema, schema, content.MetadataBlockT.InitFromPackedBuf(bytes(outer.content)))


def test_ev_01_every_option_comes_through_manifest_and_block(generated: Any) -> None:
    made = events()
    assert len(made) > 400
    assert len({event["kind"] for event in made}) == 13
    for number, event in enumerate(made):
        content = {"systemTime": "2050-01-02T03:04:05.000000006Z", "sequenceNumber": number, "event": event}
        content |= {"prevBlockHash": HASH} if number else {}
        read = read_manifest(_manifest(content)).content
        for dialect in Dialect:
            block = Block.encode(read, dialect)
            assert read_by_generated_code(generated, block) == content
            again = Block.decode(block.data)
            assert (again.content, again.canonical) == (read, True)
        written = plain_yaml.load(write_block(read))
        assert written == {"kind": "MetadataBlock", "version": 2, "content": content}


def test_mf_04_what_a_schema_requires_or_does_not_know_is_refused() -> None:
    """One field too few, one too many, one of another type, for every object of the schemas."""
    for event in events():
        assert plain_value(union_of(MetadataEvent), read_event(event))["kind"] == event["kind"]
        for broken in _broken(event):
            with pytest.raises(FormatInvalid, match="event"):
                read_event(broken)


def _broken(event: Any) -> Iterator[Any]:
    yield {**event, "unknown": 1}
    for name, value in event.items():
        if name != "kind":
            yield {**event, name: {"no": "such"}}
            if isinstance(value, dict):
                yield {**event, name: {**value, "unknown": 1}}
    schema, _ = next((each, at) for kind, each, at in members(schemas()["MetadataEvent"], {}) if kind == event["kind"])
    for name in schema.get("required", ()):
        yield {key: value for key, value in event.items() if key != name}
