"""What we write against what real Xskipper 1.7 wrote of the same files, byte for byte where that is determined."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.table.skipping.files.metadata_file import render, xskipper_fields
from kubothek.table.skipping.files.spark_schema import ROW_METADATA
from kubothek.table.skipping.files.writing import object_names
from kubothek.table.skipping.model import entry_column
from kubothek.table.skipping.names import OBJ_NAME, hashed_location, object_path, table_identifier
from tests.table.skipping import golden

BOTH = pytest.mark.parametrize("name", ["flat", "part"])


def rendered(name: str) -> pa.Buffer:
    schema, entries = golden.described(name)
    identifier = golden.EXPECTED[name]["root"]
    fields = xskipper_fields(schema, identifier)
    return render(fields, object_names(entries, identifier + "/", ""), entries, "")


@BOTH
def test_spark_schema_text_equals_xskipper_text(name: str) -> None:
    ours = pq.read_metadata(pa.BufferReader(rendered(name))).metadata
    theirs = pq.read_metadata(golden.metadata_path(name)).metadata
    assert ours is not None
    assert theirs is not None
    assert ours[ROW_METADATA] == theirs[ROW_METADATA]
    assert b"org.apache.spark.version" in ours
    assert b"ARROW:schema" not in ours


@BOTH
def test_parquet_schema_equals_xskipper_schema(name: str) -> None:
    def leaves(schema: pq.ParquetSchema) -> list[tuple[Any, ...]]:
        columns = (schema.column(n) for n in range(len(schema)))
        return [
            (c.path, c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level)
            for c in columns
        ]

    ours = pq.ParquetFile(pa.BufferReader(rendered(name))).schema
    assert leaves(ours) == leaves(pq.ParquetFile(golden.metadata_path(name)).schema)


@BOTH
def test_skipping_entries_equal_xskipper_entries(name: str) -> None:
    """Lists have no order; of all else there is one right value, Bloom filters included."""

    def rows(source: Any) -> list[dict[str, Any]]:
        table = pq.ParquetFile(source, coerce_int96_timestamp_unit="us").read()
        found = sorted(table.to_pylist(), key=lambda row: row[OBJ_NAME])
        return [{n: sorted(v) if isinstance(v, list) else v for n, v in row.items()} for row in found]

    ours, theirs = rows(pa.BufferReader(rendered(name))), rows(golden.metadata_path(name))
    assert ours == theirs
    assert len(ours) == 8


@pytest.mark.parametrize(
    ("columns", "index", "expected"),
    [
        (["temp"], "minmax", "temp_minmax_4"),
        (["nest.a"], "minmax", "nest$#$a_minmax_8"),
        (["we#ird$_col"], "minmax", "we##ird$_col_minmax_12"),
        (["a b"], "minmax", "a b_minmax_3"),
        (["é"], "minmax", "é_minmax_1"),
        (["MixedCase"], "minmax", "mixedcase_minmax_9"),
        (["nest.Name"], "valuelist", "nest$#$name_valuelist_11"),
        (["lat#_.$_new", "$_lng.#"], "someindex", "lat##_$#$$_new_$_lng$#$##_someindex_14-10"),
        (["😀"], "minmax", "😀_minmax_2"),
    ],
)
def test_entry_column_name_matches_xskipper(columns: list[str], index: str, expected: str) -> None:
    assert entry_column(columns, index) == expected


def test_metadata_paths_match_xskipper() -> None:
    # The digests of golden metadata, and of Xskipper's Metadatastore Spec, "Version 0", ``obj_name``.
    assert hashed_location("md/flat", "/data/flat") == f"md/flat/{golden.metadata_path('flat').parent.name}/"
    assert hashed_location("md", "default.tbl").startswith("md/990b4d19")
    assert object_path("s3://bucket/a", "x/b c#1.parquet") == "/a/x/b c#1.parquet"
    assert object_path("s3://bucket", "x%20.parquet") == "/x%20.parquet"
    assert object_path("file:///a%20b", "x") == "/a b/x"
    assert table_identifier("/a/b/") == "/a/b"


def test_partition_columns_of_golden_rows_have_spark_types() -> None:
    table = golden.opened("part").read(["virtual_dt", "virtual_k"])
    assert table.column("virtual_dt")[0].as_py() == date(2024, 1, 1)
    about = pq.read_metadata(golden.metadata_path("part")).metadata
    assert about is not None
    assert json.loads(about[ROW_METADATA])["fields"][2]["type"] == "integer"
