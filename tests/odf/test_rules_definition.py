"""What may define a dataset: the rows of ODF 0.34.1, "Metadata Chain" and RFC-010, RFC-011 of sources, transformations
and schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kubothek.odf.spec.arrow_schema import decode_schema, encode_schema
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AttachmentEmbedded,
    AttachmentsEmbedded,
    DisablePollingSource,
    DisablePushSource,
    MetadataEvent,
    SetAttachments,
    SetDataSchema,
    SetVocab,
    TransformInput,
)
from kubothek.odf.spec.sources import (
    FetchStepUrl,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
    ReadStepCsv,
    SqlQueryStep,
    TransformSql,
)
from kubothek.odf.validation.state import Vocabulary
from tests.odf.chains import DERIVATIVE, POLL, PUSH, ROOT, SQL, TRANSFORM, A, B, chain, found, seeded
from tests.odf.making import SCHEMA
from tests.odf.vectors import VECTORS


@pytest.mark.requirement("SP-02", "SP-03", "PS-04")
def test_polling_and_push_sources_exclude_each_other() -> None:
    assert found(chain(ROOT, POLL), PUSH) == [("SourceMix", "SP-02")]
    assert found(chain(ROOT, PUSH), POLL) == [("SourceMix", "SP-02")]
    assert found(chain(ROOT, POLL, DisablePollingSource()), PUSH) == []
    assert found(chain(ROOT, PUSH, DisablePushSource(source_name="p")), POLL) == []
    assert found(chain(ROOT), DisablePollingSource()) == [("SourceDisable", "SP-03")]
    assert found(chain(ROOT, PUSH), DisablePushSource(source_name="q")) == [("SourceDisable", "PS-04")]


@pytest.mark.requirement("PS-01", "SP-04", "PS-03")
def test_push_sources_accumulate_and_same_name_replaces() -> None:
    second = replace(PUSH, source_name="q")
    state = chain(ROOT, PUSH, second, replace(PUSH, merge=MergeStrategyLedger(primary_key=("x",))))
    assert list(state.push_sources) == ["p", "q"]
    assert isinstance(state.push_sources["p"].merge, MergeStrategyLedger)
    assert chain(ROOT, POLL, replace(POLL, fetch=FetchStepUrl(url="https://y"))).polling_source != POLL
    assert found(chain(ROOT), replace(PUSH, read=ReadStepCsv())) == [("PushSchema", "PS-03")]


@pytest.mark.requirement("MS-02", "MS-04")
@pytest.mark.parametrize(
    "merge",
    [
        MergeStrategyLedger(primary_key=()),
        MergeStrategySnapshot(primary_key=()),
        MergeStrategyLedger(primary_key=("a", "a")),
        MergeStrategyUpsertStream(primary_key=("a", "a")),
        MergeStrategyChangelogStream(primary_key=()),
    ],
)
def test_primary_key_without_columns_is_reported(merge: Any) -> None:
    assert [code for code, _ in found(chain(ROOT), replace(PUSH, merge=merge))] == ["PrimaryKey"]
    assert [code for code, _ in found(chain(ROOT), replace(POLL, merge=merge))] == ["PrimaryKey"]


@pytest.mark.requirement("ST-03")
@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        (SQL, 0),
        (replace(SQL, queries=(SqlQueryStep(alias="v", query="x"), SqlQueryStep(query="y"))), 0),
        (replace(SQL, query="SELECT 1"), 1),
        (replace(SQL, queries=None), 1),
        (replace(SQL, queries=()), 1),
        (replace(SQL, queries=(SqlQueryStep(alias="v", query="x"),)), 1),
        (replace(SQL, queries=(SqlQueryStep(query="x"), SqlQueryStep(query="y"))), 1),
    ],
)
def test_transform_queries_without_final_output_are_reported(sql: TransformSql, wrong: int) -> None:
    expected = [("TransformQuery", "ST-03")] * wrong
    assert found(chain(DERIVATIVE), replace(TRANSFORM, transform=sql)) == expected
    assert found(chain(ROOT), replace(PUSH, preprocess=sql)) == expected
    assert found(chain(ROOT), replace(POLL, preprocess=sql)) == expected


@pytest.mark.requirement("ST-01", "ST-02", "ST-05")
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([], [("TransformInputs", "ST-01")]),
        ([("some.name", "a")], [("TransformInputs", "ST-02")]),
        ([(str(A), None)], [("TransformInputs", "ST-02")]),
        ([(str(A), "a"), (str(A), "b")], [("TransformInputs", "ST-05")]),
        ([(str(A), "a"), (str(B), "a")], [("TransformInputs", "ST-05")]),
    ],
)
def test_transform_inputs_without_id_or_unique_alias_are_reported(
    inputs: Sequence[tuple[str, str | None]], expected: list[tuple[str, str]]
) -> None:
    event = replace(TRANSFORM, inputs=tuple(TransformInput(dataset_ref=one, alias=two) for one, two in inputs))
    assert found(chain(DERIVATIVE), event) == expected


@pytest.mark.requirement("SV-01", "SV-02")
def test_vocabulary_with_duplicate_or_late_names_is_reported() -> None:
    assert chain(ROOT, SetVocab(event_time_column="date")).vocabulary == Vocabulary(event_time="date")
    assert chain(ROOT, SetVocab(event_time_column="date"), SetVocab()).vocabulary == Vocabulary()
    assert found(chain(ROOT), SetVocab(event_time_column="op")) == [("Vocabulary", "SV-02")]
    assert found(seeded(), SetVocab(event_time_column="date")) == [("Vocabulary", "SV-02")]
    assert found(seeded(), SetVocab(event_time_column="event_time")) == []


@pytest.mark.requirement("SA-01")
@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../b", "", "a//b", "./a", "a\\b", "a\0", "a/"])
def test_attachment_path_outside_directory_is_reported(path: str) -> None:
    attach: Callable[..., MetadataEvent] = lambda *paths: SetAttachments(  # noqa: E731
        attachments=AttachmentsEmbedded(items=tuple(AttachmentEmbedded(path=each, content="") for each in paths))
    )
    assert found(chain(ROOT), attach(path)) == [("AttachmentPath", "SA-01")]
    assert found(chain(ROOT), attach("docs/README.md", "x.y")) == []
    assert found(chain(ROOT), attach("x", "x")) == [("AttachmentPath", "SA-01")]


def schema(*fields: Any) -> SetDataSchema:
    return SetDataSchema(raw_arrow_schema=encode_schema(pa.schema(list(fields))))


COMMON = list(SCHEMA)[:4]
MICROSECONDS = pa.field("system_time", pa.timestamp("us", "UTC"))


@pytest.mark.requirement("SD-01", "SL-11", "SL-12", "SL-13", "SL-14", "SL-15", "SL-16", "SL-17")
@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (SetDataSchema(raw_arrow_schema=b""), [("SchemaBytes", "SD-01")]),
        (SetDataSchema(raw_arrow_schema=b"\x08\0\0\0" * 8), [("SchemaBytes", "SD-01")]),
        (schema(*COMMON[:3], pa.field("event_time", pa.date32())), []),
        (schema(pa.field("offset", pa.uint64()), pa.field("op", pa.uint8()), *COMMON[2:]), []),
        (schema(*COMMON[:3]), [("DataColumns", "SL-11"), ("ColumnOrder", "SL-17")]),
        (schema(pa.field("offset", pa.int32()), *COMMON[1:]), [("DataColumns", "SL-12")]),
        (schema(COMMON[0], pa.field("op", pa.int64()), *COMMON[2:]), [("DataColumns", "SL-13")]),
        (schema(*COMMON[:2], MICROSECONDS, COMMON[3]), [("DataColumns", "SL-14")]),
        (schema(*COMMON[:3], pa.field("event_time", pa.string())), [("DataColumns", "SL-15")]),
        (schema(*COMMON, pa.field("x", pa.timestamp("ms"))), [("DataTimestamp", "SL-16")]),
        (schema(COMMON[1], COMMON[0], *COMMON[2:]), [("ColumnOrder", "SL-17")]),
        (schema(*COMMON, pa.field("x", pa.int64()), pa.field("x", pa.int64())), [("DataColumns", "SL-11")]),
        (schema(*COMMON, pa.field("x", pa.duration("s"))), [("DataColumns", "HS-02")]),
    ],
)  # fmt: skip
def test_schema_without_common_columns_is_reported(event: SetDataSchema, expected: list[tuple[str, str]]) -> None:
    assert found(chain(ROOT), event) == expected


@pytest.mark.requirement("SD-02", "EVO-01", "EVO-02")
def test_schema_change_that_is_not_added_column_is_reported() -> None:
    more = SCHEMA.append(pa.field("extra", pa.string()))
    assert found(seeded(), schema(*more)) == []
    assert found(seeded(), schema(*SCHEMA.remove(5))) == [("SchemaEvolution", "EVO-01")]
    assert found(seeded(), schema(*SCHEMA.set(5, pa.field("population", pa.int32())))) == [
        ("SchemaEvolution", "EVO-01")
    ]
    strict = SCHEMA.append(pa.field("extra", pa.string(), nullable=False))
    assert found(seeded(), schema(*strict)) == [("SchemaEvolution", "EVO-02")]


@pytest.mark.requirement("SD-01")
@pytest.mark.parametrize("vector", [each for each in VECTORS["blocks"] if "SetDataSchema" in each["name"]][:3],
                         ids=lambda each: each["name"])  # fmt: skip
def test_schema_vectors_are_encoded_as_published(vector: dict[str, Any]) -> None:
    event = Block.decode(bytes.fromhex(vector["hex"])).content.event
    assert isinstance(event, SetDataSchema)
    assert event.raw_arrow_schema is not None
    assert encode_schema(decode_schema(event.raw_arrow_schema)) == event.raw_arrow_schema
