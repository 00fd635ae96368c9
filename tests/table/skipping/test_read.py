"""Reading metadata: our own parts, and what others wrote in any version, stale, twice, wrong or damaged."""

from __future__ import annotations

import io
import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import SkippingUnreadable
from kubothek.storage import ObjectInfo
from kubothek.table.skipping import names
from kubothek.table.skipping.bloom.filters import Filters
from kubothek.table.skipping.entries import EntrySchema, fields
from kubothek.table.skipping.files.reading import current, load, load_location
from kubothek.table.skipping.files.spark_schema import ROW_METADATA
from kubothek.table.skipping.files.writing import modified, write
from kubothek.table.skipping.model import IndexDefinition, Part
from kubothek.table.skipping.prune.aggregate import Skipped, aggregated
from tests.table.log.memory import MemoryStore
from tests.table.skipping import golden

NAIVE = pa.timestamp("us")


def entries_of(
    schema: EntrySchema, columns: Mapping[str, Sequence[Any]], keys: Sequence[str], **partition: Any
) -> pa.Table:
    """Entries whose index columns are given, by name."""
    rows = []
    for n, key in enumerate(keys):
        described = [pa.array([columns[field.name][n]], field.type) for field in schema.indices]
        rows.append(schema.row(key, 1_700_000_000_000 + n, partition, described))
    return pa.concat_tables(rows)


# --- ours ------------------------------------------------------------------------------------------------------------


def test_written_skipping_metadata_reads_back() -> None:
    store = MemoryStore()
    table = pa.schema(
        [pa.field(n, t) for n, t in (("p", pa.int64()), ("i", pa.uint64()), ("t", NAIVE), ("s", pa.string()))]
    )
    definitions = [IndexDefinition("MinMax", (c,)) for c in "its"]
    definitions += [IndexDefinition("ValueList", ("t",)), IndexDefinition("ValueList", ("s",))]
    schema = fields(definitions, table, ["p"])
    moment = datetime(2024, 1, 1)
    columns: dict[str, list[Any]] = {
        "i_minmax_1": [{"min": 0, "max": 2**64 - 1}, {"min": None, "max": None}],
        "t_minmax_1": [{"min": moment, "max": moment}, {"min": datetime(1, 1, 1), "max": datetime(9999, 12, 31)}],
        "s_minmax_1": [{"min": "", "max": "é"}, {"min": "a", "max": "b"}],
        "t_valuelist_1": [[moment], []],
        "s_valuelist_1": [["", "é"], []],
    }
    keys = ["u/table/p=1/a#1%20.parquet", "u/table/p=1/b.parquet"]
    entries = entries_of(schema, columns, keys, p=1)
    part = write(store, "u", "table", schema, entries)
    assert part.rows == 2
    assert part.own is not None
    assert all(names.is_own_key("u", key) and not names.is_own_key("v", key) for key in part.keys)
    assert part.bytes == sum(store.stat(key).size for key in part.keys)

    read = load(store, part)
    assert read.select(["key", "modified", "virtual_p"]).to_pylist() == (
        entries.select(["key", "modified", "virtual_p"]).to_pylist()
    )
    for name in columns:
        assert read.column(name).to_pylist() == columns[name], name
    assert load(store, part, columns=()).column_names == ["key", "modified"]
    one = load(store, part, columns=[definitions[2]])
    assert one.column_names == ["key", "modified", "s_minmax_1"]
    assert load(store, part, columns=[definitions[1]]).column("t_minmax_1").to_pylist() == columns["t_minmax_1"]

    # Xskipper has no index on moments without zone but bounds that hold in whatever zone they are compared.
    foreign = load_location(store, names.location("u"))
    assert foreign.identifier == "/memory/u/table"
    assert [d.column for d in foreign.definitions] == ["i_minmax_1", "t_minmax_1", "s_minmax_1", "s_valuelist_1"]
    low, high = foreign.rows.column("t_minmax_1")[0].as_py().values()
    assert (low, high) == tuple(moment.replace(tzinfo=UTC) + timedelta(days=d) for d in (-1, 1))
    assert foreign.rows.column("obj_name")[0].as_py() == "/memory/u/table/p=1/a#1%20.parquet#1700000000000"


