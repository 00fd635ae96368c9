"""Commits, one after the other and against each other."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kubothek.errors import (
    CommitError,
    Conflict,
    Contended,
    IdReused,
    InputError,
    OwnedByAnother,
    PartitionInvalid,
    SchemaMismatch,
    StoreUnavailable,
)
from kubothek.storage import Store
from kubothek.table.log import (
    AlreadyApplied,
    Change,
    Claim,
    DatasetLog,
    Everything,
    Operation,
    Partitions,
    Snapshot,
    Totals,
    owner_of,
    take_claim,
)
from tests.faultstore import Fault, FaultStore
from tests.table.log.memory import MemoryStore
from tests.table.log.table import (
    CLAIM,
    SCHEMA,
    UUID,
    append,
    appending,
    ids,
    keys_below,
    present,
    started,
    values_of,
    write,
)


def test_first_commit_creates_dataset(log: DatasetLog, store: Store) -> None:
    transaction = started(log, "load")
    assert not transaction.snapshot.exists
    assert transaction.snapshot.version == 0
    committed = transaction.commit(appending(write(store, "a", [1, 2])))
    assert committed.version == 1
    assert committed.added.rows == 2
    snapshot = log.snapshot()
    assert snapshot.exists
    assert snapshot.etag == committed.head_etag
    assert snapshot.schema == SCHEMA
    assert values_of(store, snapshot) == [1, 2]


def test_dataset_is_created_without_files(log: DatasetLog) -> None:
    change = Change(operation=Operation.CREATE, schema=SCHEMA, partition_keys=("p",), metadata={"owner": "me"})
    started(log, "create").commit(change)
    head = log.snapshot().head
    assert (head.partition_keys, dict(head.partitions)) == (("p",), {})
    assert head.metadata["owner"] == "me"
    assert "creation_time" in head.metadata


def test_totals_add_up_over_commits(log: DatasetLog, store: Store) -> None:
    first, second, third = write(store, "p=1/a", [1]), write(store, "p=1/b", [2, 3]), write(store, "p=2/c", [4])
    started(log, "1").commit(appending(first, second))
    started(log, "2").commit(appending(third))
    committed = started(log, "3").commit(Change(operation=Operation.DELETE, removed=("p=1/b",)))
    assert committed.totals == Totals(rows=2, files=2, bytes=first.bytes + third.bytes, partitions=2)
    committed = started(log, "4").commit(
        Change(operation=Operation.OVERWRITE, removed=("p=1/a", "p=2/c"), reads=Everything())
    )
    assert committed.totals == Totals()


def test_commit_rerun_returns_already_applied_with_result(log: DatasetLog, store: Store) -> None:
    committed = append(log, store, "load", [1, 2])
    append(log, store, "another")
    again = log.begin("load", "d")
    assert isinstance(again, AlreadyApplied)
    assert (again.version, again.added, again.totals) == (1, committed.added, committed.totals)
    assert present(store) == [1, 2, 1]


def test_commit_id_reused_for_another_change_is_refused(log: DatasetLog, store: Store) -> None:
    append(log, store, "load")
    before = keys_below(store)
    with pytest.raises(IdReused, match="load"):
        log.begin("load", "another digest")
    assert keys_below(store) == before


@pytest.mark.parametrize("commit_id", ["", "kubothek:drop:1", "\ud800"])
def test_invalid_commit_id_is_refused(log: DatasetLog, commit_id: str) -> None:
    with pytest.raises(InputError, match="commit id"):
        log.begin(commit_id, "d")


@pytest.mark.parametrize("commit_id", ["a/b", "..", "ü ∂", "a" * 400, "n" * 63 + "/" + "m" * 253])
def test_commit_id_accepts_any_text(log: DatasetLog, store: Store, commit_id: str) -> None:
    started(log, commit_id).commit(appending(write(store, "a")))
    assert isinstance(log.begin(commit_id, "d"), AlreadyApplied)
    started(log, commit_id + "x").commit(appending(write(store, "b")))
    assert ids(log) == [commit_id, commit_id + "x"]


@pytest.mark.parametrize("uuid", ["", "a b", "a/b", "++cube", "a\n", "ü"])
def test_invalid_dataset_uuid_is_refused(store: Store, uuid: str) -> None:
    with pytest.raises(InputError, match="uuid"):
        DatasetLog(store, uuid)


# --- against each other ---


def test_append_rebases_over_concurrent_append(log: DatasetLog, store: Store) -> None:
    append(log, store, "first", [1])
    late = started(log, "late")
    append(log, store, "second", [2])
    committed = late.commit(appending(write(store, "late", [3])))
    assert (committed.version, committed.rebased) == (3, 1)
    assert committed.totals.rows == 3
    assert present(store) == [1, 2, 3]


def test_concurrent_first_commits_both_land(log: DatasetLog, store: Store) -> None:
    one, other = started(log, "one"), started(log, "other")
    one.commit(appending(write(store, "a", [1])))
    assert other.commit(appending(write(store, "b", [2]))).version == 2
    assert present(store) == [1, 2]


def test_same_commit_run_concurrently_lands_once(log: DatasetLog, store: Store) -> None:
    one, other = started(log, "same"), started(log, "same")
    first = one.commit(appending(write(store, "a", [1])))
    append(log, store, "on top", [2])
    second = other.commit(appending(write(store, "b", [1])))
    assert (second.version, second.record_key) == (first.version, first.record_key)
    assert second.head_etag is None
    assert present(store) == [1, 2]


def test_concurrent_removal_of_same_file_is_conflict(log: DatasetLog, store: Store) -> None:
    started(log, "1").commit(appending(write(store, "p=1/a"), write(store, "p=2/b")))
    one, other = started(log, "one"), started(log, "other")
    one.commit(Change(operation=Operation.DELETE, removed=("p=1/a",)))
    with pytest.raises(Conflict, match=r"p=1/a\.parquet is no longer"):
        other.commit(Change(operation=Operation.DELETE, removed=("p=1/a",)))
    assert log.snapshot().version == 2


def test_partition_replace_conflicts_only_with_append_to_that_partition(log: DatasetLog, store: Store) -> None:
    started(log, "1").commit(appending(write(store, "p=1/a"), write(store, "p=2/b")))
    reads = Partitions(frozenset({"p=1"}))
    change = Change(
        operation=Operation.REPLACE,
        removed=("p=1/a",),
        added=(write(store, "p=1/new"),),
        schema=SCHEMA,
        reads=reads,
    )
    elsewhere, here = started(log, "elsewhere"), started(log, "here")
    append_to_2 = started(log, "2")
    append_to_2.commit(appending(write(store, "p=2/c")))
    assert elsewhere.commit(change).rebased == 1
    started(log, "3").commit(appending(write(store, "p=1/d")))
    with pytest.raises(Conflict, match="p=1"):
        here.commit(change)


def test_conflicting_change_is_recomputed_by_on_conflict(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    late = started(log, "late")
    append(log, store, "2")

    def overwrite(snapshot: Snapshot) -> Change:
        return Change(operation=Operation.OVERWRITE, removed=tuple(snapshot.head.partitions), reads=Everything())

    committed = late.commit(overwrite(late.snapshot), on_conflict=overwrite)
    assert (committed.version, committed.totals) == (3, Totals())


def test_commit_that_exhausts_retries_raises_contended(store: Store, log: DatasetLog) -> None:
    append(log, store, "1")
    impatient = DatasetLog(store, UUID, claim=CLAIM, patience=timedelta(0))
    late = started(impatient, "late")
    append(log, store, "2")
    with pytest.raises(Contended):
        late.commit(appending(write(store, "late")))
    assert ids(log) == ["1", "2"]


# --- what is refused before anything is written ---


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (Change(operation=Operation.DELETE, removed=("nope",)), InputError, "nope"),
        (Change(operation=Operation.DELETE, removed=("a", "a")), InputError, "twice"),
        (Change(operation=Operation.APPEND, metadata={"kubothek_version": 7}), InputError, "kubothek_"),
        (
            Change(operation=Operation.APPEND, schema=pa.schema([("y", pa.int64())])),
            SchemaMismatch,
            r"y +- +int64 +not in the table",
        ),
        (Change(operation=Operation.APPEND, partition_keys=("p",)), PartitionInvalid, "partitioned on"),
    ],
)
def test_invalid_change_leaves_dataset_unchanged(
    log: DatasetLog, store: Store, change: Change, error: type[Exception], says: str
) -> None:
    started(log, "1").commit(appending(write(store, "a")))
    transaction, before = started(log, "2"), keys_below(store)
    with pytest.raises(error, match=says):
        transaction.commit(change)
    assert keys_below(store) == before


def test_label_already_in_use_is_conflict(log: DatasetLog, store: Store) -> None:
    started(log, "1").commit(appending(write(store, "a")))
    with pytest.raises(Conflict, match="'a' is in the table already"):
        started(log, "2").commit(appending(write(store, "a")))


def test_first_files_without_schema_are_refused(log: DatasetLog, store: Store) -> None:
    with pytest.raises(InputError, match="schema"):
        started(log, "1").commit(Change(operation=Operation.APPEND, added=(write(store, "a"),)))


def test_null_column_gains_type_with_later_commit(log: DatasetLog, store: Store) -> None:
    nothing = pa.schema([("x", pa.null())])
    started(log, "1").commit(Change(operation=Operation.CREATE, schema=nothing))
    append(log, store, "2")
    assert log.snapshot().schema == SCHEMA
    started(log, "3").commit(Change(operation=Operation.APPEND, schema=nothing))
    assert log.snapshot().schema == SCHEMA


def test_concurrent_incompatible_schemas_do_not_both_land(log: DatasetLog, store: Store) -> None:
    started(log, "1").commit(Change(operation=Operation.CREATE, schema=pa.schema([("x", pa.null())])))
    late = started(log, "late")
    append(log, store, "2")
    with pytest.raises(SchemaMismatch):
        late.commit(Change(operation=Operation.APPEND, schema=pa.schema([("x", pa.string())])))


def test_user_metadata_is_set_and_removed(log: DatasetLog) -> None:
    started(log, "1").commit(Change(operation=Operation.CREATE, schema=SCHEMA, metadata={"a": 1, "b": "2"}))
    started(log, "2").commit(Change(operation=Operation.APPEND, metadata={"a": None, "c": [3]}))
    metadata = log.snapshot().head.metadata
    assert "a" not in metadata
    assert (metadata["b"], metadata["c"]) == ("2", [3])


# --- ownership ---


def test_second_owner_reads_but_cannot_write(log: DatasetLog, store: Store) -> None:
    append(log, store, "1", [5])
    other = DatasetLog(store, UUID, claim=Claim("cluster/other/flights", "i"))
    with pytest.raises(OwnedByAnother, match="cluster/ns/flights"):
        other.begin("2", "d")
    with pytest.raises(OwnedByAnother):
        other.delete()
    assert values_of(store, other.snapshot()) == [5]
    assert (other.inspect().problem or "").startswith("OwnedByAnother")


def test_claim_is_written_before_first_commit(log: DatasetLog, store: Store) -> None:
    started(log, "1")
    assert keys_below(store) == [f".kubothek/{UUID}/owner.json"]


def test_new_incarnation_of_owner_may_write(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    again = DatasetLog(store, UUID, claim=Claim(CLAIM.owner, "incarnation-2"))
    assert append(again, store, "2").version == 2


def test_ownership_of_dataset_can_be_transferred(log: DatasetLog, store: Store) -> None:
    append(log, store, "1")
    other = Claim("cluster/other/flights", "i")
    take_claim(store, UUID, other)
    assert append(DatasetLog(store, UUID, claim=other), store, "2").version == 2
    with pytest.raises(OwnedByAnother):
        log.begin("3", "d")
    assert owner_of(store, UUID) == other.owner


def test_unreadable_claim_blocks_commits(log: DatasetLog, store: Store) -> None:
    store.put(f".kubothek/{UUID}/owner.json", b"{")
    with pytest.raises(CommitError, match="not a claim"):
        log.begin("1", "d")
    assert (log.inspect().problem or "").startswith("CommitError")


# --- a store without conditional writes ---


class Unconditional(MemoryStore):
    """Ignores conditions, as some S3 look-alikes do."""

    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        return self.put(key, data)

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        return self.put(key, data)


def test_store_without_conditional_writes_serves_only_its_owner() -> None:
    store = Unconditional()
    log = DatasetLog(store, UUID, claim=CLAIM, conditional_writes=False)
    append(log, store, "1", [1])
    late = started(log, "late")
    append(log, store, "2", [2])
    assert late.commit(appending(write(store, "late", [3]))).rebased == 1
    assert present(store) == [1, 2, 3]
    with pytest.raises(OwnedByAnother, match="no conditional writes"):
        DatasetLog(store, UUID, conditional_writes=False).begin("3", "d")


# --- a store that fails ---


@pytest.mark.parametrize("after", [False, True])
def test_swap_with_lost_response_commits_once(store: Store, after: bool) -> None:
    append(DatasetLog(store, UUID), store, "1", [1])
    fault = Fault(("put_if_match",), key=".by-dataset-metadata", after=after, error=StoreUnavailable("lost"))
    flaky = FaultStore(store, fault)
    committed = append(DatasetLog(flaky, UUID), flaky, "2", [2])
    assert committed.version == 2
    assert committed.head_etag == store.stat(f"{UUID}.by-dataset-metadata.json").etag
    assert present(store) == [1, 2]


def test_unavailable_store_is_reported_and_later_commit_succeeds(store: Store) -> None:
    append(DatasetLog(store, UUID), store, "1")
    away = FaultStore(store)

    def fail(name: str, key: str) -> None:
        if name == "put_if_match" or away_since:
            away_since.append(name)
            raise StoreUnavailable("away")

    away_since: list[str] = []
    away.before_call = fail
    with pytest.raises(StoreUnavailable):
        append(DatasetLog(away, UUID), away, "2")
    assert append(DatasetLog(store, UUID), store, "2").version == 2


# --- cost ---


def test_append_sends_few_requests_and_no_listing(store: Store) -> None:
    append(DatasetLog(store, UUID, claim=CLAIM), store, "1")
    counting = FaultStore(store)
    log = DatasetLog(counting, UUID, claim=CLAIM)
    transaction = started(log, "2")
    began = [call.name for call in counting.calls]
    transaction.commit(appending(write(store, "b")))
    committed = [call.name for call in counting.calls[len(began) :]]
    # claim, head, its marker, our marker, schema
    assert sorted(began) == ["get", "get", "get_with_info", "get_with_info", "get_with_info"]
    # record, head, marker, head still ours
    assert committed == ["put_if_absent", "put_if_match", "put_if_absent", "stat"]


def test_snapshot_costs_three_requests(store: Store) -> None:
    append(DatasetLog(store, UUID), store, "1")
    counting = FaultStore(store)
    DatasetLog(counting, UUID).snapshot()
    assert len(counting.calls) == 3
