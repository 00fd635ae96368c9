"""Every event with every option set and unset, as the published JSON schemas have them (EV-01, MF-01, MF-04, HS-09).

Nothing here is drawn from the classes: manifests are made from the schemas and written by PyYAML, and blocks are read
by the code that flatc generates from the published FlatBuffers schema; all that for each published version.
"""

from __future__ import annotations

import base64
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flatbuffers
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
from kubothek.odf.spec.versions import SpecVersion
from tests.odf.making import KEY
from tests.odf.vectors import GOLDEN, SPEC_039, json_schemas, referred

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
NUMBERS = {
    "uint64": [0, 1, (1 << 53) + 1, (1 << 63) - 1, (1 << 64) - 1],
    "uint32": [0, 1, (1 << 32) - 1],
    "int32": [0, -1, -(1 << 31), (1 << 31) - 1],
}
ATTRIBUTES = [
    {"kamu.dev/archetype": "x", "opendatafabric.org/type": {"kind": "ObjectLink", "linkType": {"kind": "Multihash"}}},
    {},
    {"a.b/c_d-E": ["é", 1, 1.5, None, True, '\u2028 "', {"z": 1, "a": {}}]},
]


@dataclass(frozen=True)
class Published:
    """The schemas of a version of the specification."""

    version: SpecVersion
    directory: Path
    dialect: Dialect

    def followed(self, schema: Schema, root: Schema) -> tuple[Schema, Schema]:
        """What a reference means, and where the references in that start."""
        ref = (schema["allOf"][1] if "allOf" in schema else schema).get("$ref", "")
        if not ref:
            return schema, root
        if ref.startswith("#/$defs/"):
            return root["$defs"][ref.removeprefix("#/$defs/")], root
        found = json_schemas(self.directory)[referred(schema)]
        return self.followed(found, found)

    def members(self, schema: Schema, root: Schema) -> Iterator[tuple[str, Schema, Schema]]:
        for each in schema["oneOf"]:
            if "type" not in each:
                yield referred(each), *self.followed(each, root)

    def values(self, schema: Schema, root: Schema, depth: int = 0) -> list[Any]:
        """Values of a schema that between them have every member, and every field present and absent."""
        within, (schema, root) = root, self.followed(schema, root)
        if schema.get("$id", "").endswith("/DataSchema") and not within["$id"].endswith("/SetDataSchema"):
            return [COLUMNS]  # every option of it is in SetDataSchema
        if "oneOf" in schema:
            if schema.get("$id", "").endswith("/DataType"):
                if depth == DEPTH:
                    return [{"kind": "Int8"}]
                depth += 1
            found = list(self.members(schema, root))
            return [{"kind": kind, **value} for kind, each, at in found for value in self.values(each, at, depth)]
        if "enum" in schema:
            return list(schema["enum"])
        if "codegen" in schema:
            return ATTRIBUTES
        match schema["type"]:
            case "boolean":
                return [True, False]
            case "integer":
                return NUMBERS[schema["format"]]
            case "array":
                items = self.values(schema["items"], root, depth)
                return [items, [], items[-1:]]
            case "string":
                return TEXTS.get(schema.get("format"), TEXTS[None])
        each = {name: self.values(kind, root, depth) for name, kind in schema.get("properties", {}).items()}
        required = {name: each[name][0] for name in schema.get("required", ())}
        everything = {name: found[0] for name, found in each.items()}
        varied = [{**required, name: value} for name, found in each.items() for value in found]
        return [everything, required, *varied]

    def events(self) -> list[Any]:
        schema = json_schemas(self.directory)["MetadataEvent"]
        return self.values(schema, schema)


COLUMNS = {"fields": [{"name": "id", "type": {"kind": "Option", "inner": {"kind": "String"}}}]}
DEPTH = 1
"""The most types that are within each other."""
VERSIONS = [
    Published(SpecVersion.V0_34, GOLDEN, Dialect.UNALIGNED),
    Published(SpecVersion.V0_39, SPEC_039, Dialect.ALIGNED),
]


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda each: each.version)
def published(request: pytest.FixtureRequest) -> Published:
    found: Published = request.param
    return found


# --- the code that flatc generates ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated(published: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Imports a module of the generated code."""
    directory = tmp_path_factory.mktemp("generated")
    flatc = shutil.which("flatc", path=str(Path(sys.executable).parent))
    assert flatc, "flatc is part of the test extra"
    command = [
        flatc,
        "--python",
        "--gen-object-api",
        "-o",
        str(directory),
        str(published.directory / "opendatafabric.fbs"),
    ]
    subprocess.run(command, check=True)
    before = set(sys.modules)
    sys.path.insert(0, str(directory))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(directory))
        for name in set(sys.modules) - before:
            del sys.modules[name]


