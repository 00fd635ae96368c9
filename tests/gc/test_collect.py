"""What a collection takes, and what it leaves."""

from __future__ import annotations

from datetime import timedelta

import orjson
import pytest

from kubothek.errors import (
    AccessDenied,
    DatasetNotFound,
    HeadMissing,
    IndexStale,
    InputError,
    StoreError,
    TooManyDeletes,
    TooSlow,
    VersionIncomplete,
    VersionNotFound,
)
from kubothek.gc import Kind, Mode, Retention, collect, mark
from kubothek.gc.areas import OWN_TRACES, areas
from kubothek.ingest.watch.ledger import Ledger, Page, entries_of
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.log import Change, DatasetLog, Everything, Operation, StoreSettings, write_settings
from kubothek.table.log.model import keys
from kubothek.table.log.update_indexes import reindex
from tests.faultstore import Crash, Fault, FaultStore
from tests.gc.aging import GRACE, AgingStore, contents, log_of
from tests.table.log.table import SCHEMA, UUID, append, keys_below, present, started, write

pytestmark = pytest.mark.slow

LATER = timedelta(days=2)
ONE = [Retention(versions=1)]


def overwrite(store: Store, commit_id: str, values: list[int]) -> int:
    """One file in the place of all."""
    transaction = started(log_of(store), commit_id)
    head = transaction.snapshot.head
    change = Change(
        operation=Operation.OVERWRITE,
        added=(write(store, commit_id, values),),
        removed=tuple(head.partitions),
        reads=Everything(),
        schema=SCHEMA,
    )
    return transaction.commit(change).version


def sweep(store: Store, policies: list[Retention] | None = None) -> dict[Kind, int]:
    """How many objects of each kind an enforced collection deletes."""
    done = collect(store, log_of(store), policies or ONE, mode=Mode.ENFORCE)
    return {kind: count.objects for kind, count in done.deleted.items()}


@pytest.fixture
def store() -> AgingStore:
    return four_versions()


def four_versions() -> AgingStore:
    """A day apart, each of one file of its own."""
    made = AgingStore()
    append(log_of(made), made, "first", [1])
    for n in (2, 3, 4):
        made.pass_by(GRACE)
        overwrite(made, f"v{n}", [n])
    return made


def died_at_its_head() -> AgingStore:
    """A store with what a first commit left that died right ahead of its swap."""
    made = AgingStore()
    faulty = FaultStore(made, Fault(("put_if_absent",), 1, keys.head(UUID)))
    with pytest.raises(Crash):
        append(log_of(faulty), faulty, "first", [1])
    return made


def test_first_commit_that_died_is_counted_and_collected() -> None:
    store = died_at_its_head()
    done = collect(store, log_of(store), ONE)
    assert (done.versions, done.young.objects, done.found) == (0, 2, {})
    store.pass_by(LATER)
    done = collect(store, log_of(store), ONE)
    assert {kind: count.objects for kind, count in done.found.items()} == {Kind.DATA: 1, Kind.RECORDS: 1}
    assert sweep(store) == {Kind.DATA: 1, Kind.RECORDS: 1}
    assert sweep(store) == {}
    assert keys_below(store, f"{UUID}/") == [keys.common_metadata(UUID, "table")]
    nothing = DatasetLog(store, UUID, clock=lambda: store.now)
    with pytest.raises(DatasetNotFound, match="there is no dataset"):
        nothing.snapshot()
    with pytest.raises(DatasetNotFound, match="no version to restore"):
        nothing.restore()
    append(nothing, store, "again", [2])
    assert present(store) == [2]


def test_first_commit_within_grace_period_is_not_fenced() -> None:
    store = died_at_its_head()
    assert sweep(store) == {}
    assert keys.head(UUID) not in store.objects


@pytest.mark.parametrize("mode", Mode)
def test_dataset_without_any_object_is_not_collected(mode: Mode) -> None:
    store = AgingStore()
    with pytest.raises(DatasetNotFound):
        collect(store, DatasetLog(store, UUID), ONE, mode=mode)
    assert not store.objects


def test_first_swap_delayed_beyond_collection_fails() -> None:
    store = AgingStore()
    faulty = FaultStore(store)

    def hang(call: str, key: str) -> None:
        if (call, key) == ("put_if_absent", keys.head(UUID)) and key not in store.objects:
            store.pass_by(LATER)
            assert sweep(store) == {Kind.DATA: 1, Kind.RECORDS: 1}

    faulty.before_call = hang
    with pytest.raises(TooSlow):
        append(log_of(faulty), faulty, "first", [1])
    append(log_of(store), store, "again", [2])
    assert present(store) == [2]


