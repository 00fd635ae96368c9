"""What a root dataset does with what it is given: events, data, state, one commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kubothek.errors import (
    DatasetExists,
    EventInvalid,
    FormatInvalid,
    IdReused,
    InputError,
    LedgerOnly,
    NotALedger,
    SchemaMismatch,
    SourceCorrupt,
)
from kubothek.odf import Timestamp
from kubothek.odf.dataset import Root, Table, Types, create, owner_key_file
from kubothek.odf.spec.events import (
    AddData,
    DatasetKind,
    DatasetSnapshot,
    DisablePollingSource,
    Seed,
    SetDataSchema,
    SetInfo,
    SetPollingSource,
    SetVocab,
    SourceState,
)
from kubothek.odf.spec.sources import FetchStepUrl, ReadStepNdJson
from kubothek.storage import Store
from kubothek.table.layout import Layout as TableLayout
from kubothek.table.log import Change, Claim, DatasetLog, Operation
from kubothek.table.log.model import keys
from tests.faultstore import FaultStore
from tests.odf.dataset.planes import (
    APPEND,
    LEDGER,
    OWNER,
    SNAPSHOT,
    UUID,
    begun,
    log_of,
    made,
    opened,
    planes,
    push,
    sound,
    source,
    table,
)

pytestmark = pytest.mark.slow

POLLING = SetPollingSource(fetch=FetchStepUrl(url="https://example.org/planes"), read=ReadStepNdJson(), merge=SNAPSHOT)


def kinds(root: Root) -> list[str]:
    """Of the events, oldest first."""
    return [block.content.event.kind for block in root.blocks()][::-1]


@pytest.mark.requirement("SN-01", "SN-03")
def test_root_dataset_from_snapshot_is_created_in_one_commit(store: Store) -> None:
    root = made(store)
    assert kinds(root) == ["Seed", "AddPushSource", "SetInfo"]
    assert len({block.content.system_time for block in root.blocks()}) == 1
    assert root.state.seed == Seed(dataset_id=OWNER.dataset_id, dataset_kind=DatasetKind.ROOT)
    assert [record.operation for record in root.log.history()] == [Operation.CREATE]
    assert root.info == SetInfo(description="Planes")
    sound(store)


def test_root_dataset_creation_with_same_commit_id_is_idempotent(store: Store) -> None:
    made(store, commit_id="ns/planes")
    assert made(store, commit_id="ns/planes").state.length == 3
    with pytest.raises(DatasetExists):
        made(store)
    with pytest.raises(IdReused):
        create(store, DatasetLog(store, UUID), begun(source(LEDGER)), OWNER, commit_id="ns/planes")


@pytest.mark.requirement("SN-02")
def test_root_snapshot_with_invalid_events_is_refused_without_writes(store: Store) -> None:
    derivative = DatasetSnapshot(name=UUID, kind=DatasetKind.DERIVATIVE, metadata=())
    with pytest.raises(EventInvalid):
        create(store, DatasetLog(store, UUID), derivative, OWNER)
    with pytest.raises(EventInvalid, match="AddData"):
        create(store, DatasetLog(store, UUID), begun(AddData()), OWNER)
    assert not list(store.list(""))


@pytest.mark.requirement("ID-04")
def test_owner_key_file_is_created_once_with_private_mode(tmp_path: Path) -> None:
    path = tmp_path / "planes.key"
    assert owner_key_file(path) == owner_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("not a key")
    with pytest.raises(FormatInvalid):
        owner_key_file(path)


@pytest.mark.requirement("WR-06")
def test_first_push_commits_schema_and_data_together(store: Store) -> None:
    root = made(store)
    done = root.push(planes({1: "A", 2: "B"}))
    assert (done.blocks, done.slices, done.records, done.version) == (2, 1, 2, 2)
    newest = list(root.blocks())[:2]
    assert [type(block.content.event) for block in newest] == [AddData, SetDataSchema]
    assert newest[0].content.system_time == newest[1].content.system_time == done.system_time
    assert table(store) == {1: "A", 2: "B"}
    sound(store)


@pytest.mark.requirement("WR-05")
def test_unchanged_push_commits_nothing_and_new_state_commits_without_data(store: Store) -> None:
    root = made(store)
    state = SourceState(source_name="default", kind="odf/etag", value="1")
    root.push(planes({1: "A"}), state=state)
    assert root.push(planes({1: "A"}), state=state).up_to_date
    assert root.push(planes({1: "A"})).up_to_date
    done = root.push(planes({1: "A"}), state=SourceState(source_name="default", kind="odf/etag", value="2"))
    assert (done.blocks, done.slices, done.up_to_date) == (1, 0, False)
    event = next(iter(root.blocks())).content.event
    assert isinstance(event, AddData)
    assert (event.new_data, event.prev_offset, event.new_watermark) == (None, 0, root.state.watermark)
    assert opened(store).state.source_states["default"].value == "2"
    sound(store)


@pytest.mark.requirement("MS-04", "AD-02")
def test_snapshot_push_yields_retractions_and_corrections(store: Store) -> None:
    made(store)
    push(store, {1: "A", 2: "B", 3: "C"})
    done = push(store, {1: "A", 2: "B2", 4: "D"})
    assert (done.records, done.blocks) == (4, 1)
    assert table(store) == {1: "A", 2: "B2", 4: "D"}
    assert sound(store).records == 7


def test_unchanged_rows_without_event_time_are_not_corrected(store: Store) -> None:
    """MS-05: the time of the commit is no event time that the input has."""
    made(store)
    push(store, {1: "A", 2: "B"})
    assert push(store, {1: "A", 2: "B"}).up_to_date


@pytest.mark.requirement("MS-05")
def test_null_event_time_is_ignored_in_row_comparison(store: Store) -> None:
    root = made(store)
    times = pa.array([0, None, 5000], pa.timestamp("ms"))
    assert root.push(planes({1: "A", 2: "B", 3: "C"}, event_time=times)).records == 3
    assert root.push(planes({1: "A", 2: "B", 3: "C"}, event_time=times)).up_to_date
    moved = pa.array([1000, None, 5000], pa.timestamp("ms"))
    assert root.push(planes({1: "A", 2: "B", 3: "C"}, event_time=moved)).records == 2
    sound(store)


@pytest.mark.requirement("MS-02")
def test_ledger_push_adds_each_key_once(store: Store) -> None:
    made(store, LEDGER)
    push(store, {1: "A", 2: "B"})
    assert push(store, {2: "changed", 3: "C"}).records == 1
    assert push(store, {1: "A", 3: "C"}).up_to_date
    assert table(store) == {1: "A", 2: "B", 3: "C"}
    sound(store)


@pytest.mark.requirement("TIM-05", "TIM-06", "AD-06", "AD-08")
def test_watermark_of_root_never_decreases(store: Store) -> None:
    root = made(store, APPEND)
    early, late = (Timestamp.parse(f"20{year}-01-01T00:00:00Z") for year in (20, 30))
    times = pa.array([early.nanoseconds // 10**6], pa.timestamp("ms", "UTC"))
    assert root.push(planes({1: "A"}, event_time=times)).watermark == early
    done = root.set_watermark(late)
    assert (done.watermark, done.blocks, done.slices) == (late, 1, 0)
    assert root.set_watermark(late).up_to_date
    with pytest.raises(EventInvalid, match="never goes back"):
        root.set_watermark(early)
    assert root.push(planes({2: "B"}, event_time=times)).watermark == late
    sound(store)


@pytest.mark.requirement("AD-07")
@pytest.mark.parametrize("other", [False, True])
def test_watermark_event_repeats_state_of_single_source(store: Store, other: bool) -> None:
    """The reference looks for it in the last data event, and nowhere else."""
    root = made(store, APPEND)
    state = SourceState(source_name="default", kind="odf/etag", value="1")
    root.push(planes({1: "A"}), state=state)
    if other:
        root.append_events([source(APPEND, "other")])
        root.push(planes({2: "B"}), "other", state=replace(state, source_name="other"))
    root.set_watermark(Timestamp.parse("2050-01-01T00:00:00Z"))
    event = next(root.blocks()).content.event
    assert isinstance(event, AddData)
    assert event.new_source_state == (None if other else state), "an event has room for one"
    assert opened(store).state.source_states.keys() == ({"default", "other"} if other else {"default"})
    sound(store)


@pytest.mark.requirement("TIM-03")
def test_event_times_before_1970_and_in_future_are_accepted(store: Store) -> None:
    root = made(store, APPEND)
    given = [Timestamp.parse(f"{year}-01-01T00:00:00Z") for year in (2150, 1850, 1970)]
    times = pa.array([time.nanoseconds // 10**6 for time in given], pa.timestamp("ms", "UTC"))
    assert root.push(planes({1: "A", 2: "B", 3: "C"}, event_time=times)).watermark == given[0]
    assert root.push(planes({4: "D"}, event_time=times.slice(1, 1))).watermark == given[0]
    assert sound(store).records == 4


@pytest.mark.requirement("EVO-01")
def test_new_column_is_added_and_missing_column_is_refused(store: Store) -> None:
    root = made(store, APPEND)
    root.push(planes({1: "A"}))
    done = root.push(planes({2: "B"}, seats=pa.array([180])))
    assert (done.blocks, done.records) == (2, 1)
    with pytest.raises(SchemaMismatch, match="seats"):
        root.push(planes({3: "C"}))
    assert table(store) == {1: "A", 2: "B"}
    assert sound(store).slices == 2


def test_events_already_in_force_are_not_repeated(store: Store) -> None:
    root = made(store)
    assert root.append_events([SetInfo(description="Planes"), source(SNAPSHOT)]).up_to_date
    assert root.append_events([SetInfo(description="Aeroplanes"), source(LEDGER)]).blocks == 2
    assert root.append_events([DisablePollingSource()]).up_to_date
    assert opened(store).info == SetInfo(description="Aeroplanes")
    assert opened(store).state.push_sources["default"].merge == LEDGER
    with pytest.raises(EventInvalid, match="SourceMix"):
        root.append_events([POLLING])
    with pytest.raises(EventInvalid, match="AddData"):
        root.append_events([AddData()])
    sound(store)


@pytest.mark.requirement("SP-01")
def test_polled_rows_are_merged_and_source_state_is_kept(store: Store) -> None:
    root = create(store, DatasetLog(store, UUID), begun(POLLING), OWNER)
    state = SourceState(source_name="default", kind="odf/last-modified", value="2024-01-01T00:00:00Z")
    root.add_polled(planes({1: "A"}), state)
    assert root.add_polled(planes({1: "A"}), state).up_to_date
    assert root.add_polled(None, state).up_to_date
    assert table(store) == {1: "A"}, "no data takes nothing back"
    assert opened(store).state.source_states["default"] == state
    with pytest.raises(InputError, match="no push source 'default'"):
        root.push(planes({1: "A"}))
    sound(store)


@pytest.mark.requirement("SV-01")
def test_common_columns_use_names_of_vocabulary(store: Store) -> None:
    vocabulary = SetVocab(operation_type_column="change", event_time_column="flown")
    root = create(store, DatasetLog(store, UUID), begun(vocabulary, source(SNAPSHOT)), OWNER)
    root.push(planes({1: "A"}))
    root.push(planes({1: "B"}))
    assert root.state.schema is not None
    assert root.state.schema.names == ["offset", "change", "system_time", "flown", "id", "model"]
    assert table(store) == {1: "B"}
    sound(store)


@pytest.mark.parametrize("merge", [APPEND, LEDGER, SNAPSHOT], ids=lambda merge: merge.kind)
def test_ledger_with_specification_types_uses_them_in_every_push(store: Store, merge: object) -> None:
    root = made(store, merge, types=Types.SPEC)  # type: ignore[arg-type]
    root.push(planes({1: "A"}))
    push(store, {2: "B"})
    assert opened(store).state.schema.types[:2] == [pa.uint64(), pa.uint8()]  # type: ignore[union-attr]
    sound(store)


@pytest.mark.parametrize("merge", [LEDGER, SNAPSHOT], ids=lambda merge: merge.kind)
def test_ledger_without_table_merges_against_slices(store: Store, merge: object) -> None:
    made(store, merge, table=None)  # type: ignore[arg-type]
    push(store, {1: "A"})
    assert push(store, {1: "A"}).up_to_date
    push(store, {1: "A", 2: "B"})
    assert not DatasetLog(store, UUID).snapshot().head.partitions
    assert sound(store).records == 2


def test_ledger_table_follows_partition_layout(store: Store) -> None:
    root = made(store, table=Table(layout=TableLayout(partition_on=("model",))))
    root.push(planes({1: "A", 2: "B"}))
    push(store, {1: "B", 2: "B"})
    paths = {key.split("/")[2] for key in DatasetLog(store, UUID).snapshot().head.files().values()}
    assert paths == {"model=B"}
    assert table(store) == {1: "B", 2: "B"}


def test_ledger_rows_reject_changes_outside_sources(store: Store) -> None:
    made(store)
    push(store, {1: "A"})
    for operation in (Operation.APPEND, Operation.DELETE, Operation.OVERWRITE, Operation.ROLLBACK):
        with pytest.raises(LedgerOnly):
            DatasetLog(store, UUID).begin_new("test").commit(Change(operation=operation))
    DatasetLog(store, UUID).tag("first")
    DatasetLog(store, UUID).begin_new("test").commit(Change(operation=Operation.INDEX))
    assert push(store, {1: "B"}).records == 2
    sound(store)


def test_plain_table_opened_as_ledger_is_refused(store: Store) -> None:
    schema = pa.schema([("x", pa.int64())])
    DatasetLog(store, UUID).begin_new("t").commit(Change(operation=Operation.CREATE, schema=schema))
    with pytest.raises(NotALedger):
        opened(store)
    with pytest.raises(DatasetExists):
        made(store)


def test_deleted_ledger_can_be_restored_or_recreated(store: Store) -> None:
    log = DatasetLog(store, UUID, claim=Claim("cluster/ns/planes", "first"))
    create(store, log, begun(source(SNAPSHOT)), OWNER)
    Root(store, log).push(planes({1: "A"}))
    log.delete()
    log.restore()
    assert Root(store, log).push(planes({1: "A"})).up_to_date
    log.delete()
    anew = DatasetLog(store, UUID, claim=Claim("cluster/ns/planes", "second"))
    create(store, anew, begun(source(SNAPSHOT)), OWNER)
    Root(store, anew).push(planes({7: "G"}))
    assert table(store) == {7: "G"}
    assert store.get(keys.chain_ref(UUID)).decode() == str(sound(store).head)


def test_ledger_open_and_push_cost_is_independent_of_chain_length(store: Store) -> None:
    def cost() -> tuple[int, int]:
        counted = FaultStore(store)
        root = opened(counted)
        opening = len(counted.calls)
        root.push(planes({next(numbers): "x"}))
        return opening, len(counted.calls) - opening

    made(store, APPEND)
    numbers = iter(range(100))
    cost()
    short = cost()
    root = opened(store)
    for number in range(40):
        root.append_events([SetInfo(description=f"{number}")])
    long = cost()
    assert long[0] == short[0] <= 4
    assert long[1] <= short[1]


def test_deleted_chain_definition_is_rebuilt(store: Store) -> None:
    root = made(store)
    push(store, {1: "A"})
    store.delete([info.key for info in store.list(keys.definitions(UUID))])
    root.refresh()
    assert opened(store).chain == root.chain
    push(store, {1: "B"})
    assert table(store) == {1: "B"}


@pytest.mark.requirement("MB-04")
def test_system_time_of_block_never_decreases(store: Store) -> None:
    create(store, log_of(store), begun(source(APPEND)), OWNER)
    root = opened(store)
    root.set_watermark(Timestamp.parse("2030-01-01T00:00:00Z"))
    ahead = root.state.system_time
    assert ahead is not None
    push(store, {1: "A"})
    assert opened(store).state.system_time >= ahead  # type: ignore[operator]
    sound(store)


@pytest.mark.requirement("REQ-01")
def test_written_blocks_and_slices_are_immutable(store: Store) -> None:
    """Blocks and slices are only added, whatever happens on top of them; that they are in the chain no longer is
    what reset and compaction are for.
    """

    def objects() -> dict[str, bytes]:
        below = (info.key for info in store.list(keys.chain(UUID)))
        return {key: store.get(key) for key in below if key != keys.chain_ref(UUID)}

    made(store)
    acts: list[Callable[[], object]] = [
        lambda: push(store, {1: "A", 2: "B"}),
        lambda: push(store, {1: "C"}),
        lambda: opened(store).append_events([SetInfo(description="new")]),
        lambda: opened(store).set_watermark(Timestamp.parse("2099-01-01T00:00:00Z")),
        lambda: opened(store).compact(),
        lambda: opened(store).restore_view(),
    ]
    for act in acts:
        before = objects()
        act()
        assert objects().items() >= before.items()
    sound(store)


def test_failing_source_during_push_leaves_dataset_unchanged(store: Store) -> None:
    root = made(store, APPEND)
    push(store, {1: "A"})
    head, whole = store.get(keys.head(UUID)), planes({2: "B"})

    def broken() -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from whole()
            raise SourceCorrupt("planes.json, line 3: cut off")

        return pa.RecordBatchReader.from_batches(whole().schema, batches())

    with pytest.raises(SourceCorrupt, match="line 3"):
        root.push(broken, commit_id="load")
    assert store.get(keys.head(UUID)) == head
    assert root.push(whole, commit_id="load").records == 1
    assert sound(store).records == 2