def plain(published: Published, schema: Schema, root: Schema, found: Any) -> Any:
    """What the generated code read, as a manifest has it."""
    schema, root = published.followed(schema, root)
    if "oneOf" in schema:
        for kind, each, at in published.members(schema, root):
            if type(found).__name__ in (f"{kind}T", f"{schema['$id'].rpartition('/')[2]}{kind}T"):
                return {"kind": kind, **plain(published, each, at, found)}
        raise AssertionError(
            f"{type(found).__name__} is none of {[kind for kind, *_ in published.members(schema, root)]}"
        )
    if "enum" in schema:
        return schema["enum"][found]
    if "codegen" in schema:
        return json.loads(found.entries)
    match schema["type"]:
        case "array":
            items = (each.value if type(each).__name__.endswith("WrapperT") else each for each in found)
            return [plain(published, schema["items"], root, each) for each in items]
        case "string":
            return _text(schema.get("format"), found)
        case "object":
            fields = schema.get("properties", {}).items()
            there = {name: getattr(found, name) for name, _ in fields}
            return {name: plain(published, kind, root, there[name]) for name, kind in fields if there[name] is not None}
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


def _manifest(content: Any, dialect: Dialect) -> str:
    manifest = {"kind": "MetadataBlock", "version": int(dialect), "content": content}
    return str(yaml.dump(manifest, Dumper=_Dumper, allow_unicode=True))


def read_by_generated_code(published: Published, generated: Any, block: Block) -> Any:
    manifest: ModuleType = generated("Manifest")
    content: ModuleType = generated("MetadataBlock")
    outer = manifest.ManifestT.InitFromPackedBuf(block.data)
    assert (outer.kind, outer.version) == (0x400000, block.dialect)
    schema = json_schemas(published.directory)["MetadataBlock"]
    return plain(published, schema, schema, content.MetadataBlockT.InitFromPackedBuf(bytes(outer.content)))


def written_by_generated_code(generated: Any, block: Block) -> Block:
    """The block as the generated code writes it: the same content in other bytes."""
    manifest, content = generated("Manifest").ManifestT, generated("MetadataBlock").MetadataBlockT
    outer = manifest.InitFromPackedBuf(block.data)
    outer.content = list(_packed(content.InitFromPackedBuf(bytes(outer.content))))
    return Block.decode(_packed(outer))


def _packed(found: Any) -> bytes:
    builder = flatbuffers.Builder()
    builder.Finish(found.Pack(builder))
    return bytes(builder.Output())


@pytest.mark.requirement("EV-01")
def test_event_with_every_option_survives_manifest_and_block(published: Published, generated: Any) -> None:
    made = published.events()
    assert len(made) > 400
    assert len({event["kind"] for event in made}) == 13
    for number, event in enumerate(made):
        content = {"systemTime": "2050-01-02T03:04:05.000000006Z", "sequenceNumber": number, "event": event}
        content |= {"prevBlockHash": HASH} if number else {}
        manifest = read_manifest(_manifest(content, published.dialect))
        read = manifest.content
        for dialect in Dialect:
            block = Block.encode(read, dialect)
            assert read_by_generated_code(published, generated, block) == content
            again = Block.decode(block.data)
            assert (again.content, again.canonical) == (read, True)
        assert written_by_generated_code(generated, block).content == read
        written = plain_yaml.load(write_block(read, published.dialect, published.version))
        assert written == {"kind": "MetadataBlock", "version": int(published.dialect), "content": content}


@pytest.mark.requirement("MF-04")
def test_event_with_missing_or_unknown_field_is_refused(published: Published) -> None:
    """One field too few, one too many, one of another type, for every object of the schemas."""
    for event in published.events():
        assert plain_value(union_of(MetadataEvent), read_event(event))["kind"] == event["kind"]
        for broken in _broken(published, event):
            with pytest.raises(FormatInvalid, match="event"):
                read_event(broken)


def _broken(published: Published, event: Any) -> Iterator[Any]:
    yield {**event, "unknown": 1}
    for name, value in event.items():
        if name != "kind":
            yield {**event, name: {"no": "such"}}
            if isinstance(value, dict) and name not in ("extra", "schema"):
                yield {**event, name: {**value, "unknown": 1}}
    events = json_schemas(published.directory)["MetadataEvent"]
    schema, _ = next((each, at) for kind, each, at in published.members(events, events) if kind == event["kind"])
    for name in schema.get("required", ()):
        if event["kind"] != "SetDataSchema":
            yield {key: value for key, value in event.items() if key != name}
