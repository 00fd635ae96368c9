"""Streams of upserts and changelogs into a root dataset: pushed, polled, distributed and verified."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from kubothek.errors import MergeInvalid, SchemaMismatch
from kubothek.odf import Layout, verify
from kubothek.odf.dataset import Root, Table, Types, again, create, import_chain
from kubothek.odf.distributed.work import can_spread
from kubothek.odf.ingest import push_files
from kubothek.odf.sources.readers.content import FileContent
from kubothek.odf.spec.events import AddPushSource, SetPollingSource, SetVocab, SourceState
from kubothek.odf.spec.sources import (
    FetchStepUrl,
    MergeStrategy,
    MergeStrategyChangelogStream,
    MergeStrategyUpsertStream,
    ReadStepCsv,
)
from kubothek.odf.sync import StoreRepository, pull
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.table.scan.read import scan
from tests.faultstore import Crash, FaultStore, every_crash
from tests.odf.dataset.planes import APPEND, LAYOUT, OWNER, UUID, begun, made, opened, planes, sound, source, table
from tests.odf.vectors import GOLDEN

Stream: TypeAlias = MergeStrategyUpsertStream | MergeStrategyChangelogStream
UPSERTS = MergeStrategyUpsertStream(primary_key=("id",))
CHANGELOG = MergeStrategyChangelogStream(primary_key=("id",))
CSV = ReadStepCsv(ddl_schema=("id INT", "model STRING", "op INT"), header=True)


def ops(*values: int) -> pa.Array[Any]:
    return pa.array(values, pa.int32())


@pytest.mark.requirement("MS-08", "MS-09")
@pytest.mark.parametrize("merge", [UPSERTS, CHANGELOG], ids=lambda merge: merge.kind)
def test_stream_is_ingested_verified_and_read(store: Store, merge: MergeStrategy) -> None:
    root = made(store, merge, types=Types.SPEC)
    root.push(planes({1: "A", 2: "B", 3: "C"}, op=ops(0, 0, 0)))
    if merge is UPSERTS:
        assert root.push(planes({1: "A", 2: "B2", 3: None}, op=ops(0, 0, 1))).records == 3
        assert root.push(planes({1: "A", 2: "B2"})).up_to_date
    else:
        changes = pa.table({"id": pa.array([2, 2, 3], pa.int32()), "model": ["B", "B2", "C"], "op": ops(2, 3, 1)})
        assert opened(store).push(again(changes)).records == 3
        with pytest.raises(MergeInvalid, match="no record with this key exists"):
            opened(store).push(again(changes.slice(2)))
    assert table(store) == {1: "A", 2: "B2"}
    assert sound(store).records == 6


@pytest.mark.requirement("MS-08")
@pytest.mark.parametrize("keep", [True, False], ids=["table", "slices"])
def test_corrections_after_compaction_are_applied(store: Store, keep: bool) -> None:
    root = made(store, UPSERTS, **({} if keep else {"table": None}))
    for number in range(3):
        root.push(planes({1: f"v{number}", number + 2: "x"}))
    assert root.push(planes({1: "v2", 4: "x"})).up_to_date
    assert sound(store).records == 3 + 1 + 2 * 2
    opened(store).compact()
    assert opened(store).push(planes({1: "v3", 2: None}, op=ops(0, 1))).records == 3
    sound(store)
    if keep:
        assert table(store) == {1: "v3", 3: "x", 4: "x"}


@pytest.mark.requirement("MS-08")
def test_pushed_file_upserts_and_deletes(store: Store) -> None:
    root = create(store, DatasetLog(store, UUID), begun(AddPushSource(source_name="d", read=CSV, merge=UPSERTS)), OWNER)
    first = FileContent.of_bytes(b"id,model,op\n1,A,0\n2,B,0\n2,C,0\n", "planes.csv")
    assert push_files(root, [first], "d").records == 4
    assert push_files(root, [FileContent.of_bytes(b"id,model,op\n1,,1\n2,C,0\n9,,1\n", "planes.csv")], "d").records == 1
    assert table(store) == {2: "C"}
    with pytest.raises(MergeInvalid, match="row 1 has the operation 5"):
        push_files(root, [FileContent.of_bytes(b"id,model,op\n1,A,5\n", "planes.csv")], "d")
    sound(store)


@pytest.mark.requirement("MS-08")
def test_polled_stream_resumes_from_source_state(store: Store) -> None:
    polling = SetPollingSource(fetch=FetchStepUrl(url="https://example.org/x"), read=CSV, merge=UPSERTS)
    root = create(store, DatasetLog(store, UUID), begun(polling), OWNER)
    states = [SourceState(source_name="default", kind="odf/etag", value=value) for value in "ab"]
    root.add_polled(planes({1: "A"}, op=ops(0)), states[0])
    done = root.add_polled(planes({1: "A", 2: "B"}, op=ops(0, 1)), states[1])
    assert (done.records, opened(store).state.source_states["default"]) == (0, states[1])
    root.add_polled(planes({1: "B"}), states[1])
    assert table(store) == {1: "B"}
    sound(store)


@pytest.mark.requirement("SV-01", "MS-09")
def test_operation_column_has_name_of_vocabulary(store: Store) -> None:
    vocabulary = SetVocab(operation_type_column="change")
    root = create(store, DatasetLog(store, UUID), begun(vocabulary, source(CHANGELOG)), OWNER)
    root.push(planes({1: "A"}, change=ops(0)))
    root.push(planes({1: "A"}, change=ops(1)))
    with pytest.raises(SchemaMismatch, match="no column 'change' for their operations"):
        root.push(planes({1: "A"}, op=ops(0)))
    assert table(store) == {}
    sound(store)


def imported(store: Store, name: str) -> Root:
    """A chain of the reference: snapshots of cities."""
    log = DatasetLog(store, "golden")
    import_chain(store, log, open_store(StoreConfig((GOLDEN / "newest" / name).as_uri())), table=Table())
    return Root(store, log)


@pytest.fixture
def golden(store: Store) -> Root:
    """One with a push source of upserts."""
    return imported(store, "upsert")


def records(root: Root) -> list[dict[str, Any]]:
    names = ["op", "event_time", "city", "population"]
    return [row for batch in root.history.scan([*names, "system_time"]) for row in batch.to_pylist()]


@pytest.mark.requirement("MS-08", "MS-09")
@pytest.mark.parametrize("merge", [UPSERTS, CHANGELOG], ids=lambda merge: merge.kind)
def test_streams_give_records_of_reference_chain(store: Store, golden: Root, merge: Stream) -> None:
    """Its changes are a changelog; without the old values, and with cities that stay the same, they are upserts."""
    root, state = made(store, replace(merge, primary_key=("city",))), dict[str, dict[str, Any]]()
    for _, changes in groupby(records(golden), key=lambda row: row["system_time"]):
        given = [{**row, "system_time": None} for row in changes]
        if merge is UPSERTS:
            given = [{**row, "op": 0 if row["op"] == 3 else row["op"]} for row in given if row["op"] != 2]
            same = [row for city, row in state.items() if city not in {each["city"] for each in given}]
            state |= {row["city"]: row for row in given}
            given = [*reversed(given), *(row for row in same if row["op"] == 0)]
        rows = pa.Table.from_pylist(given).drop_columns(["system_time"])
        root.push(again(rows.cast(rows.schema.set(0, pa.field("op", pa.int32())))))
    ours, theirs = ([{**row, "system_time": None} for row in records(each)] for each in (root, golden))
    assert ours == theirs
    sound(store)


@pytest.mark.requirement("MS-08")
def test_upserts_continue_reference_chain(store: Store, golden: Root) -> None:
    content = FileContent.of_bytes(b'{"city": "A", "population": 3}\n{"city": "E", "population": 1}\n', "cities.ndjson")
    assert push_files(golden, [content], "upserts").records == 3
    assert push_files(golden, [content], "upserts").up_to_date
    assert [(row["op"], row["city"], row["population"]) for row in records(golden)[-3:]] == [
        (2, "A", 2),
        (3, "A", 3),
        (0, "E", 1),
    ]
    assert verify(store, Layout(keys.chain("golden"))).sound


@pytest.mark.requirement("MS-08")
def test_upserts_continue_chain_with_odf_schema(store: Store, other: Store) -> None:
    root, layout = imported(store, "snapshot-merge-odf-schema"), Layout(keys.chain("golden"))
    merge = replace(UPSERTS, primary_key=("city",))
    root.append_events([AddPushSource(source_name="upserts", read=CSV, merge=merge)])
    for population, records_made in ((7, 5), (None, 6)):
        rows = pa.table({"city": ["A", "E", "E"], "population": [population, 1, 2], "op": ops(0, 0, 0)})
        assert root.push(again(rows), "upserts").records == records_made
    pull(other, DatasetLog(other, "copy"), StoreRepository(store, layout), table=Table())
    tables = [
        scan(each, DatasetLog(each, name).snapshot()).read_all().sort_by("offset")
        for each, name in ((store, "golden"), (other, "copy"))
    ]
    assert tables[0].equals(tables[1])
    assert dict(zip(*tables[0].select(["city", "population"]).to_pydict().values(), strict=True)) == {"A": None, "E": 2}
    assert verify(other, Layout(keys.chain("copy"))).sound


@pytest.mark.requirement("MS-08")
def test_record_added_and_retracted_in_one_batch_is_not_in_table(store: Store, other: Store, tmp_path: Path) -> None:
    """A copy grows by pulls, another one is made at the end: records that passed are in neither table."""
    (tmp_path / "fresh").mkdir()
    fresh = open_store(StoreConfig((tmp_path / "fresh").as_uri()))
    root, source_of = made(store, UPSERTS), StoreRepository(store, LAYOUT)
    for number, models in enumerate(("A", "BA", "ABC", "AA")):
        rows = pa.table({"id": pa.array([1, 2, *[1] * len(models)], pa.int32()), "model": [*"xy", *models]})
        root.push(again(rows.append_column("op", ops(0, number % 2, *[0] * len(models)))))
        pull(other, DatasetLog(other, UUID), source_of, table=Table())
    pull(fresh, DatasetLog(fresh, UUID), source_of, table=Table())
    assert table(store) == table(other) == table(fresh) == {1: "A"}
    assert sound(other).records == sound(store).records > 10


@pytest.mark.requirement("REQ-06")
def test_corrections_after_crash_at_any_call_happen_once(store: Store, other: Store, tmp_path: Path) -> None:
    made(store, UPSERTS).push(planes({1: "A", 2: "B"}))

    def correct(store: Store) -> None:
        Root(store, DatasetLog(store, UUID)).push(planes({1: "C", 2: "B", 3: "D"}, op=ops(0, 1, 0)), commit_id="once")

    for info in store.list(""):
        other.put(info.key, store.get(info.key))
    counting = FaultStore(other)
    correct(counting)
    for number, fault in enumerate([*every_crash(counting.calls)][::5]):
        (tmp_path / str(number)).mkdir()
        copy = open_store(StoreConfig((tmp_path / str(number)).as_uri()))
        for info in store.list(""):
            copy.put(info.key, store.get(info.key))
        with pytest.raises(Crash):
            correct(FaultStore(copy, fault))
        correct(copy)
        assert table(copy) == {1: "C", 3: "D"}, fault
        assert sound(copy).records == 6, fault


def test_other_strategies_still_refuse_a_column_of_operations(store: Store) -> None:
    root = made(store, APPEND)
    with pytest.raises(SchemaMismatch, match="'op', which is the ledger's own"):
        root.push(planes({1: "A"}, op=ops(0)))


def test_streams_are_merged_in_one_process() -> None:
    assert [can_spread(merge) for merge in (APPEND, UPSERTS, CHANGELOG)] == [True, False, False]
