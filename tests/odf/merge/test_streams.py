"""UpsertStream and ChangelogStream, event by event (RFC-015 of Open Data Fabric 0.39), and what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from kubothek.errors import MergeInvalid, SchemaMismatch, StoreError, VersionIncomplete
from kubothek.odf.spec.sources import (
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
)
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view import keys, wanted_indices
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.indexes.object_cache import OpenedFile
from kubothek.table.layout import Layout
from tests.odf.merge.test_keys import VALUES
from tests.odf.merge.world import Record, World, columns, moment, shown

pytestmark = pytest.mark.slow

NAN = float("nan")
Stream: TypeAlias = MergeStrategyUpsertStream | MergeStrategyChangelogStream
UPSERTS = MergeStrategyUpsertStream(primary_key=("k",))
CHANGELOG = MergeStrategyChangelogStream(primary_key=("k",))
COLUMNS = columns(k=pa.string(), v=pa.float64())


def event(k: Any, v: Any = None, at: int | None = 0, op: Any = 0, **more: Any) -> Record:
    return {"event_time": None if at is None else moment(at), "k": k, "v": v, "op": op, **more}


@pytest.mark.requirement("MS-08")
@pytest.mark.parametrize("table", [True, False])
def test_upserts_are_classified_by_stored_record(store: Store, table: bool) -> None:
    world = World(store, COLUMNS, table=table)
    world.ingest(UPSERTS, [event("b", 1), event("a", 1), event("c", 1), event(None, 1), event("x", op=1)])
    assert shown(world.records(), "op", "k", "v") == [(0, "a", 1), (0, "b", 1), (0, "c", 1), (0, None, 1)]
    given = [event("d", 4), event("b", 1), event("c", 9, op=1), event("a", 2, 5), event(None, 2), event("x", op=1)]
    found, merged = world.merged(UPSERTS, given)
    assert shown(found, "op", "k", "v", "event_time") == [
        (2, "a", 1, moment(0)),
        (3, "a", 2, moment(5)),
        (1, "c", 1, moment(0)),
        (0, "d", 4, moment(0)),
        (2, None, 1, moment(0)),
        (3, None, 2, moment(0)),
    ]
    assert merged.counts == {0: 1, 1: 1, 2: 2, 3: 2}
    world.ingest(UPSERTS, given)
    assert world.ingest(UPSERTS, given) == 0
    assert world.ingest(UPSERTS, []) == 0
    assert world.ingest(UPSERTS, [event("c", 1)]) == 1
    assert shown(world.records()[-1:], "op", "k", "v") == [(0, "c", 1)]


@pytest.mark.requirement("MS-08")
def test_upserts_of_one_key_in_batch_are_compared_in_order(store: Store) -> None:
    world = World(store, COLUMNS)
    world.ingest(UPSERTS, [event("a", 1)])
    given = [event("a", 2), event("b", 1, op=1), event("a", 2), event("b", 1), event("a", 1), event("b", op=1)]
    found, _ = world.merged(UPSERTS, given)
    assert shown(found, "op", "k", "v") == [
        (2, "a", 1),
        (3, "a", 2),
        (2, "a", 2),
        (3, "a", 1),
        (0, "b", 1),
        (1, "b", 1),
    ]
    assert [row["__retracts"] for row in found] == [0, -1, -1, None, -1, -1]
    world.ingest(UPSERTS, given)
    assert shown(world.shown_by_table(), "offset", "k", "v") == [(4, "a", 1)]
    assert world.shown_by_table() == world.shown_by_slices()


@pytest.mark.requirement("MS-08")
def test_upsert_batch_without_operation_column_has_no_deletes(store: Store) -> None:
    world = World(store, COLUMNS)
    rows = [{"event_time": moment(0), "k": "a", "v": value} for value in (1, 1, 2)]
    assert world.ingest(UPSERTS, rows) == 3
    assert shown(world.records(), "op", "v") == [(0, 1), (2, 1), (3, 2)]


@pytest.mark.requirement("MS-05", "MS-08")
def test_upsert_without_event_time_keeps_event_time_of_record(store: Store) -> None:
    world = World(store, COLUMNS)
    given = [event("a", 1, None), event("a", 1, None), event("b", 1, 5), event("b", 1, None), event("b", 1, 5)]
    assert world.ingest(UPSERTS, given) == 2
    assert shown(world.records(), "k", "event_time") == [("a", world.now), ("b", moment(5))]
    first = world.now
    assert world.ingest(UPSERTS, [event("a", 1, None), event("b", 1, 6)]) == 2
    assert world.ingest(UPSERTS, [event("a", 2, None)]) == 2
    assert shown(world.records()[2:], "op", "k", "event_time") == [
        (2, "b", moment(5)),
        (3, "b", moment(6)),
        (2, "a", first),
        (3, "a", world.now),
    ]


@pytest.mark.requirement("MS-08")
def test_upserts_compare_nulls_nans_and_zeros_as_sql(store: Store) -> None:
    world = World(store, columns(k=pa.float64(), v=pa.float64()))
    given = [event(NAN, NAN), event(0.0, 0.0), event(None, None)]
    assert world.ingest(UPSERTS, given) == 3
    assert world.ingest(UPSERTS, [event(NAN, NAN), event(-0.0, -0.0), event(None, None)]) == 0
    assert world.ingest(UPSERTS, [event(-0.0, 1.0), event(0.0, 2.0), event(NAN, 1.0), event(None, op=1)]) == 7
    assert shown(world.shown_by_table()) == shown(world.shown_by_slices()) != []
    assert [str(row["v"]) for row in world.records() if row["op"] == 2 and row["k"] == 0] == ["0.0", "1.0"]


@pytest.mark.requirement("MS-09")
def test_changelog_events_become_records_in_order(store: Store) -> None:
    world = World(store, COLUMNS)
    given = [
        event("b", 1, 7),
        event("a", 1, 3),
        event("b", 1, 7, op=2),
        event("b", 2, 1, op=3),
        event("b", 2, 1, op=2),
        event("b", 3, 9, op=3),
        event("a", 1, 3, op=1),
        event("a", 5, 3),
    ]
    assert world.ingest(CHANGELOG, given) == len(given)
    assert shown(world.records(), "op", "k", "v", "event_time") == shown(given, "op", "k", "v", "event_time")
    assert shown(world.shown_by_table(), "k", "v") == [("b", 3), ("a", 5)]
    found, merged = world.merged(CHANGELOG, [event("b", 3, None, op=2), event("b", 3, None, op=3)])
    assert shown(found, "op", "event_time") == [(2, moment(9)), (3, world.now)]
    assert merged.counts == {2: 1, 3: 1}
    world.ingest(CHANGELOG, [event("b", 3, 9, op=1), event("c", 1)])
    assert shown(world.shown_by_table(), "k", "v") == [("a", 5), ("c", 1)]
    assert world.shown_by_table() == world.shown_by_slices()


@pytest.mark.requirement("MS-09")
@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([event("b", 1), event("a", 2)], "row 2 with the key k = 'a' has the operation 0 .+A., but .* exists already"),
        ([event("b", 1), event("b", 1)], "row 2 with the key k = 'b' .* exists already"),
        ([event("b", 1, op=1)], "row 1 with the key k = 'b' has the operation 1 .-R., but no record with this key"),
        ([event("a", 1, op=1), event("a", 1, op=1)], "row 2 .* no record with this key exists"),
        ([event("a", 2, op=1)], "row 1 .* has other values"),
        ([event("a", 1, 4, op=1)], "row 1 .* has other values"),
        ([event("a", 1, op=2)], "row 1 .*2 .-C., but a -C comes right before"),
        ([event("a", 1, op=2), event("b", 2), event("a", 2, op=3)], "row 1 .*2 .-C., but a -C comes right before"),
        ([event("a", 1, op=2), event("b", 2, op=3)], "row 1 .*2 .-C., but a -C comes right before"),
        ([event("b", 2, op=3)], "row 1 .*3 .\\+C., but a \\+C follows"),
        ([event("a", 2, op=3)], "row 1 .*3 .\\+C., but a \\+C follows"),
        ([event("b"), event("b", op=None)], "row 2 has the operation None; it must be 0 .+A. or 1 .-R. or 2"),
        ([event("b"), event("b", op=4)], "row 2 has the operation 4"),
        ([event("b"), event("b", op=-1)], "row 2 has the operation -1"),
    ],
)
def test_inconsistent_changelog_is_refused(store: Store, events: Sequence[Record], says: str) -> None:
    world = World(store, COLUMNS)
    world.ingest(CHANGELOG, [event("a", 1)])
    before = world.snapshot.version
    with pytest.raises(MergeInvalid, match=f"merge strategy ChangelogStream: {says}"):
        world.ingest(CHANGELOG, events)
    assert world.snapshot.version == before


@pytest.mark.requirement("MS-08")
@pytest.mark.parametrize("op", [2, 3, 9, None])
def test_upsert_with_unknown_operation_is_refused(store: Store, op: int | None) -> None:
    world = World(store, COLUMNS)
    with pytest.raises(
        MergeInvalid, match=rf"UpsertStream: row 2 has the operation {op}; it must be 0 .\+A. or 1 .-R."
    ):
        world.merged(UPSERTS, [event("a"), event("b", op=op)])


@pytest.mark.parametrize("strategy", [UPSERTS, CHANGELOG])
def test_streams_need_key_columns_and_whole_numbers(store: Store, strategy: Stream) -> None:
    world, given = World(store, COLUMNS), [event("a", 1)]
    for key, says in ((("id",), "names column 'id'"), ((), "names no column"), (("op",), "names column 'op'")):
        with pytest.raises(MergeInvalid, match=says):
            world.merged(replace(strategy, primary_key=key), given)
    batch = world.batch(given)
    for wrong in (pa.array(["+A"]), pa.array([0.0]), pa.array([False]), pa.nulls(1)):
        with pytest.raises(SchemaMismatch, match=f"column 'op' has operations, but is of type {wrong.type}"):
            world.merged(strategy, batch.set_column(3, "op", wrong))
    for kind in (pa.int8(), pa.uint8(), pa.int64(), pa.uint64()):
        found, _ = world.merged(strategy, batch.set_column(3, "op", pa.array([0], kind)))
        assert shown(found, "op", "k", "v") == [(0, "a", 1)]


@pytest.mark.requirement("MS-09")
def test_changelog_without_operation_column_is_refused(store: Store) -> None:
    world = World(store, COLUMNS)
    with pytest.raises(
        SchemaMismatch, match="have no column 'op' for their operations; they have 'event_time', 'k', 'v'"
    ):
        world.merged(CHANGELOG, [{"event_time": moment(0), "k": "a", "v": 1}])


@pytest.mark.requirement("SV-01", "MS-08")
def test_operation_column_of_batch_has_name_of_vocabulary(store: Store) -> None:
    names = Vocabulary(offset="nr", op="what", system_time="known", event_time="event_time")
    world = World(store, columns(k=pa.string(), op=pa.string()), names=names)
    assert world.ingest(UPSERTS, [{"event_time": moment(0), "k": "a", "op": "x", "what": 0}]) == 1
    assert world.ingest(UPSERTS, [{"event_time": moment(0), "k": "a", "op": None, "what": 1}]) == 1
    assert shown(world.records(), "what", "op") == [(0, "x"), (1, "x")]


@pytest.mark.requirement("MS-08")
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_records_of_keys_of_every_type_are_found(store: Store, kind: pa.DataType, values: list[Any]) -> None:
    world = World(store, columns(p=pa.int64(), k=kind, v=pa.int64()), Layout(partition_on=("p",)))
    given = [{"event_time": moment(0), "p": 1, "k": value, "v": 1} for value in dict.fromkeys(values[:4])]
    world.ingest(UPSERTS, given)
    for key in (("k",), ("p", "k")):
        found = world.merged(MergeStrategyUpsertStream(primary_key=key), [{**row, "v": 7} for row in given])[1]
        assert found.counts == {2: len(given), 3: len(given)}


@pytest.mark.requirement("MS-08")
def test_upserts_read_only_files_with_their_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(store, columns(k=pa.int64(), v=pa.float64()))
    for start in range(0, 400, 100):
        world.ingest(UPSERTS, [event(k, 0.0) for k in range(start, start + 100)])
    assert world.snapshot.head.index_state.kinds() == {"k": IndexKind.NATIVE}
    assert len(world.snapshot.head.partitions) == 4
    read: list[str] = []
    real: Any = vars(keys)["open_files"]

    def watched(filesystem: Any, names: Any, schema: Any, **more: Any) -> Any:
        read.extend(names)
        return real(filesystem, names, schema, **more)

    def refused(*_: Any) -> Any:
        raise AssertionError("the index is read once, for all keys")

    monkeypatch.setattr(keys, "open_files", watched)
    monkeypatch.setattr(OpenedFile, "read", refused)  # planning by a range of keys reads the index a second time
    assert world.merged(UPSERTS, [event(k, 1.0) for k in range(1000, 1010)])[1].counts == {0: 10}
    assert read == []
    assert world.merged(UPSERTS, [event(k, 1.0) for k in (150, 999)])[1].counts == {0: 1, 2: 1, 3: 1}
    assert len(read) == 1


@pytest.mark.requirement("MS-08", "MS-09")
def test_streams_keep_mark_that_keys_are_unique(store: Store) -> None:
    world = World(store, COLUMNS)
    for strategy, given in (
        (UPSERTS, [event("a", 1), event("b", 1)]),
        (CHANGELOG, [event("a", 1, op=2), event("a", 2, op=3)]),
        (MergeStrategySnapshot(primary_key=("k",)), [{"event_time": moment(0), "k": "a", "v": 3}]),
        (UPSERTS, [event("a", 3), event("a", op=1), event("b", 2)]),
    ):
        world.ingest(strategy, given)
        assert world.keyed_by == ("k",)
        world.store.delete([info.key for info in world.store.list(f"{world.uuid}-odf/data/")])
    assert shown(world.shown_by_table(), "k", "v") == [("b", 2)]
    world.ingest(MergeStrategyAppend(), [{"event_time": moment(0), "k": "z", "v": 3}])
    with pytest.raises(VersionIncomplete):
        world.ingest(UPSERTS, [event("z", 1)])


def test_streams_get_an_index_on_their_first_key_column() -> None:
    for kind in (MergeStrategyUpsertStream, MergeStrategyChangelogStream, MergeStrategyLedger):
        assert wanted_indices(kind(primary_key=("k", "v")), COLUMNS, ()) == {"k": IndexKind.NATIVE}


@pytest.mark.parametrize("strategy", [UPSERTS, MergeStrategyLedger(primary_key=("k", "v"))])
def test_lookup_in_missing_or_damaged_file_names_the_file(store: Store, strategy: Stream | MergeStrategyLedger) -> None:
    world, given = World(store, COLUMNS), [event(f"{n}", n) for n in range(10)]
    if isinstance(strategy, MergeStrategyLedger):
        given = [{name: value for name, value in row.items() if name != "op"} for row in given]
    world.ingest(strategy, given)
    ((label, file),) = world.snapshot.head.files().items()
    whole = store.get(file)
    for damaged, error, says in (
        (None, VersionIncomplete, "no longer exists"),
        (b"\0" * len(whole), StoreError, "cannot read the table"),
        (whole[:4] + b"\0" * (len(whole) // 2) + whole[4 + len(whole) // 2 :], StoreError, "cannot read the table"),
    ):
        store.delete([file])
        if damaged is not None:
            store.put(file, damaged)
        with pytest.raises(error, match=says) as raised:
            world.ingest(strategy, given)
        assert label in str(raised.value)
    store.put(file, whole)
    assert world.ingest(strategy, given) == 0


@pytest.mark.requirement("MS-08")
def test_upserts_compare_texts_read_as_dictionaries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(numbers: Sequence[int], carrier: str | None = None) -> list[Record]:
        few = (None, "", "žluť", "C")
        return [event(f"{n}", n, few=carrier or few[n % len(few)], many=f"row {n} " * 3) for n in numbers]

    real: Any = vars(keys)["open_files"]
    read: list[list[str]] = []

    def noted(*given: Any, dictionaries: Sequence[str]) -> Any:
        read.append(list(dictionaries))
        return real(*given, dictionaries=dictionaries)

    monkeypatch.setattr(keys, "open_files", noted)
    world = World(store, columns(k=pa.string(), v=pa.float64(), few=pa.string(), many=pa.string()))
    for start in range(0, 600, 100):
        assert world.ingest(UPSERTS, rows(range(start, start + 100))) == 100
    read.clear()
    assert world.ingest(UPSERTS, rows(range(600))) == 0
    assert read == [["few"]]
    assert world.ingest(UPSERTS, rows([5, 405], "new")) == 4
    assert world.shown_by_table() == world.shown_by_slices()
    (file, *_) = world.snapshot.head.files().values()
    store.delete([file])
    with pytest.raises(VersionIncomplete, match="no longer exists"):
        world.ingest(UPSERTS, rows(range(600)))
