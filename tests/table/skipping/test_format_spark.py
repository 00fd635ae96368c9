"""Real Spark reads what we write: Xskipper is code that runs on what Spark makes of these files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kubothek.storage import StoreConfig, open_store
from kubothek.table.skipping import names
from kubothek.table.skipping.entries import Describer, EntrySchema, fields
from kubothek.table.skipping.files.metadata_file import xskipper_fields
from kubothek.table.skipping.files.spark_schema import render
from kubothek.table.skipping.files.writing import write
from kubothek.table.skipping.model import IndexDefinition
from kubothek.table.skipping.sentinel import pause
from tests.sparks import configured

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        yield spark


MOMENT = datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC)
COLUMNS: dict[str, tuple[pa.DataType, Any]] = {
    "by": (pa.int8(), -128),
    "ub": (pa.uint8(), 255),
    "us": (pa.uint16(), 65535),
    "ui": (pa.uint32(), 2**32 - 1),
    "ul": (pa.uint64(), 2**64 - 1),
    "l": (pa.int64(), -(2**63)),
    "f": (pa.float32(), 0.5),
    "d": (pa.float64(), -0.25),
    "s": (pa.string(), "ünïcödé 😀"),
    "bi": (pa.binary(), b"\x00\xff"),
    "bo": (pa.bool_(), True),
    "da": (pa.date32(), date(1500, 2, 28)),
    "ts": (pa.timestamp("us", "UTC"), MOMENT),
    "old": (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC)),
    "d1": (pa.decimal128(9, 2), Decimal("-1234567.89")),
    "d2": (pa.decimal128(18, 0), Decimal(10**17)),
    "d3": (pa.decimal128(38, 10), Decimal("1.0000000001")),
}


def schema_of(*kinds: str) -> EntrySchema:
    definitions = [IndexDefinition(kind, (name,)) for kind in kinds for name in COLUMNS]
    table = pa.schema([pa.field(name, kind) for name, (kind, _) in COLUMNS.items()])
    return fields(definitions, table.append(pa.field("p", pa.int64())), ["p"])


def test_spark_reads_kubothek_skipping_metadata(session: SparkSession, tmp_path: Path) -> None:
    store = open_store(StoreConfig(f"file://{tmp_path}"))
    schema = schema_of("MinMax", "ValueList")
    describer = Describer(schema)
    describer.update(pa.record_batch([pa.array([v], t) for t, v in COLUMNS.values()], names=list(COLUMNS)))
    entry = describer.finish()
    assert entry is not None
    part_of_it = schema.row("u/t/y", 0, {}, [*entry[:-1], None])  # to Xskipper it would be a file without values
    rows = [schema.row("u/t/p=7/x.parquet", 12, {"p": 7}, entry), part_of_it]
    write(store, "u", "t", schema, pa.concat_tables(rows))

    place = str(tmp_path / names.location("u"))
    frame = session.read.parquet(place)
    expected = json.loads(render(xskipper_fields(schema, f"{tmp_path}/u/t")))
    assert json.loads(frame.schema.json()) == expected
    # Python sees moments in the session's zone, if it can tell the year: they are compared below.
    moments = [n for n in frame.columns if n.startswith(("ts", "old"))]
    rows_found = [row.asDict(recursive=True) for row in frame.drop(*moments).orderBy("obj_name").collect()]
    (found,) = rows_found
    assert found["obj_name"] == f"{tmp_path}/u/t/p=7/x.parquet#12"
    assert found["virtual_p"] == 7
    for name, (kind, value) in COLUMNS.items():
        if pa.types.is_timestamp(kind):
            continue
        column = schema.definitions[list(COLUMNS).index(name)].column
        assert found[column] == {"min": value, "max": value}, name
        assert found[f"{name}_valuelist_{len(name)}"] == [value]
    micros = frame.selectExpr(
        "unix_micros(ts_minmax_2.min) a", "unix_micros(old_minmax_3.max) b", "unix_micros(ts_valuelist_2[0]) c"
    )
    ticks = [pa.scalar(COLUMNS[name][1], pa.timestamp("us", "UTC")).value for name in ("ts", "old", "ts")]
    assert sorted(map(tuple, micros.where("a is not null").collect())) == [tuple(ticks)]

    # With a pause the same directory has no index for it, whatever else lies there.
    pause(store, "u", "t", schema)
    paused = session.read.parquet(place)
    assert paused.columns == ["obj_name", "virtual_p"]
    assert paused.schema["obj_name"].metadata == {"version": 4}
    assert paused.count() == 1
