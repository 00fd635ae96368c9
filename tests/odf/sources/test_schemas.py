from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import EventInvalid, FormatInvalid
from kubothek.odf.dataset import create
from kubothek.odf.sources.readers import parse_ddl
from kubothek.odf.spec.data_schema import DataField, DataSchema, DataTypeDecimal
from kubothek.odf.spec.events import AddPushSource, SetPollingSource
from kubothek.odf.spec.sources import FetchStepUrl, MergeStrategyAppend, ReadStepNdJson
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.odf.dataset.planes import OWNER, UUID, begun


@pytest.mark.requirement("SL-19")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x BOOLEAN", pa.bool_()),
        ("x int", pa.int32()),
        ("x Integer", pa.int32()),
        ("x BIGINT", pa.int64()),
        ("x DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("x decimal(5)", pa.decimal128(5, 0)),
        ("x FLOAT", pa.float32()),
        ("x DOUBLE", pa.float64()),
        ("x DOUBLE PRECISION", pa.float64()),
        ("x UUID", pa.binary(16)),
        ("x STRING", pa.string()),
        ("x VARCHAR(20)", pa.string()),
        ("x TIMESTAMP", pa.timestamp("us", "UTC")),
        ("x TIMESTAMP(0)", pa.timestamp("ms", "UTC")),
        ("x TIMESTAMP(3)", pa.timestamp("ms", "UTC")),
        ("x TIMESTAMP(6)", pa.timestamp("us", "UTC")),
        ("x TIMESTAMP(9)", pa.timestamp("ns", "UTC")),
        ("x DATE", pa.date32()),
        ("x TIME(3)", pa.time32("ms")),
        ("x TIME(6)", pa.time64("us")),
        ("x TIME", pa.time64("us")),
    ],
)
def test_schema_ddl_types_are_parsed(text: str, kind: pa.DataType) -> None:
    assert parse_ddl([text]) == pa.schema([("x", kind)])


@pytest.mark.requirement("SL-20")
def test_schema_ddl_supports_not_null_and_quoted_names() -> None:
    found = parse_ddl(
        ['"Date (UTC)" TIMESTAMP(3) not null', "`a ``b` INT", '"say ""x""" string NULL', "t DATE NOT NULL, _1é BIGINT,"]
    )
    fields: list[pa.Field[Any]] = [
        pa.field("Date (UTC)", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("a `b", pa.int32()),
        pa.field('say "x"', pa.string()),
        pa.field("t", pa.date32(), nullable=False),
        pa.field("_1é", pa.int64()),
    ]
    assert found == pa.schema(fields)


@pytest.mark.requirement("SL-20")
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (["x"], "the type of 'x' is missing"),
        (["x MONEY"], r"MONEY is no type; types are BOOLEAN, INT"),
        (["x INT(3)"], r"INT\(3\) is no type"),
        (["x DECIMAL(39, 2)"], "1 to 38 digits"),
        (["x DECIMAL(3, 4)"], "1 to 38 digits"),
        (["x TIMESTAMP(10)"], "at most 9 digits"),
        (["x INT NOT"], "NOT is followed by NULL"),
        (["x INT DEFAULT 3"], "'DEFAULT' is not understood"),
        (["x-y INT"], "'-' is not allowed here; names with other characters are quoted"),
        (["x DECIMAL(3"], "a bracket is never closed"),
        (["x DECIMAL(a)"], "'a' is no number"),
        (['"" INT'], "a column's name is empty"),
        ([""], "a name is missing"),
        ([], "no columns"),
        (["x INT", "x DATE"], "'x' more than once"),
        (['"x INT'], "is not allowed here"),
    ],
)
def test_invalid_schema_ddl_is_refused(columns: list[str], problem: str) -> None:
    with pytest.raises(FormatInvalid, match=problem):
        parse_ddl(columns)


UNREADABLE: list[tuple[ReadStepNdJson, str]] = [
    (ReadStepNdJson(ddl_schema=("a INT", "b STRUCT<x INT>")), r"schema 'b STRUCT<x INT>': '<' is not allowed here"),
    (ReadStepNdJson(ddl_schema=()), "the schema has no columns"),
    (ReadStepNdJson(schema=DataSchema(fields=())), "read.schema must name columns, each once, not none"),
    (
        ReadStepNdJson(schema=DataSchema(fields=(DataField(name="a", type=DataTypeDecimal(precision=0, scale=0)),))),
        "column 'a': a Decimal of 0 digits",
    ),
]


@pytest.mark.requirement("SL-20")
@pytest.mark.parametrize(("read", "problem"), UNREADABLE)
def test_source_with_unreadable_columns_never_enters_chain(store: Store, read: ReadStepNdJson, problem: str) -> None:
    source = AddPushSource(source_name="typed", read=read, merge=MergeStrategyAppend())
    with pytest.raises(EventInvalid, match=f"AddPushSource 'typed': NdJson: {problem}"):
        create(store, DatasetLog(store, UUID), begun(source), OWNER)
    root = create(store, DatasetLog(store, UUID), begun(), OWNER)
    length = root.state.length
    with pytest.raises(EventInvalid, match=problem):
        root.append_events([source])
    polled = SetPollingSource(fetch=FetchStepUrl(url="https://x"), read=read, merge=MergeStrategyAppend())
    with pytest.raises(EventInvalid, match=f"SetPollingSource: NdJson: {problem}"):
        root.append_events([polled])
    assert root.state.length == length