def test_dataset_with_lost_head_is_not_collected(store: AgingStore) -> None:
    store.delete([keys.head(UUID)])
    store.pass_by(LATER)
    before = dict(store.objects)
    with pytest.raises(HeadMissing):
        sweep(store)
    assert store.objects == before


def test_dry_run_reports_garbage_and_changes_nothing(store: AgingStore) -> None:
    store.pass_by(LATER)
    before = dict(store.objects)
    done = collect(store, log_of(store), ONE)
    assert done.found[Kind.DATA].objects == 3
    assert done.found[Kind.RECORDS].objects == 3
    assert done.deleted == {}
    assert store.objects == before
    assert done.plan is None


def test_dry_run_of_policy_keeps_plan_in_store(store: AgingStore) -> None:
    store.pass_by(LATER)
    before = dict(store.objects)
    done = collect(store, log_of(store), ONE, keeps_plan=True)
    assert {key: store.objects[key] for key in before} == before
    new = store.objects.keys() - before.keys()
    assert all(key.startswith(f".kubothek/{UUID}/gc/") for key in new)
    assert done.plan is not None
    plan = orjson.loads(store.get(done.plan))
    assert plan["found"]["data"] == {"objects": 3, "bytes": done.found[Kind.DATA].bytes}
    assert (plan["state"], plan["oldest_version"], plan["deleted"]) == ("Planned", 4, {})


def test_expired_versions_are_deleted_with_their_objects(store: AgingStore) -> None:
    store.pass_by(LATER)
    assert sweep(store) == {Kind.DATA: 3, Kind.RECORDS: 3}
    assert contents(store) == {5: [4], 4: [4]}
    assert [key for key in keys_below(store, f"{UUID}/table/") if "v4" not in key] == [f"{UUID}/table/_common_metadata"]
    for version in (1, 2, 3):
        with pytest.raises(VersionNotFound, match="has expired"):
            log_of(store).snapshot(version)
    with pytest.raises(VersionNotFound):
        log_of(store).snapshot(store.now - timedelta(days=30))


def test_newest_versions_stay_complete(store: AgingStore) -> None:
    store.pass_by(LATER)
    sweep(store, [Retention(versions=2)])
    assert contents(store) == {5: [4], 4: [4], 3: [3]}


def test_commits_of_collector_do_not_count_as_versions(store: AgingStore) -> None:
    for n in range(5):
        store.pass_by(LATER)
        write(store, f"litter-{n}")
        sweep(store, [Retention(versions=3)])
    values = contents(store)
    assert {values[2][0], values[3][0], values[4][0]} == {2, 3, 4}


def test_version_stays_for_grace_period_after_replacement(store: AgingStore) -> None:
    """Its successor's record may be half a grace period older than the swap."""
    assert sweep(store) == {Kind.DATA: 1, Kind.RECORDS: 1}
    assert set(contents(store)) == {5, 4, 3, 2}


def test_abandoned_upload_is_aborted(store: AgingStore) -> None:
    old, young = store.now, store.now + LATER
    table, side, others = f"{UUID}/table/big.parquet", f".kubothek/{UUID}/index/x.parquet", "other/table/big.parquet"
    store.uploads = {table: old, side: old, others: old, f"{UUID}/table/young.parquet": young}
    store.pass_by(LATER)
    left = dict(store.uploads)
    assert collect(store, log_of(store), [Retention()]).deleted == {}
    assert store.uploads == left, "a dry run"
    assert sweep(store, [Retention()]) == {Kind.UPLOADS: 2}
    assert set(store.uploads) == {others, f"{UUID}/table/young.parquet"}


@pytest.mark.parametrize("error", [AccessDenied("no right to do that"), StoreError("NotImplemented")])
def test_store_without_abort_of_uploads_is_collected(store: AgingStore, error: StoreError) -> None:
    store.forbids = error
    store.pass_by(LATER)
    write(store, "litter")
    store.pass_by(LATER)
    assert sweep(store, [Retention()])[Kind.DATA] == 1


def test_retention_of_all_versions_expires_none(store: AgingStore) -> None:
    store.pass_by(LATER)
    write(store, "litter")
    assert sweep(store, [Retention()]) == {}
    store.pass_by(LATER)
    assert sweep(store, [Retention()]) == {Kind.DATA: 1, Kind.PLANS: 2}
    assert contents(store) == {1: [1], 2: [2], 3: [3], 4: [4], 5: [4]}


def test_append_only_history_is_collected_without_version_rebuild(monkeypatch: pytest.MonkeyPatch) -> None:
    made = AgingStore()
    for n in (1, 2, 3):
        append(log_of(made), made, f"v{n}", [n])
        made.pass_by(LATER)
    write(made, "litter")
    made.pass_by(LATER)
    monkeypatch.setattr(mark, "rebuild", lambda journal, record: pytest.fail(f"{record.key} is rebuilt"))
    assert sweep(made, [Retention(versions=2)]) == {Kind.DATA: 1, Kind.RECORDS: 1}
    assert contents(made) == {4: [1, 2, 3], 3: [1, 2, 3], 2: [1, 2]}