def test_large_skipping_part_is_fetched_only_for_requested_columns() -> None:
    """Keys and bounds without the filters beside them."""
    store = CountingStore()
    definitions = [IndexDefinition("BloomFilter", ("s",)), IndexDefinition("MinMax", ("i",))]
    types: list[tuple[str, pa.DataType]] = [("s", pa.string()), ("i", pa.int64())]
    schema = fields(definitions, pa.schema(types))
    filters = [random.Random(n).randbytes(1 << 16) for n in range(32)]
    columns: dict[str, list[Any]] = {
        "s_bloomfilter_1": filters,
        "i_minmax_1": [{"min": n, "max": n} for n in range(32)],
    }
    part = write(store, "u", "t", schema, entries_of(schema, columns, [f"u/t/{n}.parquet" for n in range(32)]))
    assert part.bytes > 1 << 21
    read = load(store, part, columns=definitions[1:])
    assert read.column("i_minmax_1")[31].as_py() == {"min": 31, "max": 31}
    assert store.fetched < 1 << 17
    assert load(store, part).column("s_bloomfilter_1").to_pylist() == filters


class CountingStore(MemoryStore):
    """Counts what is read of opened objects, and lends none as a whole."""

    fetched = 0

    def get(self, key: str) -> bytes:
        raise AssertionError(key)

    def open(self, key: str) -> io.BufferedIOBase:
        return _Counted(self, self.get_with_info(key)[0])


class _Counted(io.BytesIO):
    def __init__(self, store: CountingStore, data: bytes) -> None:
        super().__init__(data)
        self._store = store

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._store.fetched += len(data)
        return data


def test_skipping_entries_survive_move_of_store() -> None:
    """Keys are relative to the table, wherever it lay when they were written."""
    here, there = MemoryStore(), MemoryStore()
    there.config = type(there.config)("s3://elsewhere/deep/down")
    schema = fields([IndexDefinition("MinMax", ("i",))], pa.schema([("i", pa.int64())]))
    part = write(here, "u", "t", schema, entries_of(schema, {"i_minmax_1": [{"min": 1, "max": 2}]}, ["u/t/x.parquet"]))
    there.objects = dict(here.objects)
    assert load(there, part).column("key").to_pylist() == ["u/t/x.parquet"]


def test_modification_times_are_integer_milliseconds() -> None:
    store = MemoryStore()
    store.put("a", b"")
    exact = datetime(2023, 11, 14, 22, 13, 20, 123999, tzinfo=UTC)
    store.objects["a"] = b"", ObjectInfo("a", 0, "1", exact)
    assert modified(store, ["a", "gone"]) == {"a": 1700000000123}
    assert modified(store, []) == {}


@pytest.mark.parametrize("damage", ["gone", "cut", "foreign", "rows"])
def test_damaged_skipping_part_raises_skipping_unreadable(damage: str) -> None:
    store = MemoryStore()
    schema = fields(
        [IndexDefinition("MinMax", ("i",)), IndexDefinition("ValueList", ("t",))],
        pa.schema([("i", pa.int64()), ("t", NAIVE)]),
    )
    columns: dict[str, list[Any]] = {"i_minmax_1": [{"min": 1, "max": 2}] * 2, "t_valuelist_1": [[], []]}
    part = write(store, "u", "t", schema, entries_of(schema, columns, ["u/t/x", "u/t/y"]))
    if damage == "gone":
        store.delete([part.key])
    elif damage == "cut":
        store.put(part.key, store.get(part.key)[:-20])
    elif damage == "foreign":
        store.put(part.key, golden.metadata_path("flat").read_bytes())
    else:
        columns = {"i_minmax_1": [{"min": 1, "max": 2}], "t_valuelist_1": [[]]}
        other = write(store, "u", "t", schema, entries_of(schema, columns, ["u/t/x"]))
        part = Part(other.key, 2, 1, part.own)
    with pytest.raises(SkippingUnreadable, match=r"skipping/part-"):
        load(store, part)


