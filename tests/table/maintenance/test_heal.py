"""Healing: whatever is derived from the data can be gone, and is made anew; data that is lost is never papered over."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import DatasetNotFound, OwnedByAnother, VersionIncomplete
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import AlreadyApplied, Change, Claim, DatasetLog, Head, Operation, take_claim
from kubothek.table.log import journal as journals
from kubothek.table.log.model import keys
from kubothek.table.maintenance import ailments, heal
from kubothek.table.maintenance.lost_files import find_lost_files, ranges, sample_lost_files
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.s3server import S3Server
from tests.table.maintenance.table import ROWS, filled
from tests.table.operations.deeds import copy, table_in
from tests.table.operations.table import everything, flights, labels, rows

pytestmark = pytest.mark.slow

UUID = "flights"


@pytest.fixture(autouse=True)
def checkpoints_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "CHECKPOINT_COMMITS", 3)


def log_of(store: Store) -> DatasetLog:
    return DatasetLog(store, UUID)


def ailing(store: Store) -> tuple[str, ...]:
    log = log_of(store)
    return ailments(store, log, log.snapshot())


def glanced(store: Store) -> str | None:
    log = log_of(store)
    return None if (found := sample_lost_files(store, log, log.snapshot())) is None else str(found)


def head_of(store: Store) -> Head:
    return Head.parse(UUID, store.get(keys.head(UUID)))


# --- what is derived -------------------------------------------------------------------------------------------------


def _kartothek_index(store: Store) -> str:
    return str(head_of(store).indices["delay"])


def _manifest(store: Store) -> str:
    return head_of(store).index_state.native["carrier"]


def _sorted_file(store: Store) -> str:
    return read_manifest(store, _manifest(store)).files[0].key


def _schema(store: Store) -> str:
    schema_hash = head_of(store).schema_hash
    assert schema_hash is not None
    return keys.schema(UUID, schema_hash)


def _common_metadata(store: Store) -> str:
    return keys.common_metadata(UUID, head_of(store).table)


def _marker_of(version: int) -> Callable[[Store], str]:
    def key(store: Store) -> str:
        return keys.marker(UUID, next(each.id for each in log_of(store).history() if each.version == version))

    return key


DERIVED: dict[str, tuple[Callable[[Store], str], bool]] = {
    "the index on 'delay'": (_kartothek_index, True),
    "the index on 'carrier'": (_manifest, True),
    "the index on 'carrier' ": (_sorted_file, True),
    "_common_metadata": (_common_metadata, False),
    "the schema": (_schema, False),
    "the marker of version 5": (_marker_of(5), False),
    "the marker of version 2": (_marker_of(2), False),
    "the checkpoint of version 3": (lambda store: keys.checkpoint(UUID, 3), True),
}
"""What is said of it, its key, and whether an inspection's cheap look shows it; most others it settles by itself."""


def _damage(store: Store, *spared: Callable[[Store], str]) -> None:
    """Take away all that is derived but these; a manifest goes without the files that it names."""
    store.delete([find(store) for find, _ in DERIVED.values() if find not in (_sorted_file, *spared)])


@pytest.mark.parametrize("named", DERIVED)
def test_heal_recreates_missing_derived_object(named: str, table: Dataset, store: Store) -> None:
    find, shown = DERIVED[named]
    key, before = find(store), {version: rows(table, version) for version in range(2, 6)}
    data = store.get(key)
    store.delete([key])
    assert not shown or ailing(store)
    assert heal(store, log_of(store)).repaired == (named.strip(),)
    assert ailing(store) == ()
    assert heal(store, log_of(store)).repaired == (), "nothing is left to do"
    healed = Dataset(Lake(store), UUID)
    assert {version: rows(healed, version) for version in before} == before
    assert healed.scan(where="carrier = 'A1'").read_all().num_rows == 1
    if "index" not in named:
        assert store.get(key) == data
    healed.append(flights((1, "new", 7)))
    assert healed.scan(where="delay = 7").read_all().num_rows == 1


@pytest.mark.parametrize("name", ["_kartothek_index", "_manifest"])
def test_heal_rebuilds_damaged_index(name: str, table: Dataset, store: Store) -> None:
    store.put(globals()[name](store), b"something else")
    assert len(ailing(store)) == 1
    assert len(heal(store, log_of(store)).repaired) == 1
    assert ailing(store) == ()


def test_heal_replaces_common_metadata_of_another_schema(table: Dataset, store: Store) -> None:
    key = keys.common_metadata(UUID, "table")
    data = store.get(key)
    store.put(key, b"PAR1")
    assert heal(store, log_of(store)).repaired == ("_common_metadata",)
    assert store.get(key) == data