def test_object_of_oldest_retained_version_stays() -> None:
    """It came with a commit that goes, and is not in the present version."""
    made = AgingStore()
    for n in (1, 2):
        append(log_of(made), made, f"v{n}", [n])
        made.pass_by(LATER)
    overwrite(made, "v3", [3])
    append(log_of(made), made, "v4", [4])
    made.pass_by(LATER)
    assert sweep(made, [Retention(versions=3)]) == {Kind.RECORDS: 1}
    assert contents(made) == {5: [3, 4], 4: [3, 4], 3: [3], 2: [1, 2]}


def test_collection_without_garbage_makes_no_commit(store: AgingStore) -> None:
    before = log_of(store).snapshot().version
    collect(store, log_of(store), [Retention()], mode=Mode.ENFORCE)
    assert log_of(store).snapshot().version == before


def test_collection_without_policy_is_refused(store: AgingStore) -> None:
    with pytest.raises(InputError, match="no policy"):
        collect(store, log_of(store), [], mode=Mode.ENFORCE)


def test_collection_above_max_deletes_deletes_nothing(store: AgingStore) -> None:
    store.pass_by(LATER)
    before = dict(store.objects)
    with pytest.raises(TooManyDeletes, match="6 objects are garbage, more than the 5"):
        collect(store, log_of(store), ONE, mode=Mode.ENFORCE, max_deletes=5)
    assert {key: store.objects[key] for key in before} == before
    collect(store, log_of(store), ONE, mode=Mode.ENFORCE, max_deletes=6)
    assert present(store) == [4]


def test_grace_period_below_store_minimum_is_refused(store: AgingStore) -> None:
    with pytest.raises(InputError, match="kubothek grace"):
        collect(store, log_of(store), ONE, grace=timedelta(hours=1))
    store.pass_by(LATER)
    done = collect(store, log_of(store), ONE, grace=timedelta(days=30))
    assert not done.found
    write_settings(store, StoreSettings(timedelta(hours=1)))
    assert collect(store, log_of(store), ONE, grace=timedelta(hours=1)).found[Kind.DATA].objects == 3


def test_unattributable_object_stays_and_is_counted(store: AgingStore) -> None:
    strange = [
        f"{UUID}/table/notes.txt",
        f"{UUID}/other/table/x.parquet",
        f"{UUID}/indices/readme",
        f".kubothek/{UUID}/commits/strange.json",
        f".kubothek/{UUID}/schemas/old",
        f".kubothek/{UUID}/odf/refs/head",
        f".kubothek/{UUID}/future/x.json",
        ".kubothek/++queries/1.json",
        "elsewhere.parquet",
        f"{UUID}2/table/x.parquet",
    ]
    for key in strange:
        store.put(key, b"?")
    markers = keys_below(store, f".kubothek/{UUID}/applied/")
    store.pass_by(LATER)
    done = collect(store, log_of(store), ONE, mode=Mode.ENFORCE)
    assert done.unknown.objects == 3
    there = set(keys_below(store))
    assert there.issuperset(strange)
    assert there.issuperset(markers)
    assert f".kubothek/{UUID}/owner.json" in there


def test_uncommitted_record_expires_before_its_files(store: AgingStore) -> None:
    litter = write(store, "litter")
    record = f".kubothek/{UUID}/commits/{9:020d}-lost-aaaaaaaaaaaa.json"
    found = orjson.loads(store.get(keys_below(store, f".kubothek/{UUID}/commits/")[0]))
    store.pass_by(LATER)
    store.put(record, orjson.dumps(found | {"added": [["litter", litter.key, 1, 1]]}))
    sweep(store)
    assert {record, litter.key} <= set(keys_below(store))
    store.pass_by(LATER)
    sweep(store)
    assert not {record, litter.key} & set(keys_below(store))


def test_deleted_dataset_is_restorable_within_grace_period_and_then_swept(store: AgingStore) -> None:
    store.pass_by(LATER)
    log_of(store).delete()
    sweep(store)
    twin = store.copy()
    log_of(twin).restore()
    assert present(twin) == [4]
    store.pass_by(LATER)
    assert sweep(store)[Kind.DATA] == 4
    assert keys_below(store, f"{UUID}/table/") == [f"{UUID}/table/_common_metadata"]
    assert log_of(store).inspect().deleted
    with pytest.raises(VersionIncomplete):
        log_of(store).restore()