def test_incomplete_skipping_entry_is_not_stored() -> None:
    """Of Xskipper's indices: a null would lose the rows of its file there."""
    store = MemoryStore()
    definitions = [IndexDefinition("MinMax", ("i",)), IndexDefinition("ValueList", ("i",))]
    schema = fields(definitions, pa.schema([("i", pa.int64())]))
    columns: dict[str, list[Any]] = {
        "i_minmax_1": [{"min": 1, "max": 2}, None, {"min": None, "max": None}],
        "i_valuelist_1": [None, [1], []],
    }
    part = write(store, "u", "t", schema, entries_of(schema, columns, ["u/t/a", "u/t/b", "u/t/c"]))
    assert part.rows == 1
    assert load(store, part).column("key").to_pylist() == ["u/t/c"]


def test_skipping_statistics_match_xskipper_api() -> None:
    """In the terms of Xskipper's API, which counts nothing where nothing could be skipped."""
    first, second = Skipped(True, 10, 1, 30, 3), Skipped(False, 0, 0, 5, 1)
    assert aggregated([first, second]) == Skipped(True, 10, 1, 35, 4)
    assert aggregated([]) is None
    assert second.to_xskipper() == {
        "status": "SUCCESS",
        "isSkippable": False,
        "skipped_Bytes": 0,
        "skipped_Objs": 0,
        "total_Bytes": 0,
        "total_Objs": 0,
    }
    assert first.to_xskipper()["total_Objs"] == 3


# --- others' ---------------------------------------------------------------------------------------------------------


def put(store: MemoryStore, name: str, spark: list[dict[str, Any]] | str, table: pa.Table) -> None:
    """A file as another program writes it; ``spark``: the fields, or all of the schema's text."""
    text = spark if isinstance(spark, str) else json.dumps({"type": "struct", "fields": spark})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({ROW_METADATA.decode(): text})
    store.put(f"md/{name}", sink.getvalue().to_pybytes())


def field(name: str, kind: Any, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata or {}}


def minmax(column: str, kind: str, name: str) -> dict[str, Any]:
    ends = [field("min", kind), field("max", kind)]
    return field(name, {"type": "struct", "fields": ends}, {"index": {"name": "minmax", "cols": [column]}})


@pytest.mark.parametrize("name", ["flat", "part"])
def test_golden_skipping_metadata_reads_as_expected(name: str) -> None:
    store = MemoryStore()
    store.put("md/part-0.parquet", golden.metadata_path(name).read_bytes())
    store.put("md/.part-0.parquet.crc", b"x")
    store.put("md/_SUCCESS", b"")
    found = load_location(store, "md/")
    expected = golden.EXPECTED[name]
    assert (found.version, found.identifier) == (4, expected["root"])
    assert list(found.definitions) == golden.definitions(name)
    files = [(f"{expected['root']}/{key}", moment) for key, moment in expected["mtime"].items()]
    rows_of_files: list[Any] = current(found, files).to_pylist()
    assert sorted(rows_of_files) == list(range(8))
    assert current(found, [(path, moment + 1) for path, moment in files]).null_count == 8
    schema, entries = golden.described(name)
    rows = found.rows.sort_by("obj_name")
    for column in schema.arrow.names[2:]:
        theirs: list[Any] = rows.column(column).to_pylist()
        ours: list[Any] = entries.column(column).to_pylist()
        if "valuelist" in column:
            assert list(map(sorted, theirs)) == list(map(sorted, ours))
        else:
            assert theirs == ours, column


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_metadata_versions_are_read(version: int) -> None:
    """Names without lengths, parameters as a list, IBM's classes and settings; no partition columns."""
    store = MemoryStore()
    filters = golden.opened("flat").read(["vid_bloomfilter_3"]).column(1)
    prefix = "io.xskipper.index" if version == 3 else "spark.ibm.metaindex.index"
    params: Any = {f"{prefix}.bloom.fpp": "0.01", f"{prefix}.bloom.ndv": "100000"}
    if version < 3:
        params = [f"{key}:{value}" for key, value in params.items()]
    suffix = "" if version == 1 else "_2"
    bloom = "vid_bloomfilter" if version == 1 else "vid_bloomfilter_3"
    spark = [
        field("obj_name", "string", {"version": version, "tableIdentifier": "/d"}),
        minmax("id", "long", f"id_minmax{suffix}"),
        field(bloom, {"type": "udt", "class": "com.ibm.X", "pyClass": None, "sqlType": "binary"},
              {"index": {"name": "bloomfilter", "cols": ["vid"], "params": params}}),
        field("virtual_dt", "string"),
    ]  # fmt: skip
    columns: dict[str, Any] = {
        "obj_name": pa.array([f"/d/{n}#1" for n in range(8)]),
        f"id_minmax{suffix}": pa.array([{"min": n, "max": n} for n in range(8)]),
        bloom: filters,
        "virtual_dt": pa.array(["x"] * 8),
    }
    put(store, "part-0.parquet", spark, pa.table(columns))
    found = load_location(store, "md/")
    assert found.version == version
    assert found.rows.column_names == ["obj_name", "path", "modified", "id_minmax_2", "vid_bloomfilter_3"]
    assert found.definitions[1].params == {
        "io.xskipper.index.bloom.fpp": "0.01",
        "io.xskipper.index.bloom.ndv": "100000",
    }
    mask = Filters.of(found.rows.column("vid_bloomfilter_3")).might_contain(["vid-00305"], pa.string())
    assert mask.tolist() == [False, False, False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("version", "message"), [(None, "version 0 .* rebuild the index"), (0, "version 0"), (5, "newer Kubothek")]
)
def test_unsupported_metadata_version_is_refused(version: int | None, message: str) -> None:
    store = MemoryStore()
    metadata = {} if version is None else {"version": version}
    put(store, "part-0.parquet", [field("obj_name", "string", metadata)], pa.table({"obj_name": ["/a#1"]}))
    with pytest.raises(SkippingUnreadable, match=message):
        load_location(store, "md/")


