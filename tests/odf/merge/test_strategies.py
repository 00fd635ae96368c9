"""Merge strategies against ODF 0.34.1, "Merge Strategies", record by record."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import DataTypeMismatch, InputError, MergeInvalid, SchemaMismatch
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyLedger,
    MergeStrategySnapshot,
)
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.state import Vocabulary
from kubothek.storage import Store
from tests.odf.merge.world import MS, Model, World, columns, moment, shown

pytestmark = pytest.mark.slow

NAN = float("nan")
APPEND = MergeStrategyAppend()
LEDGER = MergeStrategyLedger(primary_key=("k",))
SNAPSHOT = MergeStrategySnapshot(primary_key=("k",))
COLUMNS = columns(k=pa.string(), v=pa.float64())


def row(k: Any, v: Any = None, at: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"event_time": None if at is None else moment(at), "k": k, "v": v, **more}


@pytest.mark.requirement("MS-01")
def test_append_orders_rows_by_event_time_with_nulls_first(store: Store) -> None:
    world = World(store, COLUMNS)
    given = [row("b", 1, 5), row("a", 2, 3), row("a", 2, 3), row("c", 3, None), row("d", NAN, 5)]
    found, merged = world.merged(APPEND, given)
    assert shown(found, "op", "k", "event_time") == [
        (0, "c", world.now),
        (0, "a", moment(3)),
        (0, "a", moment(3)),
        (0, "b", moment(5)),
        (0, "d", moment(5)),
    ]
    assert merged.counts == {0: 5}
    assert not merged.retracts
    in_order, _ = world.merged(APPEND, [row("x", 1, None), row("y", 1, 1), row("z", 1, 1), row("w", 1, 2)])
    assert [each["k"] for each in in_order] == ["x", "y", "z", "w"]


@pytest.mark.requirement("MS-02", "MS-03")
@pytest.mark.parametrize("table", [True, False])
def test_ledger_adds_only_rows_with_new_keys(store: Store, table: bool) -> None:
    world = World(store, COLUMNS, table=table)
    assert world.ingest(LEDGER, [row("a", 1, 3), row("b", 2, 1), row(None, 3, 2), row("a", 9, 0)]) == 3
    assert shown(world.records(), "k", "v") == [("b", 2), (None, 3), ("a", 1)]
    assert world.ingest(LEDGER, [row("a", 7, 9), row("b", 7, 9), row(None, 7, 9)]) == 0
    assert world.ingest(LEDGER, [row(None, 7, 9), row("", 8, 8), row("a", 7, 7), row("c", 9, 7)]) == 2
    assert shown(world.records()[3:], "k", "v") == [("c", 9), ("", 8)]
    # What was taken back was seen as well.
    world.ingest(SNAPSHOT, [row("c", 9, 7)])
    assert {each["k"] for each in world.shown_by_slices()} == {"c"}
    assert world.ingest(LEDGER, [row("a", 1, 1), row(None, 1, 1), row("d", 1, 1)]) == 1


@pytest.mark.requirement("MS-02")
def test_ledger_composite_key_handles_nulls_nans_and_zeros(store: Store) -> None:
    world = World(store, columns(k=pa.float64(), d=pa.date32(), v=pa.decimal128(38, 10)))
    both = MergeStrategyLedger(primary_key=("k", "d"))
    day, big = date(1969, 7, 20), Decimal("9" * 28 + ".0000000001")

    def some(k: Any, d: Any) -> dict[str, Any]:
        return {"event_time": moment(0), "k": k, "d": d, "v": big}

    first = [some(NAN, day), some(0.0, day), some(None, day), some(None, None), some(1.5, None), some(NAN, None)]
    assert world.ingest(both, first) == 6
    again = [some(NAN, day), some(-0.0, day), some(None, day), some(None, None), some(1.5, None), some(NAN, None)]
    assert world.ingest(both, again) == 0
    assert world.ingest(both, [some(0.0, None), *again, some(1.5, day), some(-0.0, None)]) == 2
    assert {each["v"] for each in world.shown_by_table()} == {big}


@pytest.mark.requirement("MS-04", "MS-05", "MS-06")
@pytest.mark.parametrize("table", [True, False])
def test_snapshot_merge_yields_appends_retractions_and_corrections(store: Store, table: bool) -> None:
    world = World(store, COLUMNS, table=table)
    world.ingest(SNAPSHOT, [row("c", 3, 1), row("a", 1, 1), row("b", 2, None), row("n", None, 1), row(None, None, 1)])
    first = world.now
    assert shown(world.records(), "op", "k", "v", "event_time") == [
        (0, "a", 1, moment(1)),
        (0, "b", 2, first),
        (0, "c", 3, moment(1)),
        (0, "n", None, moment(1)),
        (0, None, None, moment(1)),
    ]
    given = [row("b", 2, None), row("c", 4, 7), row("d", None, None), row("n", None, 8), row(None, None, None)]
    found, merged = world.merged(SNAPSHOT, given)
    assert shown(found, "op", "k", "v", "event_time") == [
        (1, "a", 1, moment(1)),
        (2, "c", 3, moment(1)),
        (3, "c", 4, moment(7)),
        (0, "d", None, world.now),
        (2, "n", None, moment(1)),
        (3, "n", None, moment(8)),
    ]
    assert merged.counts == {0: 1, 1: 1, 2: 2, 3: 2}
    assert merged.retracts
    world.ingest(SNAPSHOT, given)
    assert world.ingest(SNAPSHOT, given) == 0
    assert world.ingest(SNAPSHOT, []) == 5
    assert world.shown_by_slices() == []
    if table:
        assert world.shown_by_table() == []


@pytest.mark.requirement("MS-04")
def test_snapshot_merge_detects_changes_of_null_rows_and_key_only_tables(store: Store) -> None:
    """What the reference does not see after the first round."""
    keys_only = World(store, columns(k=pa.int64(), l=pa.int64()), uuid="keys")
    both = MergeStrategySnapshot(primary_key=("k", "l"))
    for given, expected in (
        ([(None, 1), (None, 2), (1, None)], 3),
        ([(None, 1), (None, 3), (1, None)], 2),
        ([(None, 1), (None, 3), (1, None)], 0),
        ([(None, None)], 4),
    ):
        found = keys_only.ingest(both, [{"event_time": moment(0), "k": k, "l": value} for k, value in given])
        assert found == expected
    nulls = World(store, COLUMNS, uuid="nulls")
    nulls.ingest(SNAPSHOT, [row("a")])
    assert nulls.ingest(SNAPSHOT, [row("a"), row("b")]) == 1
    assert nulls.ingest(SNAPSHOT, [row("a", 1.0), row("b")]) == 2
    assert nulls.ingest(SNAPSHOT, [row("a", None), row("b")]) == 2


@pytest.mark.requirement("MS-04")
def test_snapshot_merge_compares_only_configured_columns(store: Store) -> None:
    world = World(store, columns(k=pa.string(), v=pa.float64(), w=pa.int64()))
    by_w = replace(SNAPSHOT, compare_columns=("w",))
    world.ingest(by_w, [row("a", 1, w=1), row("b", 1, w=1)])
    assert world.ingest(by_w, [row("a", 2, 9, w=1), row("b", 1, w=1)]) == 0
    found, _ = world.merged(by_w, [row("a", 2, 9, w=1), row("b", 2, 9, w=2)])
    assert shown(found, "op", "k", "v", "w") == [(2, "b", 1, 1), (3, "b", 2, 2)]


@pytest.mark.requirement("MS-04")
def test_snapshot_merge_compares_values_like_sql(store: Store) -> None:
    nested = pa.struct([("x", pa.list_(pa.float32())), ("y", MS)])
    world = World(store, columns(k=pa.int32(), f=pa.float32(), d=pa.decimal128(5, 2), s=nested))

    def some(k: int, f: Any, d: str | None, s: Any) -> dict[str, Any]:
        return {"event_time": moment(0), "k": k, "f": f, "d": d and Decimal(d), "s": s}

    deep = {"x": [1.0, None, NAN], "y": moment(0)}
    given = [some(1, NAN, "1.50", deep), some(2, 0.0, None, None), some(3, 0.1, "-0.01", {"x": [], "y": None})]
    assert world.ingest(SNAPSHOT, given) == 3
    again = [some(1, NAN, "1.50", deep), some(2, -0.0, None, None), some(3, 0.1, "-0.01", {"x": [], "y": None})]
    assert world.ingest(SNAPSHOT, again) == 0
    changed = [some(1, NAN, "1.50", {**deep, "x": [1.0, None]}), some(2, 0.0, None, {"x": None, "y": None})]
    assert world.ingest(SNAPSHOT, [*changed, some(3, 0.1, "0.00", {"x": [], "y": None})]) == 6
    assert shown(world.shown_by_table()) == shown(world.shown_by_slices())


@pytest.mark.requirement("MS-04")
def test_snapshot_after_other_strategy_uses_last_record_of_each_key(store: Store) -> None:
    world, model = World(store, COLUMNS), Model()
    for strategy, rows in (
        (APPEND, [row("a", 1), row("a", 2, 1), row("b", 1), row("b", 1)]),
        (SNAPSHOT, [row("a", 3, 2), row("b", 1, 0)]),
        (SNAPSHOT, [row("b", 1, 0)]),
        (APPEND, [row("a", 4, 4)]),
        (SNAPSHOT, [row("a", 5, 5)]),
    ):
        expected = model.ingest(strategy, rows, moment(1000))
        found, _ = world.merged(strategy, rows)
        assert shown(found, "op", "k", "v", "event_time") == shown(expected, "op", "k", "v", "event_time")
        world.ingest(strategy, rows)
        assert shown(world.shown_by_table(), "k", "v") == shown(model.state(), "k", "v")
        assert world.shown_by_table() == world.shown_by_slices()


@pytest.mark.requirement("MS-07")
def test_snapshot_event_time_can_be_date_and_part_of_key(store: Store) -> None:
    all_of_them = columns(day=pa.date32(), k=pa.string())
    names = Vocabulary(offset="nr", op="what", system_time="known", event_time="day")
    daily = MergeStrategySnapshot(primary_key=("day", "k"))

    class Days(World):
        @property
        def columns(self) -> pa.Schema:
            return all_of_them

    world = Days(store, all_of_them, names=names)
    given: list[dict[str, Any]] = [{"day": None, "k": "a"}, {"day": date(2023, 12, 31), "k": "a"}]
    assert world.ingest(daily, given) == 2
    assert sorted(each["day"] for each in world.records()) == sorted([date(2023, 12, 31), world.now.date()])
    assert world.ingest(daily, [{"day": world.now.date(), "k": "a"}, given[1]]) == 0


@pytest.mark.requirement("MS-04")
@pytest.mark.parametrize(
    ("strategy", "rows", "error", "says"),
    [
        (MergeStrategyLedger(primary_key=("id",)), [], MergeInvalid, "names column 'id'"),
        (MergeStrategyLedger(primary_key=()), [], MergeInvalid, "names no column"),
        (MergeStrategyLedger(primary_key=("k", "k")), [], MergeInvalid, "'k' twice"),
        (MergeStrategySnapshot(primary_key=("id",)), [], MergeInvalid, "names column 'id'"),
        (replace(SNAPSHOT, compare_columns=("z",)), [], MergeInvalid, "compareColumns names column 'z'"),
        (SNAPSHOT, [row("a"), row("b"), row("a", 2)], MergeInvalid, "the key k = 'a' occurs 2 times.*first in row 1"),
        (SNAPSHOT, [row("b"), row(None), row(None, 2)], MergeInvalid, "the key k = None occurs 2 times"),
        (Unknown(tag=5), [], InputError, "later version"),
    ],
)
def test_merge_strategy_refuses_invalid_input_before_reading_rows(
    store: Store, strategy: MergeStrategy, rows: list[dict[str, Any]], error: type[Exception], says: str
) -> None:
    world = World(store, COLUMNS)
    with pytest.raises(error, match=says):
        world.merged(strategy, rows)


@pytest.mark.requirement("WR-07")
def test_merge_refuses_columns_that_do_not_match_ledger(store: Store) -> None:
    world = World(store, COLUMNS)
    world.ingest(SNAPSHOT, [row("a", 1)])
    other = world.batch([row("a", 1)])
    with pytest.raises(SchemaMismatch, match=r"'v' .double. of the ledger is missing"):
        world.merged(SNAPSHOT, other.drop_columns(["v"]))
    with pytest.raises(SchemaMismatch, match="'v' is int64 in the new records and double"):
        world.merged(APPEND, other.set_column(2, "v", pa.array([1])))
    with pytest.raises(SchemaMismatch, match="no column 'event_time'"):
        world.merged(APPEND, other.drop_columns(["event_time"]))
    with pytest.raises(MergeInvalid, match="a key has plain values"):
        world.merged(MergeStrategyLedger(primary_key=("x",)), other.append_column("x", pa.array([[1]])))
    halves = pa.list_(pa.float16())
    with pytest.raises(DataTypeMismatch, match="'x': records with halffloat"):
        world.merged(APPEND, other.append_column("x", pa.array([[1.0]], halves)))


def test_merge_keeps_columns_of_unusual_types_unchanged(store: Store) -> None:
    """Types that the database does not have, names that differ in case only, and what no microsecond can tell."""
    kinds: list[pa.DataType] = [
        pa.float16(),
        pa.decimal256(50, 2),
        pa.decimal32(5, 2),
        pa.binary(3),
        pa.large_string(),
        pa.time32("ms"),
        pa.time64("ns"),
        pa.date64(),
        pa.timestamp("ns"),
        MS,
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(MS),
        pa.map_(pa.string(), pa.int8()),
        pa.uuid(),
        pa.uint64(),
    ]
    fields = [pa.field(f"X{n}" if n % 2 else f"x{n - 1}", kind) for n, kind in enumerate(kinds, 1)]
    schema = pa.schema([pa.field("k", pa.int64()), *fields])
    nothing: Any = pa.nulls
    values = pa.table([pa.array([2, 1]), *(nothing(2, f.type) for f in fields)], schema=schema)
    far: Any = pa.array([2**62, -(2**62)]).cast(MS)
    values = values.set_column(schema.get_field_index("x9"), pa.field("x9", MS), far)
    table = values.add_column(0, pa.field("event_time", MS), pa.array([moment(2), moment(1)], MS))
    world = World(store, schema)
    for strategy in (APPEND, LEDGER, SNAPSHOT):
        with world.scratch() as scratch:
            found = world.merge(strategy, table, scratch).rows.read_all()
        assert found.schema.names[1:-1] == table.schema.names
        assert found.drop_columns(["op", "__retracts"]).equals(table.take([1, 0]))