@pytest.mark.parametrize("damage", ["record is gone", "record is damaged", "manifest is damaged", "none"])
def test_deleted_dataset_with_lost_objects_is_swept_to_tombstone(store: AgingStore, damage: str) -> None:
    reindex(store, log_of(store), {"x": IndexKind.NATIVE})
    log_of(store).tag("keep", 2)
    (manifest,) = (key for key in keys_below(store, keys.native_indices(UUID)) if key.endswith(".json"))
    log_of(store).delete()
    stone = keys_below(store, keys.records(UUID))[-1]
    if damage == "record is gone":
        store.delete([stone])
    elif damage != "none":
        store.put(manifest if damage == "manifest is damaged" else stone, b"?")
    store.pass_by(LATER)
    sweep(store)
    areas_left = [area.prefix for area in areas(UUID, "table") if area.kind not in OWN_TRACES]
    left = [key for prefix in areas_left for key in keys_below(store, prefix) if not key.endswith("_common_metadata")]
    assert left == [] if damage == "record is gone" else [stone]
    assert log_of(store).inspect().deleted


def test_table_notes_stay_until_table_is_deleted(store: AgingStore) -> None:
    notes = [f".kubothek/{UUID}/inventory.parquet", f".kubothek/{UUID}/lost.json"]
    for key in notes:
        store.put(key, b"?")
    store.pass_by(LATER)
    assert sweep(store).get(Kind.NOTES) is None
    log_of(store).delete()
    sweep(store)
    assert set(notes) <= set(keys_below(store)), "the deletion can be taken back"
    store.pass_by(LATER)
    assert sweep(store)[Kind.NOTES] == 2
    assert not set(notes) & set(keys_below(store))


def test_restored_version_stays_readable_after_original_expires(store: AgingStore) -> None:
    store.pass_by(LATER)
    log_of(store).delete()
    log_of(store).restore()
    store.pass_by(LATER)
    sweep(store)
    assert contents(store) == {7: [4], 6: [4]}


def test_many_versions_expire_across_checkpoints() -> None:
    store = AgingStore()
    append(log_of(store), store, "first", [0])
    for n in range(230):
        store.pass_by(timedelta(hours=1))
        overwrite(store, f"o{n}", [n])
    store.pass_by(LATER)
    done = sweep(store, [Retention(versions=20)])
    assert done == {Kind.DATA: 211, Kind.RECORDS: 211, Kind.CHECKPOINTS: 2}
    assert [values for _, values in sorted(contents(store).items())][:20] == [[n] for n in range(210, 230)]


def test_ingested_file_list_of_source_stays(store: AgingStore) -> None:
    ledger, page = Ledger(store, UUID, "source"), Page()
    for n in range(4):
        store.pass_by(GRACE)
        page = ledger.write(page, entries_of([(f"k{n}", "e")], [], ""), ingested=1, last_file=f"k{n}", now=store.now)
        started(log_of(store), f"intake-{n}").commit(Change(operation=Operation.APPEND, intake={"source": page.key}))
    store.pass_by(LATER)
    before = keys_below(store, f".kubothek/{UUID}/intake/")
    sweep(store)
    after = keys_below(store, f".kubothek/{UUID}/intake/")
    assert set(after) == {page.key, *(run.key for run in page.runs)} < set(before)
    assert log_of(store).snapshot().head.intake("source") == page.key


def test_kartothek_indices_of_retained_versions_stay(store: AgingStore) -> None:
    reindex(store, log_of(store), {"x": IndexKind.KARTOTHEK})
    for n in (5, 6):
        store.pass_by(GRACE)
        overwrite(store, f"v{n}", [n])
    store.pass_by(LATER)
    before = keys_below(store, f"{UUID}/indices/")
    assert len(before) == 3
    sweep(store, [Retention(versions=2)])
    kept = {str(log_of(store).snapshot(version).head.indices["x"]) for version in (6, 7)}
    assert set(keys_below(store, f"{UUID}/indices/")) == kept


def test_unreadable_manifest_stops_collection(store: AgingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer Kubothek wrote it: what it names is not known."""
    monkeypatch.setattr("kubothek.table.indexes.integrity.digest_in", lambda _key: None)
    reindex(store, log_of(store), {"x": IndexKind.NATIVE})
    manifest = log_of(store).snapshot().head.index_state.native["x"]
    store.put(manifest, orjson.dumps({"format": 99}))
    store.pass_by(LATER)
    before = set(keys_below(store, f".kubothek/{UUID}/index/"))
    with pytest.raises(IndexStale, match="needs a newer Kubothek"):
        sweep(store)
    assert set(keys_below(store, f".kubothek/{UUID}/index/")) == before
    store.delete([manifest])
    sweep(store)
    assert present(store) == [4]
