"""Blocks byte for byte: HS-09 … HS-11, MF-02, MF-05, EV-01, MB-01, and what is not one."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.errors import FormatInvalid, InputError, UnsupportedVersion
from kubothek.odf.problems import Severity
from kubothek.odf.spec.blocks import Block, Dialect, link_of
from kubothek.odf.spec.data_schema import ExtraAttributes
from kubothek.odf.spec.decode import Decoder
from kubothek.odf.spec.encode import RANGES
from kubothek.odf.spec.events import (
    DatasetKind,
    MetadataBlock,
    MetadataEvent,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetPollingSource,
)
from kubothek.odf.spec.fields import Choice, Simple, Table, Type, Union, Vector, fields_of, union_of
from kubothek.odf.spec.identity import DatasetId
from kubothek.odf.spec.manifests import plain_value, read_value
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.sources import ReadStepGeoJson
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.rules import problems
from kubothek.odf.validation.state import ChainState
from tests.odf.later import block_of, empty_event, manifest
from tests.odf.values import SOAK, events, examples
from tests.odf.vectors import GOLDEN, SPEC_039, VECTORS, json_schemas, referred

BLOCKS = VECTORS["blocks"]
NAMES = [f"{vector['name']}-v{vector['manifestVersion']}" for vector in BLOCKS]


@pytest.mark.requirement("HS-09")
@pytest.mark.parametrize("vector", BLOCKS, ids=NAMES)
def test_block_vectors_are_read_and_written_byte_for_byte(vector: dict[str, Any]) -> None:
    block = Block.decode(bytes.fromhex(vector["hex"]))
    expected = read_value(Table(MetadataBlock), vector["block"], "block")
    assert block.content == expected
    assert block.dialect == vector["manifestVersion"]
    assert str(block.hash) == vector["hash"]  # HS-10, HS-11: of the whole manifest
    assert block.canonical
    written = Block.encode(expected, Dialect(vector["manifestVersion"]))
    assert written.data.hex() == vector["hex"]
    assert link_of(written.data) == (expected.sequence_number, expected.prev_block_hash)


@pytest.mark.requirement("EV-01")
def test_block_vectors_cover_all_thirteen_events() -> None:
    members = union_of(MetadataEvent).members
    assert len(members) == 13
    assert {vector["block"]["event"]["kind"] for vector in BLOCKS} == {member.__name__ for member in members}


# --- the published schemas are those of the classes ------------------------------------------------------------------


def _schemas(version: Path) -> dict[str, dict[str, Any]]:
    """The JSON schemas by name, the members of unions as ``Union.Member``."""
    found: dict[str, dict[str, Any]] = {}
    for name, schema in json_schemas(version).items():
        found[name] = schema
        found |= {f"{name}.{member}": each for member, each in schema.get("$defs", {}).items()}
    return found


LATER = {"ddlSchema": "schema", "rawArrowSchema": "schema", "schema": None, "extra": None}
"""Fields of 0.39 by their names in 0.34.1."""


@pytest.mark.requirement("MF-04")
@pytest.mark.parametrize(("version", "tables"), [(GOLDEN, 46), (SPEC_039, 77)], ids=["0.34.1", "0.39"])
def test_block_classes_match_fields_of_json_schemas(version: Path, tables: int) -> None:
    schemas, seen, newest = _schemas(version), set[type](), version is SPEC_039

    def same(known: list[str], published: list[str]) -> bool:
        """What 0.34.1 does not have comes after what it has."""
        return known == published if newest else known[: len(published)] == published

    def check(kind: Type, schema: dict[str, Any]) -> None:
        name = referred(schema) if "$ref" in schema else ""
        schema = schemas[name] if name else schema
        if isinstance(kind, Vector):
            assert schema["type"] == "array"
            check(kind.item, schema["items"])
        elif isinstance(kind, Choice):
            assert [choice.value for choice in kind.values] == schema["enum"]
            assert kind.width == {"int16": 2}.get(schema.get("format", ""), 4)
        elif isinstance(kind, Union):
            refs = [referred(each) for each in schema["oneOf"] if "type" not in each]
            assert same([member.kind for member in kind.members], refs)  # type: ignore[attr-defined]
            for member, ref in zip(kind.members, refs, strict=newest):
                if member not in seen:
                    check(Table(member), schemas[ref if name == "MetadataEvent" else f"{name}.{ref}"])
        elif kind == Table(ExtraAttributes):
            assert schema["codegen"]["flatbuffers"]["mapFormat"] == "json-encoded-string"
        elif isinstance(kind, Table):
            seen.add(kind.record)
            names = {
                field: field.text if newest else LATER.get(field.text, field.text) for field in fields_of(kind.record)
            }
            known = {name: field for field, name in names.items() if name is not None}
            assert same(list(known), list(schema["properties"])), kind
            assert {name for name, field in known.items() if not field.optional} == set(schema["required"]) - {
                "schema" if kind.record is SetDataSchema and not newest else None
            }
            for name, field in known.items():
                check(field.type, schema["properties"][name])
        else:
            assert schema["type"] == {Simple.FLAG: "boolean"}.get(kind, "integer" if kind in RANGES else "string")
            assert kind not in RANGES or schema["format"] == {Simple.INT32: "int32", Simple.UINT32: "uint32"}.get(
                kind, "uint64"
            )

    check(Table(MetadataBlock), schemas["MetadataBlock"])
    assert len(seen) == tables


def _flatc_value(kind: Type, value: Any) -> Any:
    """A value as flatc prints it."""
    if isinstance(kind, Union):
        return _flatc_value(Table(type(value)), value)
    if isinstance(kind, Table):
        if kind == Table(ExtraAttributes):
            return {"entries": value.entries}
        found: dict[str, Any] = {}
        for field in fields_of(kind.record):
            each = getattr(value, field.name)
            if each is None or (not field.optional and each in (0, *getattr(field.type, "values", ())[:1])):
                continue  # absent, or a default, which is not stored
            if isinstance(field.type, Union):
                found[f"{field.name}_type"] = type(each).__name__
            found[field.name] = _flatc_value(field.type, each)
        return found
    if isinstance(kind, Vector):
        if isinstance(kind.item, Union):
            return [{"value_type": type(each).__name__, "value": _flatc_value(kind.item, each)} for each in value]
        return [_flatc_value(kind.item, each) for each in value]
    if isinstance(value, Timestamp):
        data = value.pack()
        names = {"year": (0, 4), "ordinal": (4, 6), "seconds_from_midnight": (8, 12), "nanoseconds": (12, 16)}
        return {name: int.from_bytes(data[start:end], "little") for name, (start, end) in names.items()}
    if isinstance(value, Enum):
        return value.value
    return list(bytes(value)) if isinstance(value, (bytes, Multihash, DatasetId)) else value


def _with_flatc(blocks: list[Block], directory: Path) -> list[Any]:
    """The blocks as the official compiler reads them by the published schema."""
    flatc = shutil.which("flatc", path=str(Path(sys.executable).parent))
    assert flatc, "flatc is part of the test extra"
    files = []
    for number, block in enumerate(blocks):
        files.append(directory / f"{number}.bin")
        manifest = Decoder(block.data)
        position = manifest.follow(0)
        content = manifest.slot(2, position, position - manifest.scalar(("i", 4), position), 10)
        assert content is not None
        files[-1].write_bytes(manifest.bytes_at(manifest.follow(content), "content"))
    command = [flatc, "--json", "--strict-json", "--raw-binary", "--root-type", "MetadataBlock"]
    subprocess.run([*command, "-o", directory, SPEC_039 / "opendatafabric.fbs", "--", *files], check=True)
    return [json.loads(file.with_suffix(".json").read_text()) for file in files]


@pytest.mark.requirement("HS-09")
@examples(4, 50)
@given(data=st.data())
def test_written_block_reads_equal_with_published_flatbuffers_schema(data: st.DataObject) -> None:
    made = data.draw(st.lists(events(), min_size=8, max_size=24))
    contents = [MetadataBlock(system_time=Timestamp(number), sequence_number=number, event=event)
                for number, event in enumerate(made)]  # fmt: skip
    directory = Path("/tmp") / f"kubothek-flatc-{random.getrandbits(64):x}"
    directory.mkdir()
    try:
        blocks = [Block.encode(content, Dialect(2 + number % 2)) for number, content in enumerate(contents)]
        for content, read in zip(contents, _with_flatc(blocks, directory), strict=True):
            assert read == _flatc_value(Table(MetadataBlock), content)
    finally:
        shutil.rmtree(directory)


@pytest.mark.requirement("EV-01")
@examples(60, 1000)
@given(event=events(), dialect=st.sampled_from(Dialect), number=st.integers(0, 2**64 - 1))
def test_random_event_survives_block_round_trip(event: MetadataEvent, dialect: Dialect, number: int) -> None:
    before = Multihash.sha3(b"before")
    content = MetadataBlock(system_time=Timestamp(0), prev_block_hash=before, sequence_number=number, event=event)
    block = Block.decode(Block.encode(content, dialect).data)
    assert block.content == content
    assert block.canonical
    plain = plain_value(Table(MetadataBlock), content)
    assert read_value(Table(MetadataBlock), plain, "block") == content


# --- other dialects, later versions, and bytes that are no block -----------------------------------------------------


@pytest.mark.requirement("EV-01")
def test_block_fields_of_newer_version_are_kept_and_never_rewritten() -> None:
    data = manifest(Codec.METADATA_BLOCK, 3, block_of(14, empty_event))
    block = Block.decode(data)
    assert block.content.event == Unknown(14)
    assert block.data == data
    assert not block.canonical
    with pytest.raises(InputError, match="later version"):
        Block.encode(block.content)
    extended = Block.decode(manifest(Codec.METADATA_BLOCK, 2, block_of(8, empty_event, more=True)))
    assert extended.content.event == SetInfo()
    assert not extended.canonical


def _source(merge: int, order: int, later: bool) -> bytes:
    """A MetadataBlock with a polling source: members and values by number, perhaps with a field of a later version."""
    builder: Any = flatbuffers.Builder()
    text = builder.CreateString("x")
    builder.StartObject(6)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    builder.PrependInt32Slot(5, order, None)
    fetch = builder.EndObject()
    builder.StartObject(3)
    if later:
        builder.PrependUint64Slot(2, 7, 0)
    read = builder.EndObject()
    builder.StartObject(0)
    strategy = builder.EndObject()
    builder.StartObject(9)
    for slot, (tag, value) in ((0, (2, fetch)), (3, (2, read)), (7, (merge, strategy))):
        builder.PrependUint8Slot(slot, tag, 0)
        builder.PrependUOffsetTRelativeSlot(slot + 1, value, 0)
    event = builder.EndObject()
    builder.StartObject(5)
    builder.Prep(4, 16)
    builder.head -= 16
    builder.Bytes[builder.head : builder.head + 16] = Timestamp(0).pack()
    builder.Slot(0)
    builder.PrependUint8Slot(3, 4, 0)
    builder.PrependUOffsetTRelativeSlot(4, event, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


@pytest.mark.requirement("EV-03")
@pytest.mark.parametrize(
    ("merge", "order", "later", "unknown"),
    [
        (1, 1, False, ()),
        (6, 1, False, ("MetadataBlock.event.merge: member 6",)),
        (1, 2, False, ("MetadataBlock.event.fetch.order: value 2",)),
        (1, 1, True, ("MetadataBlock.event.read: field 2",)),
    ],
)
def test_unknown_parts_of_block_are_listed(merge: int, order: int, later: bool, unknown: tuple[str, ...]) -> None:
    block = Block.decode(manifest(Codec.METADATA_BLOCK, 3, _source(merge, order, later)))
    event = block.content.event
    assert isinstance(event, SetPollingSource)
    assert block.unknown == unknown
    assert block.canonical is not bool(unknown)
    assert isinstance(event.merge, Unknown) == (merge == 6)
    assert isinstance(event.fetch, Unknown) == (order == 2)
    assert isinstance(event.read, ReadStepGeoJson)
    noted = [(each.code, each.severity) for each in problems(ChainState(), block) if each.rule == "EV-01"]
    assert noted == [("UnknownParts", Severity.NOTE)] * bool(unknown)
    for member in ("merge", "fetch"):
        if isinstance(getattr(event, member), Unknown):
            shown = plain_value(Table(MetadataBlock), block.content)["event"][member]
            assert shown == {"kind": "Unknown", "tag": getattr(event, member).tag}


@pytest.mark.requirement("EV-03")
def test_unknown_dataset_kind_is_unsupported_version() -> None:
    content = MetadataBlock(
        system_time=Timestamp(0),
        sequence_number=0,
        event=Seed(dataset_id=DatasetId(b"1" * 32), dataset_kind=DatasetKind.DERIVATIVE),
    )
    data = Block.encode(content, Dialect.ALIGNED).data
    ids = bytes(content.event.dataset_id) if isinstance(content.event, Seed) else b""
    places = [at for at in range(data.index(ids)) if data[at : at + 4] == b"\1\0\0\0"]
    found = []
    for at in places:
        try:
            Block.decode(data[:at] + b"\2\0\0\0" + data[at + 4 :])
        except UnsupportedVersion as error:
            found.append(str(error))
        except FormatInvalid:
            continue
    assert found
    assert all("MetadataBlock.event.datasetKind: written by a newer version" in each for each in found)


@pytest.mark.requirement("MF-05")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (manifest(Codec.METADATA_BLOCK, 1, block_of(8, empty_event)), "version 1 is obsolete"),
        (manifest(Codec.DATASET_SNAPSHOT, 2, block_of(8, empty_event)), "kind 0x400001"),
        (manifest(Codec.METADATA_BLOCK, 2, None), "without content"),
        (manifest(Codec.METADATA_BLOCK, 2, b""), "leads to 0, out of 0 bytes"),
        (manifest(Codec.METADATA_BLOCK, 2, block_of(0, empty_event)), "MetadataBlock.event is missing"),
        (manifest(Codec.METADATA_BLOCK, 2, block_of(3, empty_event)), "MetadataBlock.event.datasetId is missing"),
        (b"", "out of 0 bytes"),
    ],
)
def test_block_with_other_manifest_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatInvalid, match=message):
        Block.decode(data)


@pytest.mark.requirement("MF-05")
def test_block_with_newer_manifest_raises_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersion, match="manifest version 4, 2 and 3 are read"):
        Block.decode(manifest(Codec.METADATA_BLOCK, 4, block_of(8, empty_event)))


@pytest.mark.requirement("GR-10")
@pytest.mark.parametrize("vector", BLOCKS[14:20], ids=NAMES[14:20])
def test_damaged_block_raises_format_error(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    whole = Block.decode(data)
    for length in range(0, len(data), 1 if SOAK else 3):
        with pytest.raises(FormatInvalid):
            Block.decode(data[:length])
    for place in range(len(data)):
        for bit in range(8) if SOAK else (place % 8,):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            try:
                found = Block.decode(bytes(changed))
            except (FormatInvalid, UnsupportedVersion):
                continue
            assert found.hash != whole.hash


@pytest.mark.requirement("GR-10")
def test_block_with_shared_offsets_cannot_amplify_size() -> None:
    """A few thousand offsets to one large text would be gigabytes."""
    builder: Any = flatbuffers.Builder()
    text = builder.CreateString("x" * 10_000)
    builder.StartVector(4, 10_000, 4)
    for _ in range(10_000):
        builder.PrependUOffsetTRelative(text)
    keywords = builder.EndVector()
    builder.StartObject(2)
    builder.PrependUOffsetTRelativeSlot(1, keywords, 0)
    builder.Finish(builder.EndObject())
    with pytest.raises(FormatInvalid, match="more than the buffer"):
        Decoder(bytes(builder.Output())).root(SetInfo)


@pytest.mark.requirement("MB-01")
def test_block_content_beyond_format_limits_is_refused() -> None:
    content = MetadataBlock(system_time=Timestamp(0), sequence_number=2**64, event=SetInfo())
    with pytest.raises(InputError, match="sequenceNumber 18446744073709551616"):
        Block.encode(content)
    with pytest.raises(InputError):
        Block.encode(dataclasses.replace(content, sequence_number=0, event=SetAttachments(attachments=Unknown(2))))
    with pytest.raises(TypeError):
        Seed()  # type: ignore[call-arg]
