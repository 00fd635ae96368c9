"""Clients of the library that a Dataset's spec.writers names, and those that it does not."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import orjson
import pyarrow as pa
import pytest

import kubothek
from kubothek.catalog import Dataset, Lake
from kubothek.dataset.writing import Writing
from kubothek.errors import (
    DatasetDeleted,
    InputError,
    OwnedByAnother,
    SchemaMismatch,
)
from kubothek.identity import default_writer
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import AlreadyApplied, Change, Claim, Committed, DatasetLog, Operation, take_claim
from kubothek.table.log.model import keys
from kubothek.table.log.model.writers import GRANTABLE, Grant
from kubothek.table.maintenance import CompactionRequest, compact
from kubothek.table.skipping.model import IndexDefinition
from tests.faultstore import Crash, FaultStore, every_crash

OWNER = "cluster/ns/flights"
CLAIM = Claim(OWNER, "uid-1")
ROWS = pa.table({"month": [1, 1, 2], "carrier": ["AA", "UA", "AA"], "delay": [5, -3, None]})
MORE = pa.table({"month": [1], "carrier": ["DL"], "delay": [7]})
WIDER = MORE.append_column("gate", pa.array(["B7"]))


def grant(
    store: Store,
    writers: Mapping[str, Iterable[str]],
    *,
    claim: Claim = CLAIM,
    evolves: bool = False,
    uuid: str = "flights",
) -> None:
    """Commit a grant as the operator's inspection does."""
    wanted = Grant.of(claim.owner, claim.incarnation, writers.items(), evolves=evolves)
    log = DatasetLog(store, uuid, claim=claim)
    log.begin_new("writers").commit(Change(operation=Operation.LAYOUT, grant=wanted, by=claim.owner))


def owned(store: Store) -> None:
    """Three rows in two partitions, with an index and skipping metadata, of an owner."""
    flights = Lake(store).create_dataset(
        "flights", partition_on="month", indices="carrier", skipping=IndexDefinition("MinMax", ("delay",))
    )
    flights.append(ROWS)
    DatasetLog(store, "flights", claim=CLAIM).settle()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(StoreConfig(tmp_path.as_uri()))
    owned(store)
    return store


def opened(store: Store, writer: str | None = "etl") -> Dataset:
    return Lake(store, writer).dataset("flights")


def objects(store: Store) -> dict[str, str]:
    return {info.key: info.etag for info in store.list("")}


def refused(store: Store, write: Callable[[Dataset], object], match: str, writer: str | None = "etl") -> None:
    """Check that a write is refused before its first byte."""
    before = objects(store)
    with pytest.raises(OwnedByAnother, match=match):
        write(opened(store, writer))
    assert objects(store) == before


WRITES: Mapping[str, Callable[[Dataset], object]] = {
    "Append": lambda flights: flights.append(MORE),
    "Replace": lambda flights: flights.replace(MORE),
    "Overwrite": lambda flights: flights.overwrite(MORE),
    "Delete": lambda flights: flights.delete("month = 1"),
    "Update": lambda flights: flights.update({"carrier": "ZZ"}, where="month = 1", row_level=True),
    "Merge": lambda flights: flights.upsert(MORE, key=["month", "carrier"]),
    "Rollback": lambda flights: flights.rollback(2),
    "Compact": lambda flights: flights.compact(),
    "Index": lambda flights: flights.set_skipping(()),
    "Tag": lambda flights: flights.tag("audit"),
}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_write_without_name_is_refused_and_names_the_field(store: Store, write: Callable[[Dataset], object]) -> None:
    grant(store, {"etl": GRANTABLE})
    refused(store, write, "spec.writers of the Dataset.*writer=NAME", writer=None)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_write_to_dataset_without_writers_is_refused(store: Store, write: Callable[[Dataset], object]) -> None:
    refused(store, write, "spec.writers is empty.*add 'etl'")


@pytest.mark.parametrize("operation", WRITES)
def test_writer_for_all_other_operations_is_refused(store: Store, operation: str) -> None:
    grant(store, {"etl": GRANTABLE - {operation}})
    refused(store, WRITES[operation], f"not {operation}: add {operation} to the operations of 'etl'")


