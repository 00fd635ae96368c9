"""The stored schema, its file, and which schemas go together."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import DataTypeMismatch, SchemaMismatch
from kubothek.table import schema as s


def schema_of(**types: pa.DataType) -> pa.Schema:
    return pa.schema(types)


STORED_TYPES: list[pa.DataType] = [
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.time64("us"),
    pa.duration("us"),
    pa.decimal128(10, 2),
    pa.list_(pa.field("item", pa.int64())),
    pa.list_(pa.field("item", pa.list_(pa.field("item", pa.string())))),
]


@pytest.mark.parametrize("stored", STORED_TYPES, ids=str)
def test_stored_type_survives_name_and_common_metadata_roundtrip(stored: pa.DataType) -> None:
    assert s.parse_type(s.type_name(stored)) == stored
    schema = s.normalise(schema_of(x=stored))
    assert schema.field("x").type == stored
    assert s.parse_common_metadata(s.render_common_metadata(schema)).equals(schema)


@pytest.mark.parametrize(
    "name",
    ["", "int", "varchar(10)", "timestamp", "decimal128(39,2)", "decimal128(2,3)", "list<>", "list<int>"],
)
def test_unknown_type_name_is_refused(name: str) -> None:
    with pytest.raises(SchemaMismatch):
        s.parse_type(name)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint16(), pa.uint64()),
        (pa.float32(), pa.float64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.dictionary(pa.int8(), pa.int16()), pa.int64()),
        (pa.large_binary(), pa.binary()),
        (pa.binary(4), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns"), pa.timestamp("us")),
        (pa.large_list(pa.int8()), pa.list_(pa.int64())),
        (pa.list_(pa.large_string()), pa.list_(pa.string())),
        (pa.null(), pa.null()),
    ],
    ids=str,
)
def test_normalise_widens_types(given: pa.DataType, stored: pa.DataType) -> None:
    assert s.normalise(schema_of(x=given)).field("x").type == stored


def test_normalise_orders_partition_columns_first_and_rest_by_name() -> None:
    schema = pa.schema([(name, pa.int64()) for name in ("z", "b", "A", "year", "region")])
    assert s.normalise(schema, ["year", "region"]).names == ["year", "region", "A", "b", "z"]


def test_normalise_makes_columns_nullable_and_names_list_item() -> None:
    elements = pa.field("element", pa.int8(), nullable=False)
    given = pa.schema([pa.field("x", pa.list_(elements), nullable=False)])
    field = s.normalise(given).field("x")
    assert field.nullable
    assert field.type.value_field.name == "item"


@pytest.mark.parametrize(
    "given",
    [
        pa.timestamp("us", "UTC"),
        pa.list_(pa.timestamp("us", "UTC")),
        pa.dictionary(pa.int8(), pa.timestamp("us", "UTC")),
        pa.map_(pa.string(), pa.int64()),
        pa.uuid(),
    ],
    ids=str,
)
def test_normalise_with_unsupported_type_is_refused_by_name(given: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="'seen'"):
        s.normalise(schema_of(seen=given))


def test_normalise_with_duplicate_columns_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="'a' occurs more than once"):
        s.normalise(pa.schema([pa.field(name, pa.int64()) for name in ("a", "b", "a")]))


def test_normalise_with_missing_partition_column_names_available_columns() -> None:
    with pytest.raises(SchemaMismatch, match=r"no column 'yaer'.*'year'"):
        s.normalise(schema_of(year=pa.int64()), ["yaer"])


def test_conform_casts_reorders_and_converts_time_zones_to_utc() -> None:
    moment = datetime(2024, 3, 31, 1, 30, tzinfo=UTC)
    table = pa.table(
        {
            "t": pa.array([moment], pa.timestamp("ns", "Europe/Berlin")),
            "i": pa.array([1], pa.int8()),
            "c": pa.array(["x"]).dictionary_encode(),
            "n": pa.nulls(1),
            "extra": [1],
        }
    )
    schema = schema_of(c=pa.string(), i=pa.int64(), n=pa.string(), t=pa.timestamp("us"))
    out = s.conform(table, schema)
    assert out.schema.equals(schema)
    assert out.to_pylist() == [{"c": "x", "i": 1, "n": None, "t": moment.replace(tzinfo=None)}]


@pytest.mark.parametrize(
    ("column", "data_type"),
    [
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array(["x"]), pa.list_(pa.int64())),
        (pa.array([-1]), pa.uint64()),
        (pa.array([Decimal("1.005")]), pa.decimal128(5, 2)),
    ],
)
def test_conform_with_value_that_does_not_fit_names_column(column: pa.Array[Any], data_type: pa.DataType) -> None:
    number = not pa.types.is_list(data_type) and not pa.types.is_timestamp(data_type)
    with pytest.raises(SchemaMismatch if number else DataTypeMismatch, match="column 'price'"):
        s.conform(pa.table({"price": column}), schema_of(price=data_type))


def test_without_time_zones_keeps_other_columns() -> None:
    given = schema_of(t=pa.timestamp("ms", "UTC"), i=pa.int8())
    assert s.without_time_zones(given) == schema_of(t=pa.timestamp("ms"), i=pa.int8())


def test_merge_gives_null_columns_type_in_either_direction() -> None:
    stored = schema_of(a=pa.null(), b=pa.string(), c=pa.null())
    new = schema_of(a=pa.int64(), b=pa.null(), c=pa.null())
    assert s.merge(stored, new) == schema_of(a=pa.int64(), b=pa.string(), c=pa.null())


def test_merge_error_lists_difference_by_column() -> None:
    stored = schema_of(a=pa.int64(), b=pa.string(), gone=pa.float64())
    new = schema_of(a=pa.float64(), b=pa.string(), more=pa.date32())
    with pytest.raises(SchemaMismatch) as refused:
        s.merge(stored, new)
    assert str(refused.value).splitlines()[:-1] == [
        "the columns do not match the table:",
        "column  the table  the rows",
        "a       int64      double    another type",
        "gone    double     -         missing",
        "more    -          date32    not in the table",
    ]
    assert "evolve" not in str(refused.value), "what does not help is not offered"


def test_merge_error_offers_evolution_and_limits_column_list() -> None:
    stored = pa.schema([(f"c{n:03}", pa.int64()) for n in range(100)])
    with pytest.raises(SchemaMismatch) as refused:
        s.merge(stored, schema_of(c000=pa.int64()))
    lines = str(refused.value).splitlines()
    assert len(lines) == 24
    assert lines[-2] == "and 79 more columns"
    assert "schemaEvolution: Compatible (evolve=True in Python)" in lines[-1]


def test_merge_with_evolve_adds_columns_in_kartothek_order() -> None:
    """Partition columns first, then by name (Kartothek specification, "Table schema"; "Type System")."""
    stored = s.normalise(schema_of(z=pa.string(), y=pa.int64(), b=pa.int64(), k=pa.int64()), ["z", "y"])
    new = s.normalise(schema_of(z=pa.string(), y=pa.int64(), a=pa.bool_(), c=pa.int64(), k=pa.int64()), ["z", "y"])
    merged = s.merge(stored, new, evolve=True)
    assert merged.names == ["z", "y", "a", "b", "c", "k"]
    assert merged == s.normalise(merged, ["z", "y"])


def test_merge_with_evolve_without_new_column_keeps_order() -> None:
    theirs = schema_of(z=pa.int64(), a=pa.null())
    assert s.merge(theirs, schema_of(a=pa.string()), evolve=True) == schema_of(z=pa.int64(), a=pa.string())


@pytest.mark.parametrize(
    ("one", "other", "wide"),
    [
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 4), pa.decimal128(12, 4)),
        (pa.decimal128(38, 0), pa.decimal128(10, 2), None),
        (pa.list_(pa.null()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.list_(pa.string()), pa.list_(pa.int64()), None),
        (pa.int64(), pa.float64(), None),
        (pa.int64(), pa.uint64(), None),
        (pa.date32(), pa.timestamp("us"), None),
        (pa.int64(), pa.string(), None),
    ],
)
def test_merge_widens_type_only_where_values_are_preserved(
    one: pa.DataType, other: pa.DataType, wide: pa.DataType | None
) -> None:
    for stored, new in ((one, other), (other, one)):
        if wide is None:
            with pytest.raises(SchemaMismatch, match="another type"):
                s.merge(schema_of(x=stored), schema_of(x=new), evolve=True)
        else:
            assert s.merge(schema_of(x=stored), schema_of(x=new), evolve=True) == schema_of(x=wide)
            with pytest.raises(SchemaMismatch, match=r"wider type|narrower type"):
                s.merge(schema_of(x=stored), schema_of(x=new))


def test_change_for_older_schema_merges_with_evolved_schema() -> None:
    base = schema_of(d=pa.decimal128(5, 1), n=pa.null(), x=pa.int64())
    live = schema_of(added=pa.string(), d=pa.decimal128(9, 1), n=pa.int64(), x=pa.int64())
    assert s.merge(live, s.carried_over(base, base, live)) == live
    with pytest.raises(SchemaMismatch, match=r"x .* missing"):
        s.merge(live, s.carried_over(base.remove(2), base, live))
    with pytest.raises(SchemaMismatch, match=r"y .* not in the table"):
        s.merge(live, s.carried_over(base.append(pa.field("y", pa.int64())), base, live))


def test_with_nulls_adds_missing_columns_as_null() -> None:
    table = s.with_nulls(pa.table({"x": [1, 2]}), schema_of(a=pa.string(), x=pa.int64()))
    assert table.to_pydict() == {"x": [1, 2], "a": [None, None]}
    assert table.schema.field("a").type == pa.string()


def test_merge_ignores_name_of_list_child() -> None:
    theirs = pa.schema([pa.field("l", pa.list_(pa.field("element", pa.int64())))])
    ours = s.normalise(theirs)
    assert s.merge(theirs, ours).equals(ours)


def test_common_metadata_has_form_that_both_libraries_read() -> None:
    """Kartothek specification, "Table schema"; "Type System": no row groups, keys ARROW:schema and pandas, kartothek
    5.3's type names."""
    schema = s.normalise(schema_of(p=pa.string(), l=pa.list_(pa.string()), d=pa.decimal128(5, 2), n=pa.null()), ["p"])
    file = pq.ParquetFile(pa.BufferReader(s.render_common_metadata(schema)))
    metadata = file.metadata.metadata or {}
    assert file.metadata.num_row_groups == 0
    assert set(metadata) == {b"ARROW:schema", b"pandas"}
    assert file.schema_arrow.field("l").type.value_field.name == "item"
    columns = {c["name"]: c for c in json.loads(metadata[b"pandas"])["columns"]}
    assert {name: (c["pandas_type"], c["numpy_type"]) for name, c in columns.items()} == {
        "p": ("unicode", "object"),
        "l": ("list[unicode]", "object"),
        "d": ("decimal", "object"),
        "n": ("empty", "object"),
    }
    assert columns["d"]["metadata"] == {"precision": 5, "scale": 2}


def test_foreign_common_metadata_is_read_with_stored_types() -> None:
    theirs = schema_of(
        s=pa.large_string(),
        l=pa.list_(pa.field("element", pa.large_string())),
        t=pa.timestamp("us", "UTC"),
    )
    sink = pa.BufferOutputStream()
    pq.write_metadata(theirs, sink)
    ours = s.parse_common_metadata(sink.getvalue().to_pybytes())
    assert ours.types == [pa.string(), pa.list_(pa.string()), pa.timestamp("us", "UTC")]
    assert ours.field("l").type.value_field.name == "item"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"{}" * 50])
def test_damaged_common_metadata_raises_schema_mismatch(data: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="_common_metadata"):
        s.parse_common_metadata(data)