def test_heal_without_schema_and_copy_fails_and_names_remedy(table: Dataset, store: Store) -> None:
    key = _schema(store)
    store.delete([key])
    store.put(keys.common_metadata(UUID, "table"), b"PAR1")
    before = everything(store)
    with pytest.raises(VersionIncomplete, match="restore either from a backup"):
        heal(store, log_of(store))
    assert everything(store) == before


def test_heal_restores_missing_commit_marker(table: Dataset, store: Store) -> None:
    table.append(flights((9, "once", 1)), id="mine")
    table.append(flights((9, "later", 1)))
    store.delete([keys.marker(UUID, "mine")])
    heal(store, log_of(store))
    assert isinstance(Dataset(Lake(store), UUID).append(flights((9, "once", 1)), id="mine"), AlreadyApplied)


def test_heal_restores_checkpoint_of_tagged_version(table: Dataset, store: Store) -> None:
    table.tag("good", 2)
    first = [record.key for record in table.history() if record.version == 1]
    _expire_below(7, table, store)
    assert heal(store, log_of(store)).repaired == ("the checkpoint of version 2",)
    store.delete(first)
    assert len(rows(Dataset(Lake(store), UUID), as_of=2)) == 3
    assert heal(store, log_of(store)).repaired == ()


def test_heal_replaces_unrecoverable_checkpoint_with_current_one(table: Dataset, store: Store) -> None:
    """Its records are gone, so are the versions since; but the present one is there, and will be an old one."""
    store.delete([keys.checkpoint(UUID, 3), *(r.key for r in table.history() if r.version <= 3)])
    assert ailing(store) == ("the last checkpoint",)
    assert heal(store, log_of(store)).repaired == ("the checkpoint of version 5",)
    assert (ailing(store), heal(store, log_of(store)).repaired) == ((), ())
    healed = Dataset(Lake(store), UUID)
    healed.append(flights((9, "new", 7)))
    assert rows(healed, as_of=5) == ROWS


def test_heal_repairs_all_damage_in_one_run(table: Dataset, store: Store) -> None:
    _damage(store, _common_metadata)
    assert {*heal(store, log_of(store)).repaired} == {name.strip() for name in DERIVED} - {"_common_metadata"}
    assert rows(Dataset(Lake(store), UUID)) == ROWS


def test_heal_of_healthy_table_changes_nothing_and_reads_no_data(table: Dataset, store: Store) -> None:
    before = everything(store)
    counting = FaultStore(store)
    assert heal(counting, DatasetLog(counting, UUID)).repaired == ()
    assert everything(store) == before
    read = [call for call in counting.calls if call.name in ("get", "open") and call.key.endswith(".parquet")]
    assert not [call for call in read if "/table/" in call.key]


def test_inspection_of_healthy_table_sends_few_requests(table: Dataset, store: Store) -> None:
    counting = FaultStore(store)
    log = DatasetLog(counting, UUID)
    snapshot = log.snapshot()
    counting.calls.clear()
    assert (ailments(counting, log, snapshot), sample_lost_files(counting, log, snapshot)) == ((), None)
    assert not [call for call in counting.calls if call.name in WRITES]
    assert {call.key for call in counting.calls if call.name == "list"} <= {keys.checkpoints(UUID)}
    assert len(counting.calls) < 16


def test_heal_of_missing_dataset_raises_dataset_not_found(store: Store) -> None:
    with pytest.raises(DatasetNotFound):
        heal(store, log_of(store))


def test_heal_of_deleted_dataset_changes_nothing(table: Dataset, store: Store) -> None:
    store.delete([_kartothek_index(store)])
    log_of(store).delete()
    before = everything(store)
    assert heal(store, log_of(store)).repaired == ()
    assert everything(store) == before


def test_heal_by_other_owner_is_refused(table: Dataset, store: Store) -> None:
    take_claim(store, UUID, Claim("cluster/ns/flights", "1"))
    store.delete([_kartothek_index(store)])
    before = everything(store)
    with pytest.raises(OwnedByAnother):
        heal(store, DatasetLog(store, UUID, claim=Claim("cluster/ns/other", "2")))
    assert everything(store) == before


def _expire_below(version: int, table: Dataset, store: Store) -> None:
    while table.version < version:
        table.append(flights((9, "more", 1)))
    log = log_of(store)
    spares = frozenset(tag.record for tag in log.snapshot().head.tags.values())
    log.begin_new("expire").commit(Change(operation=Operation.EXPIRE, horizon=version, spares=spares))


# --- data ------------------------------------------------------------------------------------------------------------