@pytest.mark.parametrize(
    "write",
    [
        lambda flights: flights.set_layout(flights.layout),
        lambda flights: flights.set_iceberg("Omit"),
        lambda flights: flights.heal(),
        lambda flights: flights.collect(enforce=True),
        lambda flights: Lake(flights._store, "etl").create_dataset("flights"),
    ],
)
def test_what_the_manifest_decides_is_refused_to_every_writer(store: Store, write: Callable[[Dataset], object]) -> None:
    grant(store, {"etl": GRANTABLE})
    refused(store, write, "through that resource only: change the Dataset")


def test_writer_with_another_name_is_refused(store: Store) -> None:
    grant(store, {"etl": ["Append"], "notebook": ["Append"]})
    refused(store, WRITES["Append"], "names 'etl', 'notebook' and does not permit 'Etl'", writer="Etl")


def test_grant_of_another_owner_permits_nothing(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    take_claim(store, "flights", Claim("cluster/other/flights", "uid-9"))
    refused(store, WRITES["Append"], "belongs to cluster/other/flights, whose spec.writers is empty")


@pytest.mark.parametrize(
    "value", [[], 3, {"writers": {"etl": ["Append"]}}, {"owner": OWNER, "incarnation": "i", "writers": {"etl": [1]}}]
)
def test_grant_in_another_form_permits_nothing(store: Store, value: object) -> None:
    assert Grant.of_json(value) is None


def test_claimed_dataset_without_table_is_refused(store: Store) -> None:
    store.put(keys.owner("planes"), orjson.dumps({"owner": OWNER}))
    with pytest.raises(OwnedByAnother, match="has no table yet"):
        Dataset(Lake(store, "etl"), "planes").append(MORE)


def test_deleted_dataset_is_refused(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    flights = opened(store)
    DatasetLog(store, "flights", claim=CLAIM).delete()
    with pytest.raises(DatasetDeleted, match="restore it"):
        flights.append(MORE)


def test_empty_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="writer is empty"):
        kubothek.open(tmp_path, writer=" ")


# --- commits of a writer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", WRITES)
def test_writer_commits_each_operation_in_its_name(store: Store, operation: str) -> None:
    grant(store, {"etl": ["Append"]})
    flights = opened(store)
    flights.append(MORE)
    grant(store, {"etl": [operation]})
    WRITES[operation](flights)
    newest = next(flights.history())
    assert (newest.operation, newest.by) == (operation, "etl")
    assert newest.version == flights.version


def test_writer_sets_secondary_indices_with_the_operation_index(store: Store) -> None:
    def index_delay(flights: Dataset) -> object:
        return flights.set_indices(["carrier", "delay"])

    grant(store, {"etl": ["Append"]})
    refused(store, index_delay, "not Index")
    grant(store, {"etl": ["Index"]})
    index_delay(opened(store))
    assert set(opened(store).indices) == {"carrier", "delay"}
    assert {record.by for record in opened(store).history() if record.operation is Operation.INDEX} == {"etl"}


@pytest.mark.parametrize(
    "write",
    [
        lambda lake: lake.drop("flights"),
        lambda lake: lake.rename("flights", "planes"),
        lambda lake: lake.dataset("flights").drop_columns("delay"),
    ],
)
def test_drop_rename_and_columns_are_refused_to_every_writer(store: Store, write: Callable[[Lake], object]) -> None:
    grant(store, {"etl": GRANTABLE})
    refused(store, lambda _: write(Lake(store, "etl")), "through that resource only: change the Dataset")


def test_repeated_id_of_writer_is_applied_once(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    first = opened(store).append(MORE, id="batch-1")
    again = opened(store).append(MORE, id="batch-1")
    assert isinstance(first, Committed)
    assert isinstance(again, AlreadyApplied)
    assert (again.version, opened(store).rows) == (first.version, 4)


def test_writer_keeps_indices_skipping_and_layout(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    before = opened(store).snapshot().head
    opened(store).append(MORE)
    after = opened(store).snapshot().head
    assert after.metadata["kubothek_layout"] == before.metadata["kubothek_layout"]
    assert after.metadata["kubothek_index"].keys() == before.metadata["kubothek_index"].keys()
    assert sum(part.rows for part in after.skipping.parts) == len(after.partitions)
    assert opened(store).scan(where="carrier = 'DL'").read_all().num_rows == 1
    assert opened(store).verify().wrong == 0


def test_dataset_without_owner_is_written_as_before_whatever_the_name(store: Store) -> None:
    planes = Lake(store, "etl").create_dataset("planes")
    planes.append(MORE)
    assert {record.by for record in planes.history()} == {"etl"}


def erase_metadata(store: Store) -> None:
    """Overwrite the head as kartothek's index build does."""
    head = orjson.loads(store.get(keys.head("flights")))
    store.put(keys.head("flights"), orjson.dumps(head | {"metadata": {}}))


def test_grant_survives_a_foreign_writer_that_erases_metadata(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    opened(store).append(MORE)
    erase_metadata(store)
    opened(store).append(MORE)
    assert opened(store).rows == 5
    refused(store, WRITES["Delete"], "not Delete")


def test_grant_that_a_foreign_writer_overwrote_is_merged_again_by_the_owner(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    erase_metadata(store)
    refused(store, WRITES["Append"], "spec.writers is empty")
    DatasetLog(store, "flights", claim=CLAIM).settle()
    opened(store).append(MORE)
    assert opened(store).rows == 4
    refused(store, WRITES["Delete"], "not Delete")


# --- columns ---------------------------------------------------------------------------------------------------------


def test_new_column_needs_schema_evolution_of_the_dataset(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    before = opened(store).snapshot()
    with pytest.raises(SchemaMismatch, match=r"(?s)gate.*spec\.table\.schemaEvolution to Compatible"):
        opened(store).append(WIDER, evolve=True)
    assert opened(store).snapshot().version == before.version
    grant(store, {"etl": ["Append"]}, evolves=True)
    opened(store).append(WIDER, evolve=True)
    assert "gate" in opened(store).schema.names


def test_refused_columns_leave_no_data_file(store: Store) -> None:
    grant(store, {"etl": ["Append"]})
    before = {key for key in objects(store) if key.startswith("flights/table/")}
    with pytest.raises(SchemaMismatch):
        opened(store).append(WIDER, evolve=True)
    assert {key for key in objects(store) if key.startswith("flights/table/")} == before


@pytest.mark.parametrize("evolves", [False, True])
def test_overwrite_that_drops_a_column_is_refused(store: Store, *, evolves: bool) -> None:
    grant(store, {"etl": ["Overwrite"]}, evolves=evolves)
    with pytest.raises(SchemaMismatch, match=OWNER):
        opened(store).overwrite(MORE.drop_columns(["delay"]), allow_schema_change=True)


# --- a grant that changes --------------------------------------------------------------------------------------------


def change_after_begin(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None]) -> None:
    """Let a change happen once, after a write has begun and has written its files."""
    inner, waiting = Writing._written, [change]

    def written(self: Writing, *args: object, **kwargs: object) -> object:
        done = inner(self, *args, **kwargs)  # type: ignore[arg-type]
        if waiting:
            waiting.pop()()
        return done

    monkeypatch.setattr(Writing, "_written", written)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda store: grant(store, {}), "spec.writers is empty"),
        (lambda store: grant(store, {"other": ["Append"]}), "names 'other'"),
        (lambda store: grant(store, {"etl": ["Delete"]}), "not Append"),
        (
            lambda store: grant(store, {"etl": ["Append"]}, claim=Claim(OWNER, "uid-2")),
            "was created again since this Append",
        ),
    ],
)
def test_commit_that_began_under_a_former_grant_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: Callable[[Store], None], match: str
) -> None:
    grant(store, {"etl": ["Append"]})
    flights = opened(store)
    change_after_begin(monkeypatch, lambda: change(store))
    with pytest.raises(OwnedByAnother, match=match):
        flights.append(MORE)
    assert flights.rows == 3


def test_commit_survives_a_change_of_the_grant_that_still_permits_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(store, {"etl": ["Append"]})
    flights = opened(store)
    change_after_begin(monkeypatch, lambda: grant(store, {"etl": ["Append"], "other": ["Append"]}))
    assert flights.append(MORE).version == flights.version
    assert flights.rows == 4


# --- crashes and races -----------------------------------------------------------------------------------------------


def test_append_of_writer_that_dies_at_any_call_is_applied_once(tmp_path: Path) -> None:
    def fresh(name: str) -> Store:
        (tmp_path / name).mkdir()
        store = open_store(StoreConfig((tmp_path / name).as_uri()))
        owned(store)
        grant(store, {"etl": ["Append"]})
        return store

    counting = FaultStore(fresh("counted"))
    opened(counting).append(MORE, id="batch-1")
    for number, fault in enumerate(every_crash(counting.calls)):
        store = fresh(str(number))
        with pytest.raises(Crash):
            opened(FaultStore(store, fault)).append(MORE, id="batch-1")
        opened(store).append(MORE, id="batch-1")
        assert opened(store).rows == 4, fault
        assert [record.by for record in opened(store).history() if record.id == "batch-1"] == ["etl"], fault


def test_random_histories_of_owner_and_writers_commit_exactly_what_was_permitted(tmp_path: Path) -> None:
    rng = random.Random(34)
    store = open_store(StoreConfig(tmp_path.as_uri()))
    owned(store)
    clients = {name: Lake(store, name).dataset("flights") for name in ("a", "b")}
    permitted: dict[str, frozenset[str]] = {}
    rows = 3
    for _ in range(60):
        name = rng.choice(["owner", *clients])
        if name == "owner":
            permitted = {each: frozenset(rng.sample(["Append", "Delete"], rng.randint(1, 2))) for each in clients}
            permitted = {each: permitted[each] for each in clients if rng.random() < 0.7}
            grant(store, permitted)
            continue
        operation, version = rng.choice(["Append", "Delete"]), clients[name].version
        if operation not in permitted.get(name, ()):
            with pytest.raises(OwnedByAnother):
                WRITES[operation](clients[name])
            assert clients[name].version == version
            continue
        WRITES[operation](clients[name])
        months = clients[name].scan(columns=["month"]).read_all().column("month").to_pylist()
        rows = rows + 1 if operation == "Append" else months.count(2)
        assert (len(months), next(clients[name].history()).by) == (rows, name)


def test_writers_take_turns_with_commits_and_compactions_of_the_owner(store: Store) -> None:
    grant(store, {"a": ["Append"], "b": ["Append", "Compact"]})
    owner = DatasetLog(store, "flights", claim=CLAIM)
    together = Barrier(4)

    def many(act: Callable[[int], object]) -> None:
        together.wait()
        for number in range(6):
            act(number)

    def owners_turn(number: int) -> None:
        if number % 2:
            grant(store, {"a": ["Append"], "b": ["Append", "Compact"], f"c{number}": ["Tag"]})
        else:
            request = CompactionRequest()
            compact(store, owner, request, commit_id=f"compaction-{number}", digest="d", by=OWNER)

    clients = {name: opened(store, name) for name in ("a", "b")}
    turns: list[Callable[[int], object]] = [
        owners_turn,
        lambda number: clients["a"].append(MORE, id=f"a-{number}"),
        lambda number: clients["b"].append(MORE, id=f"b-{number}"),
        lambda number: opened(store, "b").compact(id=f"b-compact-{number}"),
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(many, turns))
    history = list(opened(store).history())
    appended = sorted(record.id for record in history if record.operation is Operation.APPEND and record.by in "ab")
    assert appended == sorted(f"{name}-{number}" for name in "ab" for number in range(6))
    assert opened(store).rows == 3 + 12
    assert opened(store).verify().wrong == 0


# --- the name --------------------------------------------------------------------------------------------------------


def token(claims: object) -> str:
    return f"e30.{urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip('=')}.c2ln"


def test_name_is_that_of_the_pods_service_account(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token({"sub": "system:serviceaccount:team:etl", "aud": ["x"]}))
    assert default_writer({}, file) == "system:serviceaccount:team:etl"
    assert default_writer({"KUBOTHEK_WRITER": "notebook"}, file) == "notebook"


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.!!.c", token([]), token({}), token({"sub": 3}), token({"sub": ""})]
)
def test_file_that_is_no_token_gives_no_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    assert default_writer({}, file) is None


def test_name_is_absent_outside_a_pod(tmp_path: Path) -> None:
    assert default_writer({}, tmp_path / "absent") is None


def test_variable_names_the_writer_of_a_lake(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    grant(store, {"etl": ["Append"]})
    monkeypatch.setenv("KUBOTHEK_WRITER", "etl")
    flights = opened(store, None)
    flights.append(MORE)
    assert next(flights.history()).by == "etl"