def test_location_without_valid_metadata_is_refused() -> None:
    store = MemoryStore()
    with pytest.raises(SkippingUnreadable, match="has no metadata"):
        load_location(store, "md/")
    for data, message in ((b"not parquet", "not a Parquet file"), (None, "not written by Xskipper")):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"obj_name": ["a"]}), sink)
        store.put("md/x.parquet", sink.getvalue().to_pybytes() if data is None else data)
        with pytest.raises(SkippingUnreadable, match=rf"md/x\.parquet: {message}"):
            load_location(store, "md/")


@pytest.mark.parametrize(
    "spark",
    [
        "[]",
        "{}",
        '{"fields": 3}',
        '{"fields": [{"name": "x"}]}',
        '{"fields": ["obj_name"]}',
        '{"fields": [{"name": "obj_name", "metadata": 4}]}',
        '{"fields": [{"name": "obj_name", "metadata": {"version": "4"}}]}',
        "not JSON",
    ],
)
def test_invalid_spark_schema_is_refused(spark: str) -> None:
    store = MemoryStore()
    put(store, "part-0.parquet", spark, pa.table({"obj_name": ["/a#1"]}))
    with pytest.raises(SkippingUnreadable, match=r"md/part-0\.parquet: "):
        load_location(store, "md/")


def test_mistyped_metadata_columns_are_ignored() -> None:
    store = MemoryStore()
    master = field("obj_name", "string", {"version": 4, "tableIdentifier": "/d"})
    odd = [
        field("a", "long", {"index": {"name": "minmax", "cols": ["a"]}}),
        field("b", "string", {"index": {"name": "bloomfilter", "cols": ["b"]}}),
        field("c", "binary", {"index": {"name": "bloomfilter", "cols": []}}),
        field("d", "string", {"index": "minmax"}),
        field("gone", "string", {"index": {"name": "valuelist", "cols": ["gone"]}}),
    ]
    table = pa.table({"obj_name": ["/d/x#1"], "a": [1], "b": ["b"], "c": [b"c"], "d": ["d"]})
    put(store, "part-0.parquet", [master, *odd], table)
    assert load_location(store, "md/").definitions == ()
    texts = pa.table({"obj_name": ["/d/x#1"], "x": [{"min": "a", "max": "b"}]})
    put(store, "part-1.parquet", [master, minmax("x", "string", "x")], texts)
    put(
        store,
        "part-2.parquet",
        [master, minmax("x", "long", "x")],
        pa.table({"obj_name": ["/d/y#1"], "x": [{"min": 1, "max": 2}]}),
    )
    with pytest.raises(SkippingUnreadable, match="other types"):
        load_location(store, "md/")


