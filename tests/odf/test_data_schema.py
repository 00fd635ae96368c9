"""ODF schemas (RFC-016): conversion from and to Arrow, evolution, and the form in which a chain goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import FormatInvalid, UnsupportedVersion
from kubothek.odf.dataset.definition import Chain
from kubothek.odf.dataset.extension import Extension
from kubothek.odf.dataset.moving import table_of
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.data_schema import (
    DataField,
    DataSchema,
    DataType,
    DataTypeDate,
    DataTypeDecimal,
    DataTypeDuration,
    DataTypeInt8,
    DataTypeList,
    DataTypeMap,
    DataTypeOption,
    DataTypeString,
    DataTypeStruct,
    DataTypeTimestamp,
    ExtraAttributes,
    TimeUnit,
)
from kubothek.odf.spec.events import MetadataEvent, SetDataSchema
from kubothek.odf.spec.logical_types import BUFFER, DATE, DECIMAL, from_arrow, to_arrow
from kubothek.odf.spec.manifests import write_block
from kubothek.odf.spec.needed_version import needed_by_block
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.spec.versions import SpecVersion
from kubothek.odf.validation.state import ChainState
from tests.odf.chains import ROOT, block, chain, found, seeded
from tests.odf.making import NOON, SCHEMA

NESTED = pa.struct([pa.field("a", pa.large_string()), pa.field("b", pa.int8(), False)])
TYPES: list[pa.DataType] = [
    pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.date32(), pa.date64(), pa.decimal128(38, 2),
    pa.decimal256(10, 2), pa.decimal256(50, -3), pa.duration("s"), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
    pa.time64("ns"), pa.timestamp("us", "Europe/Berlin"), pa.list_(pa.int8()), pa.large_list(pa.int8()),
    pa.list_view(pa.int8()), pa.large_list_view(pa.int8()), pa.list_(pa.int8(), 3), pa.map_(pa.string(), pa.int8()),
    NESTED, pa.list_(pa.field("item", NESTED, False)),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_arrow_type_comes_back_from_its_odf_type(kind: pa.DataType) -> None:
    fields: list[Any] = [pa.field("x", kind)]
    if kind != pa.null():
        fields.append(pa.field("y", kind, False))
    made = from_arrow(pa.schema(fields))
    back = to_arrow(made)
    assert back.equals(pa.schema(fields), check_metadata=True)
    assert from_arrow(back) == made
    assert isinstance(made.fields[0].type, DataTypeOption)


def test_encoding_is_an_attribute_only_where_readers_cannot_assume_it() -> None:
    plain = from_arrow(pa.schema([("a", pa.string()), ("b", pa.list_(pa.int8())), ("c", pa.decimal128(9, 1))]))
    assert [field.extra for field in plain.fields] == [None] * 3
    special = from_arrow(
        pa.schema(
            [("a", pa.string_view()), ("b", pa.large_list(pa.int8())), ("c", pa.date64()), ("d", pa.decimal256(9, 1))]
        )
    )
    assert [json.loads(field.extra.entries) for field in special.fields if field.extra] == [
        {BUFFER: {"kind": "View", "offsetBitWidth": 32}},
        {BUFFER: {"kind": "Contiguous", "offsetBitWidth": 64}},
        {DATE: {"unit": "Millisecond"}},
        {DECIMAL: {"bitWidth": 256}},
    ]


NESTED_JSON = json.loads("[" * 50 + "]" * 50)


def typed(kind: DataType, **extra: Any) -> DataSchema:
    return DataSchema(fields=(DataField(name="x", type=kind, extra=attributes(**extra) if extra else None),))


def attributes(**extra: Any) -> ExtraAttributes:
    return ExtraAttributes(entries=json.dumps({key.replace("__", "/").replace("_", "."): extra[key] for key in extra}))


def test_absent_units_and_time_zones_have_the_defaults_of_the_schemas() -> None:
    assert to_arrow(typed(DataTypeTimestamp())).field(0).type == pa.timestamp("ms", "UTC")
    assert to_arrow(typed(DataTypeDuration())).field(0).type == pa.duration("ms")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (typed(DataTypeOption(inner=DataTypeOption(inner=DataTypeInt8()))), "Option within an Option"),
        (typed(DataTypeDecimal(precision=77, scale=0)), "77 digits"),
        (typed(DataTypeDecimal(precision=39, scale=0), arrow_apache_org__decimalEncoding={"bitWidth": 128}), "39"),
        (typed(DataTypeDecimal(precision=9, scale=200)), "scale 200"),
        (typed(DataTypeList(item_type=DataTypeInt8(), fixed_length=1 << 31)), "fixed length"),
        (typed(DataTypeString(), arrow_apache_org__bufferEncoding={"kind": "RunEnd"}), "bufferEncoding"),
        (typed(DataTypeString(), arrow_apache_org__bufferEncoding="x"), "bufferEncoding"),
        (typed(DataTypeString(), arrow_apache_org__bufferEncoding={"kind": "View", "offsetBitWidth": 64}), "View"),
        (typed(DataTypeDate(), arrow_apache_org__dateEncoding=[]), "dateEncoding"),
        (DataSchema(fields=(DataField(name="x", type=DataTypeInt8(), extra=ExtraAttributes(entries="{")),)), "JSON"),
        (DataSchema(fields=(DataField(name="x", type=DataTypeInt8(), extra=ExtraAttributes(entries="[]")),)), "object"),
        (typed(DataTypeInt8(), x__y=NESTED_JSON), "nested deeper than 40"),
    ],
)  # fmt: skip
def test_schema_that_contradicts_itself_is_named(schema: DataSchema, message: str) -> None:
    with pytest.raises(FormatInvalid, match=f"column 'x': .*{message}"):
        to_arrow(schema)
    event = SetDataSchema(schema=schema)
    assert found(chain(ROOT), event) == [("SchemaBytes", "SD-01")]
    assert write_block(block(chain(ROOT), event).content), "it is shown as it is"


def test_unknown_type_is_unsupported_and_never_replaced() -> None:
    with pytest.raises(UnsupportedVersion, match="column 'x': written by a newer version"):
        to_arrow(typed(Unknown(25)))


def test_chain_with_an_unknown_type_gets_no_other_schema_and_no_table() -> None:
    event = SetDataSchema(schema=typed(Unknown(25)))
    state = replace(chain(ROOT), data_schema=event)
    with pytest.raises(UnsupportedVersion, match="column 'x'"):
        Extension(Chain(state=state), NOON).set_schema(SCHEMA)
    nothing: Any = None
    with pytest.raises(UnsupportedVersion, match="column 'x'"):
        table_of(nothing, nothing, nothing, Chain(state=state))


# --- in a chain ------------------------------------------------------------------------------------------------------


def odf(*fields: Any) -> SetDataSchema:
    return SetDataSchema(schema=from_arrow(pa.schema(list(fields))))


def optional(schema: pa.Schema, nullable: bool) -> list[Any]:
    return [field.with_nullable(nullable) if number > 3 else field for number, field in enumerate(schema)]


def test_upgrade_from_an_arrow_schema_ignores_options() -> None:
    assert found(seeded(), odf(*SCHEMA)) == []
    assert found(seeded(), odf(*optional(SCHEMA, False))) == []
    views = SCHEMA.set(4, pa.field(SCHEMA.names[4], pa.string_view()))
    assert found(seeded(), odf(*views)) == [], "the layout of texts is no part of the logical type"
    assert found(seeded(), odf(*SCHEMA.remove(5))) == [("SchemaEvolution", "EVO-01")]
    other = SCHEMA.set(5, pa.field("population", pa.int32()))
    assert found(seeded(), odf(*other)) == [("SchemaEvolution", "EVO-01")]


def test_options_stay_once_the_schema_is_an_odf_schema() -> None:
    state = chain(ROOT, odf(*optional(SCHEMA, True)))
    assert found(state, odf(*optional(SCHEMA, True), pa.field("extra", pa.string()))) == []
    assert found(state, odf(*optional(SCHEMA, False))) == [("SchemaOption", "OS-03")] * (len(SCHEMA) - 4)
    assert found(state, odf(*SCHEMA, pa.field("extra", pa.string(), False))) == [("SchemaEvolution", "EVO-02")]


def test_both_schemas_of_an_event_have_the_same_columns() -> None:
    raw = encode_schema(SCHEMA)
    assert found(chain(ROOT), SetDataSchema(raw_arrow_schema=raw, schema=from_arrow(SCHEMA))) == []
    other = from_arrow(SCHEMA.append(pa.field("more", pa.string())))
    assert found(chain(ROOT), SetDataSchema(raw_arrow_schema=raw, schema=other)) == [("SchemaForms", "OS-02")]
    assert found(chain(ROOT), SetDataSchema()) == [("SchemaBytes", "SD-01")]


def extension(*events: MetadataEvent, version: SpecVersion | None = None) -> Extension:
    state, last = ChainState(version=version), Chain(state=ChainState(version=version))
    for event in events:
        last = last.after(block(last.state, event))
        state = last.state
    assert state.length
    return Extension(last, NOON)


def written(made: Extension) -> Any:
    (only,) = made.blocks
    return Block.decode(only.data).content.event, only.dialect


MORE = SCHEMA.append(pa.field("extra", pa.string()))


def test_chain_of_034_goes_on_with_arrow_schemas() -> None:
    made = extension(ROOT, SetDataSchema(raw_arrow_schema=encode_schema(SCHEMA)))
    made.set_schema(SCHEMA)
    assert not made.blocks
    made.set_schema(MORE)
    assert written(made) == (SetDataSchema(raw_arrow_schema=encode_schema(MORE)), Dialect.UNALIGNED)
    assert made.chain.note.spec is None
    assert "spec" not in made.chain.note.to_json(), "its head is that of earlier versions, byte for byte"


def test_chain_with_an_odf_schema_goes_on_with_its_attributes() -> None:
    first = from_arrow(SCHEMA)
    extra = ExtraAttributes(entries='{"kamu.dev/archetype":"x","z.org/unknown":[1,{"b":null}]}')
    fields = (*first.fields[:-1], DataField(name=first.fields[-1].name, type=first.fields[-1].type, extra=extra))
    made = extension(ROOT, SetDataSchema(schema=DataSchema(fields=fields, extra=extra)))
    made.set_schema(SCHEMA)
    assert not made.blocks
    made.set_schema(MORE)
    event, _ = written(made)
    assert event.raw_arrow_schema is None
    assert event.schema == DataSchema(fields=(*fields, from_arrow(MORE).fields[-1]), extra=extra)
    assert made.chain.note.spec == "0.37"


def test_attributes_of_nested_fields_stay_when_a_column_is_added() -> None:
    def field(name: str, kind: DataType, **more: Any) -> DataField:
        extra = {"a.b/number": 1.50, "kamu.dev/archetype": name, **more}
        return DataField(name=name, type=kind, extra=ExtraAttributes(entries=json.dumps(extra)))

    def option(kind: DataType) -> DataType:
        return DataTypeOption(inner=kind)

    wide = {BUFFER: {"kind": "Contiguous", "offsetBitWidth": 64}}
    deepest = DataTypeStruct(fields=(field("z", option(DataTypeInt8())), field("wide", DataTypeString(), **wide)))
    listed = DataTypeList(item_type=option(DataTypeStruct(fields=(field("y", option(deepest)),))))
    pairs = DataTypeMap(key_type=DataTypeString(), value_type=option(deepest), keys_sorted=False)
    whole = DataTypeStruct(fields=(field("in", deepest), field("listed", option(listed)), field("pairs", pairs)))
    first = from_arrow(SCHEMA)
    schema = DataSchema(fields=(*first.fields, field("whole", option(whole))))
    more = to_arrow(schema).append(pa.field("more", pa.string()))
    assert from_arrow(more, schema) == DataSchema(fields=(*schema.fields, from_arrow(more).fields[-1]))


def test_chain_that_is_written_as_039_is_upgraded_with_its_next_schema() -> None:
    made = extension(ROOT, SetDataSchema(raw_arrow_schema=encode_schema(SCHEMA)), version=SpecVersion.V0_39)
    made.set_schema(SCHEMA)
    assert not made.blocks
    made.set_schema(MORE)
    assert written(made) == (SetDataSchema(schema=from_arrow(MORE)), Dialect.ALIGNED)
    assert made.chain.note.spec == "0.39"


def test_layout_alone_is_no_new_odf_schema() -> None:
    made = extension(ROOT, SetDataSchema(schema=from_arrow(SCHEMA)))
    made.set_schema(
        pa.schema([field.with_type(pa.large_string()) if field.type == pa.string() else field for field in SCHEMA])
    )
    assert not made.blocks


@pytest.mark.parametrize(
    ("event", "version"),
    [
        (SetDataSchema(raw_arrow_schema=encode_schema(SCHEMA)), "0.34"),
        (SetDataSchema(schema=from_arrow(SCHEMA)), "0.37"),
    ],
)
def test_version_that_a_block_needs(event: SetDataSchema, version: str) -> None:
    state = chain(ROOT)
    assert needed_by_block(block(state, event)) == version
    content = block(state, event).content
    assert needed_by_block(Block.encode(content, Dialect.ALIGNED)) >= "0.37"


def test_types_are_not_nested_without_end() -> None:
    kind: DataType = DataTypeInt8()
    for _ in range(95):
        kind = DataTypeOption(inner=kind)
    event = SetDataSchema(schema=typed(kind))
    content = block(chain(ROOT), event).content
    assert Block.decode(Block.encode(content).data).content == content
    for _ in range(20):
        kind = DataTypeOption(inner=kind)
    deeper = replace(content, event=SetDataSchema(schema=typed(kind)))
    with pytest.raises(FormatInvalid, match="nested deeper than 100"):
        Block.decode(Block.encode(deeper).data)


def test_unit_of_time_is_read_with_16_bits() -> None:
    event = SetDataSchema(schema=typed(DataTypeTimestamp(unit=TimeUnit.NANOSECOND, timezone="UTC")))
    content = block(chain(ROOT), event).content
    assert Block.decode(Block.encode(content, Dialect.ALIGNED).data).content.event == event
    assert content.system_time != Timestamp(0)