def test_lost_file_is_reported_with_versions_and_last_complete_version(table: Dataset, store: Store) -> None:
    """Version 4 brought the file."""
    files = labels(table)
    third = next(each for each in table.history() if each.version == 4)
    gone = third.delta.added[0].key
    store.delete([gone])
    found = heal(store, log_of(store)).corrupt
    assert found == (
        f"1 data file is lost: {gone}; missing in versions 4 to 5; version 3 is whole: put the files back, roll back "
        "to it, or delete what they held"
    )
    assert labels(Dataset(Lake(store), UUID)) == files, "nothing is papered over"


def test_lost_file_stays_reported_until_restored(table: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = next(iter(labels(table).values()))
    data = store.get(gone)
    store.delete([gone])
    found = heal(store, log_of(store)).corrupt
    monkeypatch.setattr(random, "sample", lambda files, size: [])  # would see nothing
    assert glanced(store) == found
    table.append(flights((9, "new", 7)))
    assert glanced(store) == (found or "").replace("versions 2 to 5", "versions 2 to 6")
    store.put(gone, data)
    assert glanced(store) is None
    assert keys.lost(UUID) not in everything(store)


def test_inspection_of_few_files_detects_lost_file(table: Dataset, store: Store) -> None:
    table.compact()
    store.delete(list(labels(table).values())[:1])
    assert glanced(store) is not None


def test_rollback_to_complete_version_clears_loss_report(table: Dataset, store: Store) -> None:
    before, files = rows(table), set(labels(table).values())
    table.compact()
    store.delete(set(labels(table).values()) - files)
    found = heal(store, log_of(store)).corrupt
    assert found is not None
    assert "2 data files are lost" in found
    assert "missing in version 6; version 5 is whole" in found
    healed = Dataset(Lake(store), UUID)
    healed.rollback(5)
    assert heal(store, log_of(store)).corrupt is None
    assert rows(healed) == before


def test_deletion_of_lost_rows_clears_loss_report(table: Dataset, store: Store) -> None:
    store.delete([key for label, key in labels(table).items() if label.startswith("month=2")][:1])
    assert heal(store, log_of(store)).corrupt is not None
    table.delete("month = 2")
    assert (heal(store, log_of(store)).corrupt, glanced(store)) == (None, None)
    assert rows(Dataset(Lake(store), UUID)) == [row for row in ROWS if row[0] != 2]


def test_loss_report_states_when_no_version_is_complete(table: Dataset, store: Store) -> None:
    store.delete(labels(table).values())
    found = heal(store, log_of(store)).corrupt
    assert found is not None
    assert "9 data files are lost" in found
    assert "and 6 more; missing in versions 2 to 5; version 1 is whole" in found, "it has no files"
    store.delete([each.key for each in table.history() if each.version == 1])
    store.delete([keys.checkpoint(UUID, 3)])
    found = heal(store, log_of(store)).corrupt
    assert found is not None
    assert "no version that is kept is whole" in found


def test_version_is_complete_only_with_all_its_files(table: Dataset, store: Store) -> None:
    """What the compaction took is gone as well: versions 2 to 5 lack that, version 6 its own."""
    first = next(iter(labels(table).values()))
    table.compact()
    store.delete([first, *labels(table).values()])
    damage = find_lost_files(store, log_of(store), log_of(store).snapshot())
    assert damage is not None
    assert (damage.affected, damage.whole, damage.version) == ((2, 3, 4, 5, 6), 1, 6)


def test_unreadable_version_is_not_offered_for_rollback(table: Dataset, store: Store) -> None:
    """By its records version 5 has all of its files; but nothing tells any more which those were."""
    old = set(labels(table).values())
    table.compact()
    store.delete(set(labels(table).values()) - old)
    first = [record.key for record in table.history() if record.version == 1]
    store.delete([keys.checkpoint(UUID, 3), *first])
    damage = find_lost_files(store, log_of(store), log_of(store).snapshot())
    assert damage is not None
    assert (damage.affected, damage.whole) == ((6,), None)


def test_tagged_version_is_offered_as_complete_version(table: Dataset, store: Store) -> None:
    table.tag("good", 2)
    table.overwrite(flights((1, "new", 1)))
    _expire_below(7, table, store)
    store.delete(labels(table).values())
    log = log_of(store)
    damage = find_lost_files(store, log, log.snapshot())
    assert damage is not None
    assert (damage.affected, damage.whole) == ((7, 8), 2)


def test_file_replaced_by_concurrent_commit_is_not_lost(table: Dataset, store: Store) -> None:
    """As with a listing that takes longer than the grace period."""
    log = log_of(store)
    snapshot = log.snapshot()
    old = set(labels(table).values())
    table.compact()
    store.delete(old - set(labels(table).values()))
    assert find_lost_files(store, log, snapshot) is None


def test_missing_file_needed_only_by_history_is_no_damage(table: Dataset, store: Store) -> None:
    old = set(labels(table).values())
    table.compact()
    store.delete(old - set(labels(table).values()))
    assert heal(store, log_of(store)).corrupt is None


def test_damage_of_restored_dataset_covers_versions_before_deletion(table: Dataset, store: Store) -> None:
    gone = list(labels(table).values())[-1]
    log_of(store).delete()
    log_of(store).restore()
    store.delete([gone])
    damage = find_lost_files(store, log_of(store), log_of(store).snapshot())
    assert damage is not None
    assert (damage.files, damage.affected, damage.whole) == ((gone,), (5, 7), 4)


def test_index_is_not_rebuilt_from_lost_data(table: Dataset, store: Store) -> None:
    store.delete([_kartothek_index(store), next(iter(labels(table).values()))])
    healed = heal(store, log_of(store))
    assert (healed.repaired, healed.corrupt is not None) == ((), True)
    assert ailing(store) == ("the index on 'delay'",)


def test_unreadable_loss_note_is_ignored(table: Dataset, store: Store) -> None:
    for data in (b"?", b"{}", b"[]", orjson.dumps({"version": 1})):
        store.put(keys.lost(UUID), data)
        assert glanced(store) is None


def test_version_ranges_are_rendered_as_text() -> None:
    assert ranges((3,)) == "3"
    assert ranges((1, 2, 5, 7, 8, 9)) == "1 to 2, 5, 7 to 9"


# --- crashes and races -----------------------------------------------------------------------------------------------


def _damaged(root: Path) -> None:
    store = open_store(StoreConfig(root.as_uri()))
    filled(Lake(store), indices={"carrier": "Native", "delay": "Kartothek"})
    _damage(store, _schema)


@pytest.mark.slow
def test_heal_that_crashes_is_completed_by_next_run(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    _damaged(root)
    counting = FaultStore(copy(root, tmp_path / "counted"))
    heal(counting, DatasetLog(counting, UUID))
    writes = sum(call.name in WRITES for call in counting.calls)
    assert writes > 8
    for nth in range(1, writes + 1):
        store = copy(root, tmp_path / str(nth))
        dying = FaultStore(store, Fault(WRITES, nth))
        with pytest.raises(Crash):
            heal(dying, DatasetLog(dying, UUID))
        heal(store, log_of(store))
        assert (ailing(store), heal(store, log_of(store)).repaired) == ((), ()), nth
        assert rows(table_in(store)) == ROWS, nth
        assert isinstance(DatasetLog(store, UUID).begin(_id_of(store, 2), _digest_of(store, 2)), AlreadyApplied)


def _id_of(store: Store, version: int) -> str:
    return next(each.id for each in log_of(store).history() if each.version == version)


def _digest_of(store: Store, version: int) -> str:
    return next(each.digest for each in log_of(store).history() if each.version == version)


@pytest.mark.slow
def test_heal_keeps_concurrent_commits_and_repairs_all_damage(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    _damaged(root)
    store = open_store(StoreConfig(root.as_uri()))
    heal(store, log_of(store))
    spared = (_schema, _manifest, _kartothek_index)  # without these, no commit could come
    store.delete([_sorted_file(store), *(find(store) for find, _ in DERIVED.values() if find not in spared)])
    counting = FaultStore(copy(root, tmp_path / "counted"))
    heal(counting, DatasetLog(counting, UUID))
    for nth in range(1, len(counting.calls), 5):
        store = copy(root, tmp_path / str(nth))
        racing = FaultStore(store)

        def let_in(name: str, key: str, store: Store = store, racing: FaultStore = racing, nth: int = nth) -> None:
            if len(racing.calls) == nth:
                racing.before_call = None
                table_in(store).replace(flights((1, "A0", 5)), where="month = 1", id="beside")

        racing.before_call = let_in
        heal(racing, DatasetLog(racing, UUID))
        heal(store, log_of(store))
        assert ailing(store) == (), nth
        assert rows(table_in(store)) == sorted([(1, "A0", 5), *(r for r in ROWS if r[0] != 1)], key=repr), nth
        assert table_in(store).scan(where="delay = 5").read_all().num_rows == 1


@pytest.mark.s3
def test_heal_on_s3_repairs_damage_and_reports_lost_file(s3: S3Server, secret: Path, bucket: str) -> None:
    store = open_store(StoreConfig(f"s3://{bucket}", s3.endpoint, s3.region, str(secret)))
    filled(Lake(store), indices={"carrier": "Native", "delay": "Kartothek"})
    _damage(store, _schema)
    assert {*heal(store, log_of(store)).repaired} >= {"the index on 'carrier'", "the index on 'delay'"}
    assert (ailing(store), glanced(store), heal(store, log_of(store)).repaired) == ((), None, ())
    gone = list(labels(table_in(store)).values())[-1]
    store.delete([gone])
    assert f"1 data file is lost: {gone}" in (heal(store, log_of(store)).corrupt or "")