def test_metadata_files_are_merged_with_one_entry_per_object() -> None:
    """A column that another file has not is unknown there; of an entry that is there twice, one is taken."""
    store = MemoryStore()
    master = field("obj_name", "string", {"version": 4, "tableIdentifier": "/d"})
    gap = field("x_gaplist_1", "binary", {"index": {"name": "gaplist", "cols": ["x"]}})
    first = pa.table({"obj_name": ["/d/a#1", "/d/b#2"], "x_minmax_1": [{"min": 1, "max": 2}] * 2})
    put(store, "part-0.parquet", [master, minmax("x", "long", "x_minmax_1")], first)
    second = pa.table({"obj_name": ["/d/b#2", "/d/c##3", "odd"], "x_gaplist_1": [b"", b"", b""], "note": [1, 2, 3]})
    put(store, "part-1.parquet", [master, gap, field("note", "long")], second)
    found = load_location(store, "md/")
    assert found.rows.to_pylist() == [
        {"obj_name": "/d/a#1", "path": "/d/a", "modified": 1, "x_minmax_1": {"min": 1, "max": 2}},
        {"obj_name": "/d/b#2", "path": "/d/b", "modified": 2, "x_minmax_1": None},
        {"obj_name": "/d/c##3", "path": "/d/c#", "modified": 3, "x_minmax_1": None},
        {"obj_name": "odd", "path": "odd", "modified": 0, "x_minmax_1": None},
    ]


def test_values_that_xskipper_gets_wrong_are_unknown() -> None:
    """seen with Xskipper 1.7: order by UTF-16, NaN left out, lists with NULL."""
    store = MemoryStore()
    texts = [("a", "b"), ("a", "～"), ("a", "😀"), ("😀", "😀"), ("é", "日")]
    lists: list[list[int | None] | None] = [[1], [], None, [1, None], [2]]
    table = pa.table(
        {
            "obj_name": [f"/d/{n}#1" for n in range(5)],
            "s_minmax_1": pa.array([{"min": a, "max": b} for a, b in texts]),
            "i_valuelist_1": pa.array(lists, pa.list_(pa.int64())),
        }
    )
    spark = [
        field("obj_name", "string", {"version": 4, "tableIdentifier": "/d"}),
        minmax("s", "string", "s_minmax_1"),
        field("i_valuelist_1", {"type": "array", "elementType": "long", "containsNull": True},
              {"index": {"name": "valuelist", "cols": ["i"]}}),
    ]  # fmt: skip
    put(store, "part-0.parquet", spark, table)
    rows = load_location(store, "md/").rows
    assert [row and (row["min"], row["max"]) for row in rows.column("s_minmax_1").to_pylist()] == [
        ("a", "b"),
        None,
        ("a", "😀"),
        None,
        ("é", "日"),
    ]
    assert rows.column("i_valuelist_1").to_pylist() == [[1], [], None, None, [2]]


@pytest.mark.parametrize("others", [[], [minmax("s", "string", "s_minmax_1")]])
def test_xskipper_bounds_from_footers_extend_to_nan(others: list[dict[str, Any]]) -> None:
    """Xskipper takes them from footers if no index is on anything but numbers (Xskipper's Metadatastore Spec, "Version
    1"; bounds as Xskipper 1.7 takes them)."""
    store = MemoryStore()
    numbers = [(1.0, 2.0), (None, None), (1.0, math.nan), (-0.0, 0.0)]
    columns = {
        "obj_name": pa.array([f"/d/{n}#1" for n in range(4)]),
        "x_minmax_1": pa.array([{"min": a, "max": b} for a, b in numbers]),
        **{each["name"]: pa.array([{"min": "a", "max": "b"}] * 4) for each in others},
    }
    spark = [field("obj_name", "string", {"version": 4, "tableIdentifier": "/d"}), minmax("x", "double", "x_minmax_1")]
    put(store, "part-0.parquet", [*spark, *others], pa.table(columns))
    found = load_location(store, "md/").rows.column("x_minmax_1").to_pylist()
    suspicious = ["(1.0, nan)", "None", "(1.0, nan)", "(-0.0, nan)"]
    plain = list(map(str, numbers))
    assert [str(row and (row["min"], row["max"])) for row in found] == (plain if others else suspicious)
