"""Real plateau beside Kubothek on one directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import minimalkv
import pandas as pd
import pytest
from plateau.io.eager import (
    build_dataset_indices,
    delete_dataset,
    garbage_collect_dataset,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)

from kubothek.errors import (
    DatasetDeleted,
    ForeignOverwrite,
    HeadMissing,
    NeedsConversion,
    VersionIncomplete,
    VersionNotFound,
)
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import AlreadyApplied, Change, Claim, DatasetLog, Operation
from kubothek.table.log.model import keys
from kubothek.table.schema import render_common_metadata
from tests.faultstore import Crash, Fault, FaultStore
from tests.table.log.table import (
    CLAIM,
    SCHEMA,
    UUID,
    append,
    appending,
    keys_below,
    operations,
    present,
    started,
    write,
)

HEAD = f"{UUID}.by-dataset-metadata.json"


class Plateau:
    """Plateau on the same directory; ``before_head`` is called between its read and its write of the head."""

    def __init__(self, root: Path) -> None:
        self.before_head: Callable[[], object] = lambda: None
        inner = minimalkv.get_store_from_url(f"hfs://{root}")
        put = inner.put

        def put_hooked(key: str, data: bytes, *args: Any, **kwargs: Any) -> Any:
            if key == HEAD:
                self.before_head()
            return put(key, data, *args, **kwargs)

        inner.put = put_hooked
        self.store = inner

    def append(self, *values: int, **options: Any) -> None:
        frame = pd.DataFrame({"x": list(values)})
        update_dataset_from_dataframes([frame], store=lambda: self.store, dataset_uuid=UUID, **options)

    def values(self) -> list[int]:
        return sorted(int(value) for value in read_table(UUID, store=lambda: self.store)["x"])


@pytest.fixture
def plateau(config: StoreConfig) -> Plateau:
    return Plateau(Path(config.url.removeprefix("file://")))


def test_plateau_reads_committed_rows(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1, 2])
    append(log, store, "2", [3])
    assert plateau.values() == [1, 2, 3]


def test_plateau_write_before_swap_causes_rebase(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1])
    ours = started(log, "2")
    plateau.append(2)
    committed = ours.commit(appending(write(store, "ours", [3])))
    assert committed.rebased == 1
    assert committed.totals.rows == 3
    assert operations(log) == ["Append", "External", "Append"]
    assert sorted(present(store)) == plateau.values() == [1, 2, 3]


def test_commit_overwritten_by_plateau_is_recovered(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1])
    plateau.before_head = lambda: append(log, store, "2", [2])
    plateau.append(3)
    plateau.before_head = lambda: None
    assert plateau.values() == [1, 3]
    append(log, store, "3", [4])
    assert operations(log) == ["Append", "External", "Recovered", "Append"]
    assert sorted(present(store)) == plateau.values() == [1, 2, 3, 4]
    again = log.begin("2", "d")
    assert isinstance(again, AlreadyApplied)
    assert again.version == 4  # the Recovered one
    recovered = next(record for record in log.history() if record.operation is Operation.RECOVERED)
    assert recovered.recovers is not None
    assert "-2-" in recovered.recovers


def test_settle_after_plateau_write_restores_dialect_and_row_counts(
    log: DatasetLog, store: Store, plateau: Plateau
) -> None:
    append(log, store, "1", [1])
    plateau.append(2, 3, metadata={"theirs": "kept"})
    assert log.snapshot().totals is None
    assert sorted(present(store)) == [1, 2, 3]
    state = log.settle()
    assert (state.version, state.problem) == (2, None)
    assert state.totals is not None
    assert (state.totals.rows, state.totals.files) == (3, 2)
    assert store.get(f"{UUID}/table/_common_metadata") == render_common_metadata(SCHEMA)
    assert log.snapshot().head.metadata["theirs"] == "kept"
    assert log.settle() == state


def test_table_overwritten_in_plateau_is_adopted_as_intended(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1])
    append(log, store, "2", [2])
    frame = pd.DataFrame({"y": ["a"]})
    store_dataframes_as_dataset(dfs=[frame], store=lambda: plateau.store, dataset_uuid=UUID, overwrite=True)
    state = log.settle()
    assert (state.version, state.problem) == (3, None)
    snapshot = log.snapshot()
    assert snapshot.schema is not None
    assert snapshot.schema.names == ["y"]
    assert list(read_table(UUID, store=lambda: plateau.store)["y"]) == ["a"]
    assert log.snapshot(2).schema == SCHEMA


def test_dataset_of_plateau_is_adopted_as_version_one(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    plateau.append(1, 2)
    before = keys_below(store)
    snapshot = log.snapshot()
    assert (snapshot.version, snapshot.exists, snapshot.totals) == (0, True, None)
    assert snapshot.schema == SCHEMA
    assert present(store) == [1, 2]
    assert keys_below(store) == before
    append(log, store, "first", [3])
    assert operations(log) == ["External", "Append"]
    assert [record.totals.rows for record in log.history()] == [3, 2]
    assert plateau.values() == [1, 2, 3]


def test_partitioned_dataset_of_plateau_keeps_partition_keys(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    frame = pd.DataFrame({"x": [1, 2], "p": ["a b", "c"]})
    store_dataframes_as_dataset(dfs=[frame], store=lambda: plateau.store, dataset_uuid=UUID, partition_on=["p"])
    log.settle()
    snapshot = log.snapshot()
    assert snapshot.head.partition_keys == ("p",)
    assert snapshot.totals is not None
    assert snapshot.totals.partitions == 2


@pytest.mark.parametrize("storage_format", ["json", "msgpack"])
def test_head_of_plateau_in_each_storage_format_is_read(
    store: Store, plateau: Plateau, log: DatasetLog, storage_format: str
) -> None:
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame({"x": [1]})],
        store=lambda: plateau.store,
        dataset_uuid=UUID,
        metadata_storage_format=storage_format,
    )
    assert present(store) == [1]
    append(log, store, "ours", [2])
    assert present(store) == [1, 2]
    assert plateau.values() == [1, 2]


def packed(plateau: Plateau) -> None:
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame({"x": [1]})],
        store=lambda: plateau.store,
        dataset_uuid=UUID,
        metadata_storage_format="msgpack",
    )


def test_packed_head_is_deleted_by_adoption(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    packed(plateau)
    kept = store.get(keys.packed_head(UUID))
    append(log, store, "ours", [2])
    assert keys.packed_head(UUID) not in keys_below(store)
    store.put(keys.packed_head(UUID), kept)
    log.settle()
    assert keys.packed_head(UUID) not in keys_below(store)
    delete_dataset(UUID, store=lambda: plateau.store)
    assert not [key for key in keys_below(store) if key.startswith(UUID)]


def test_packed_head_left_behind_is_not_used_as_head(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    packed(plateau)
    kept = store.get(keys.packed_head(UUID))
    append(log, store, "ours", [2])
    store.put(keys.packed_head(UUID), kept)
    store.delete([HEAD])
    with pytest.raises(HeadMissing):
        present(store)
    with pytest.raises(HeadMissing):
        append(log, store, "more", [3])


def test_adoption_that_crashes_before_packed_head_deletion_is_completed(store: Store, plateau: Plateau) -> None:
    packed(plateau)
    dying = FaultStore(store, Fault(("delete",), 1))
    with pytest.raises(Crash):
        DatasetLog(dying, UUID, claim=CLAIM).settle()
    append(DatasetLog(store, UUID, claim=CLAIM), store, "ours", [2])
    assert keys.packed_head(UUID) not in keys_below(store)
    assert present(store) == [1, 2]


def test_implicit_dataset_is_adopted_only_after_conversion(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    plateau.append(1)
    document = json.loads(store.get(HEAD))
    del document["partitions"]
    store.put(HEAD, json.dumps(document).encode())
    assert present(store) == [1]
    with pytest.raises(NeedsConversion, match="kubothek adopt --convert flights"):
        append(log, store, "ours", [2])
    log.convert()
    append(log, store, "ours", [2])
    assert plateau.values() == [1, 2]


def test_index_of_plateau_is_kept_up_to_date(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame({"x": [1]})],
        store=lambda: plateau.store,
        dataset_uuid=UUID,
        secondary_indices=["x"],
    )
    log.settle()
    append(log, store, "2", [2])
    index = log.snapshot().head.indices["x"]
    found = read_table(UUID, store=lambda: plateau.store, predicates=[[("x", "==", 2)]])
    assert list(found["x"]) == [2]
    plateau.append(3)
    log.settle()
    assert log.snapshot().head.indices["x"] != index
    found = read_table(UUID, store=lambda: plateau.store, predicates=[[("x", "==", 3)]])
    assert list(found["x"]) == [3]


class Removal:
    """A partitioned table from which plateau removes p=a while our commit falls between its read and write."""

    def __init__(self, log: DatasetLog, store: Store, plateau: Plateau, ours: Operation) -> None:
        store_dataframes_as_dataset(
            dfs=[pd.DataFrame({"x": [1, 2], "p": ["a", "b"]})],
            store=lambda: plateau.store,
            dataset_uuid=UUID,
            partition_on=["p"],
        )
        log.settle()
        self.label = next(label for label in log.snapshot().head.partitions if label.startswith("p=a"))
        added = (write(store, "p=a/ours", [7]),) if ours is Operation.REPLACE else ()
        change = Change(operation=ours, removed=(self.label,), added=added, schema=log.snapshot().schema)
        plateau.before_head = lambda: started(log, "ours").commit(change)
        nothing = pd.DataFrame({"x": pd.Series([], dtype=int), "p": pd.Series([], dtype=str)})
        update_dataset_from_dataframes(
            [nothing], store=lambda: plateau.store, dataset_uuid=UUID, delete_scope=[{"p": "a"}]
        )
        plateau.before_head = lambda: None


def test_replace_of_files_removed_by_plateau_is_reported_as_overwritten(
    store: Store, plateau: Plateau, log: DatasetLog
) -> None:
    removal = Removal(log, store, plateau, Operation.REPLACE)
    state = log.settle()
    problem = state.problem or ""
    assert problem.startswith("ForeignOverwrite: another program overwrote version 2 (")
    assert removal.label in problem
    with pytest.raises(ForeignOverwrite, match="version 2"):
        log.begin("ours", "d")
    with pytest.raises(VersionNotFound):
        log.snapshot(2)
    started(log, "other").commit(Change(operation=Operation.APPEND, metadata={"writers": "go on"}))
    assert log.inspect().problem == problem
    assert present(store) == [2]


def test_accepted_overwrite_allows_same_commit_again(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    Removal(log, store, plateau, Operation.REPLACE)
    log.settle()
    log.accept_overwritten()
    assert log.settle().problem is None
    schema = log.snapshot().schema
    started(log, "ours").commit(
        Change(operation=Operation.APPEND, added=(write(store, "p=a/again", [7]),), schema=schema)
    )
    assert sorted(present(store)) == [2, 7]


def test_file_removed_by_both_writers_is_not_reported(store: Store, plateau: Plateau, log: DatasetLog) -> None:
    Removal(log, store, plateau, Operation.DELETE)
    assert log.settle().problem is None
    assert operations(log) == ["External", "External", "Recovered"]
    assert present(store) == [2]


def test_garbage_collection_of_plateau_makes_old_versions_incomplete(
    log: DatasetLog, store: Store, plateau: Plateau
) -> None:
    append(log, store, "1", [1])
    label = next(iter(log.snapshot().head.partitions))
    started(log, "2").commit(
        Change(operation=Operation.REPLACE, removed=(label,), added=(write(store, "new"),), schema=SCHEMA)
    )
    garbage_collect_dataset(UUID, store=lambda: plateau.store)
    assert present(store) == [1]
    with pytest.raises(VersionIncomplete, match=r"version 1 .* 1 of its files"):
        log.snapshot(1)


def test_deleted_dataset_is_absent_and_read_only_for_plateau(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1])
    log.delete()
    files = keys_below(store, f"{UUID}/")
    for attempt in (
        plateau.values,
        lambda: plateau.append(2),
        lambda: garbage_collect_dataset(UUID, store=lambda: plateau.store),
        lambda: delete_dataset(UUID, store=lambda: plateau.store),
        lambda: build_dataset_indices(lambda: plateau.store, UUID, ["x"]),
    ):
        with pytest.raises(KeyError):
            attempt()
    assert set(files) <= set(keys_below(store, f"{UUID}/"))
    log.restore()
    assert plateau.values() == [1]


def test_dataset_recreated_by_plateau_over_tombstone_is_new(log: DatasetLog, store: Store, plateau: Plateau) -> None:
    append(log, store, "1", [1])
    log.delete()
    store_dataframes_as_dataset(
        dfs=[pd.DataFrame({"z": [1.5]})], store=lambda: plateau.store, dataset_uuid=UUID, overwrite=True
    )
    with pytest.raises(DatasetDeleted):
        log.begin("2", "d")
    state = DatasetLog(store, UUID, claim=Claim(CLAIM.owner, "incarnation-2")).settle()
    assert (state.version, state.deleted, state.problem) == (3, False, None)
    snapshot = DatasetLog(store, UUID).snapshot()
    assert snapshot.schema is not None
    assert snapshot.schema.names == ["z"]


def test_copied_dataset_starts_new_history(log: DatasetLog, store: Store, tmp_path: Path) -> None:
    """Only the Kartothek part was copied: its head names a record that is not here."""
    append(log, store, "1", [1])
    target = tmp_path / "copy"
    target.mkdir()
    copy = open_store(StoreConfig(target.as_uri()))
    for key in keys_below(store, UUID):
        copy.put(key, store.get(key))
    there = DatasetLog(copy, UUID)
    append(there, copy, "1", [2])
    assert operations(there) == ["External", "Append"]
    assert present(copy) == [1, 2]
