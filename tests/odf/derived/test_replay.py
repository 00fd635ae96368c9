"""Runs again: what the chain says of them holds, and where it does not, the first place is named."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import ChainCorrupt, InputMissing
from kubothek.odf import Block, Layout, Multihash, logical_hash
from kubothek.odf.dataset import Root
from kubothek.odf.derived import definition, inputs_of, running
from kubothek.odf.derived.verification import verify_runs
from kubothek.odf.problems import Severity
from kubothek.odf.spec.events import (
    Checkpoint,
    DataSlice,
    ExecuteTransform,
    MetadataEvent,
    OffsetInterval,
    SetTransform,
)
from kubothek.odf.spec.layout import head_bytes, parse_head
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.transform import ENGINE_VERSION
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import spread_here
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.verify import DatasetVerdict, verify_dataset
from kubothek.verify.recursion import verify_recursively
from tests.odf.derived.world import (
    LATE,
    PER_CARRIER,
    derived,
    layout,
    opened,
    pull,
    push,
    root,
    runs,
    settle,
    transform,
)

pytestmark = pytest.mark.slow

QUERIES = {"late": LATE, "carriers": PER_CARRIER}


def verified(store: Store, name: str = "late") -> DatasetVerdict:
    return verify_dataset(store, DatasetLog(store, name))


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a derivative of three runs for each query."""
    directory = tmp_path_factory.mktemp("ground")
    store = open_store(StoreConfig(directory.as_uri()))
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    for name, query in QUERIES.items():
        derived(store, name, transform(query))
        pull(store, name)
    for flights in ({1: ("AA", 30), 2: ("BB", 50), 3: ("CC", 1)}, {1: ("AA", 30), 4: ("CC", 11)}):
        push(store, flights)
        for name in QUERIES:
            pull(store, name)
    return directory


@pytest.fixture(params=[*QUERIES])
def made(store: Store, tmp_path: Path, ground: Path, request: pytest.FixtureRequest) -> str:
    """One of the two, in a copy of that store."""
    shutil.copytree(ground, tmp_path / "store", dirs_exist_ok=True)
    return str(request.param)


def forged(store: Store, name: str, number: int, change: MetadataEvent | None = None, **fields: object) -> None:
    """The same chain with another event in the run of this number (from 0), all hashes and links in order."""
    old = [*opened(store, name).blocks()][::-1]
    head: Multihash | None = None
    runs_seen = 0
    where = layout(name)
    for block in old:
        event = block.content.event
        if isinstance(event, ExecuteTransform):
            if runs_seen == number:
                event = change or replace(event, **fields)  # type: ignore[arg-type]
            given = fields.get("new_checkpoint")
            if runs_seen == number + 1 and isinstance(given, Checkpoint) and isinstance(event, ExecuteTransform):
                event = replace(event, prev_checkpoint=given.physical_hash)
            runs_seen += 1
        if isinstance(event, SetTransform) and isinstance(change, SetTransform):
            event = change
        new = Block.encode(replace(block.content, prev_block_hash=head, event=event))
        store.put(where.block(new.hash), new.data)
        head = new.hash
    assert head is not None
    store.put(where.head, head_bytes(head))


def tampered(store: Store, name: str, number: int, change: Callable[[pa.Table], pa.Table]) -> DataSlice:
    """A run's slice with other rows, stored as a sound slice."""
    data = runs(store, name)[number].new_data
    assert data is not None
    where = layout(name)
    rows = change(pq.read_table(pa.BufferReader(store.get(where.data(data.physical_hash)))))
    first = data.offset_interval.start
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, version="1.0", store_schema=False)
    content = sink.getvalue().to_pybytes()
    again = pq.read_table(pa.BufferReader(content))
    new = replace(
        data,
        physical_hash=Multihash.sha3(content),
        size=len(content),
        logical_hash=logical_hash(rows.schema, again.to_batches()),
        offset_interval=OffsetInterval(start=first, end=first + rows.num_rows - 1),
    )
    store.put(where.data(new.physical_hash), content)
    return new


def more_delay(rows: pa.Table) -> pa.Table:
    """With another delay in the first row."""
    field = rows.schema.field("delay")
    values = [99, *rows.column("delay").to_pylist()[1:]]
    return rows.set_column(rows.schema.get_field_index("delay"), field, pa.array(values, field.type))


def replayed(store: Store, name: str) -> list[tuple[str, int | None, str | None, int | None]]:
    """What is wrong with the chain that ``refs/head`` names, in short."""
    head = parse_head(store.get(layout(name).head))
    found = verify_runs(store, layout(name), head, inputs_of(store), spread_here(store, 2))
    return [(each.code, each.number, each.column, each.row) for each in found if each.severity is Severity.ERROR]


@pytest.mark.requirement("VE-02")
def test_derivative_verification_by_replay_is_sound(store: Store, made: str) -> None:
    verdict = verified(store, made)
    assert verdict.sound, verdict.findings
    assert verdict.chain is not None
    assert verdict.chain.slices == 3


@pytest.mark.requirement("VE-02")
def test_replay_of_changed_value_names_first_difference(store: Store, made: str) -> None:
    data = tampered(store, made, 1, more_delay)
    forged(store, made, 1, new_data=data)
    first = data.offset_interval.start
    assert replayed(store, made)[0] == ("TransformDiverged", 4, "delay", first)


@pytest.mark.requirement("VE-02")
def test_replay_of_missing_record_or_changed_watermark_names_run(store: Store, made: str) -> None:
    forged(store, made, 2, new_watermark=None)
    assert [each[0] for each in replayed(store, made)] == ["TransformDiverged"]
    less = 2 if made == "carriers" else 1  # a correction has two halves
    data = tampered(store, made, 2, lambda rows: rows.slice(0, rows.num_rows - less))
    forged(store, made, 2, new_data=data)
    assert replayed(store, made) == [("TransformDiverged", 5, None, data.offset_interval.end + 1)]


@pytest.mark.requirement("VE-02")
def test_replay_of_unknown_checkpoint_names_run(store: Store) -> None:
    root(store)
    derived(store, "carriers", transform(PER_CARRIER))
    for delay in (20, 30, 40):
        push(store, {1: ("AA", delay)})
        pull(store, "carriers")
    first = runs(store, "carriers")[0].new_checkpoint
    assert first is not None
    forged(store, "carriers", 1, new_checkpoint=first)
    assert replayed(store, "carriers")[0][:2] == ("CheckpointDiverged", 4)


@pytest.mark.requirement("EN-11")
def test_changed_engine_version_is_recorded_and_state_continues(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root(store)
    derived(store)
    push(store, {1: ("AA", 20)})
    with monkeypatch.context() as before:
        before.setattr(definition, "ENGINE_VERSION", "kubothek-0")
        before.setattr(running.OURS, "version", "kubothek-0")
        opened(store).set_transform(transform(LATE.replace("10", "11")), inputs_of(store))
        pull(store)
    push(store, {1: ("AA", 30)})
    pull(store)
    found = verified(store)
    assert found.sound, found.findings
    assert found.chain is not None
    (note,) = [each for each in found.chain.problems if each.code == "EngineVersion"]
    assert "kubothek-0" in note.message
    events = [b.content.event for b in opened(store).blocks() if isinstance(b.content.event, SetTransform)]
    versions = [event.transform.version for event in events if isinstance(event.transform, TransformSql)]
    assert versions == [ENGINE_VERSION, "kubothek-0", ENGINE_VERSION]
    assert opened(store).missing([transform(LATE.replace("10", "11"))], inputs_of(store)) == []


@pytest.mark.requirement("VE-02")
def test_replay_runs_can_be_pickled_to_other_machines(store: Store, made: str) -> None:
    """What a task of Spark is given, and what comes back."""

    def far(work: Callable[[Store, Any], Any], items: Sequence[Any], title: str) -> list[Any]:
        there = pickle.loads(pickle.dumps((work, items)))  # our own
        return [pickle.loads(pickle.dumps(there[0](store, item))) for item in there[1]]

    head = opened(store, made).state.head
    assert head is not None
    assert verify_runs(store, layout(made), head, inputs_of(store), far) == []


@pytest.mark.requirement("VE-03", "VE-04")
def test_replay_accepts_different_bytes_of_identical_records(store: Store, made: str) -> None:
    data = runs(store, made)[1].new_data
    assert data is not None
    key = layout(made).data(data.physical_hash)
    rows = pq.read_table(pa.BufferReader(store.get(key)))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, version="1.0", compression="none", store_schema=False)
    store.put(key, sink.getvalue().to_pybytes())
    verdict = verified(store, made)
    assert verdict.sound, verdict.findings
    assert verdict.chain is not None
    assert [each.code for each in verdict.chain.problems] == ["DataPhysical"]


@pytest.mark.requirement("DAT-08")
def test_deleted_slices_and_checkpoints_are_restored_to_identical_bytes(store: Store, made: str) -> None:
    where = layout(made)
    before = {
        info.key: store.get(info.key) for prefix in (where.slices, where.checkpoints) for info in store.list(prefix)
    }
    store.delete(before)
    assert not verified(store, made).sound
    push(store, {1: ("AA", 30), 4: ("CC", 12)})
    if made == "carriers":
        with pytest.raises(InputMissing, match="restore rebuilds it"):
            pull(store, made)
    done = opened(store, made).restore(inputs_of(store))
    assert done.slices + done.checkpoints == len(before)
    after = {
        info.key: store.get(info.key) for prefix in (where.slices, where.checkpoints) for info in store.list(prefix)
    }
    assert after == before
    assert verified(store, made).sound
    one = sorted(key for key in before if key.startswith(where.slices))[1]
    store.delete([one])
    done = opened(store, made).restore(inputs_of(store))
    assert (done.slices, done.runs) == (1, 1)
    assert store.get(one) == before[one]
    assert opened(store, made).restore(inputs_of(store)).runs == 0
    assert pull(store, made).done.records
    assert verified(store, made).sound


@pytest.mark.requirement("DAT-08")
def test_restore_with_different_records_is_refused(store: Store, made: str) -> None:
    flights = Layout(keys.chain("flights"))
    for info in list(store.list(flights.slices)):
        rows = pq.read_table(pa.BufferReader(store.get(info.key)))
        delays = pa.array([int(value) + 1000 for value in rows.column("delay").to_numpy()], pa.int32())
        sink = pa.BufferOutputStream()
        pq.write_table(rows.set_column(rows.schema.get_field_index("delay"), "delay", delays), sink)
        store.put(info.key, sink.getvalue().to_pybytes())
    where = layout(made)
    store.delete([info.key for info in store.list(where.slices)])
    with pytest.raises(ChainCorrupt, match="block 3"):
        opened(store, made).restore(inputs_of(store))
    assert not [*store.list(where.slices)]


@pytest.mark.requirement("VE-02")
def test_replay_with_missing_or_diverged_input_is_reported(store: Store, made: str) -> None:
    flights = Root(store, DatasetLog(store, "flights"))
    middle = next(block.hash for block in flights.blocks() if block.content.sequence_number == 3)
    flights.reset(middle)
    found = verified(store, made)
    assert found.first is not None
    assert found.first.code == "InputDiverged"
    assert found.first.number is not None
    waiting = opened(store, made).pending(inputs_of(store))
    assert [(each.code, each.input) for each in waiting.troubles] == [("InputDiverged", "flights")]
    assert not waiting.ready
    opened(store, made).restart()
    settle(store, made)
    assert verified(store, made).sound
    store.delete([info.key for info in store.list("flights")])
    found = verified(store, made)
    assert found.first is not None
    assert found.first.code == "InputMissing"
    with pytest.raises(InputMissing, match="'flights'"):
        pull(store, made)


@pytest.mark.requirement("REQ-03")
def test_changed_byte_in_root_is_found_from_last_derivative(store: Store, made: str) -> None:
    derived(
        store,
        "last",
        SetTransform(
            inputs=transform("", made).inputs, transform=TransformSql(engine="spark", query=f"SELECT * FROM {made}")
        ),
    )
    settle(store, "last")
    names = [each.uuid for each in verify_recursively(store, "last")]
    assert names == ["flights", made, "last"]
    assert all(each.verdict.sound for each in verify_recursively(store, "last"))
    key = sorted(info.key for info in store.list(Layout(keys.chain("flights")).slices))[0]
    data = bytearray(store.get(key))
    data[len(data) // 2] ^= 1
    store.put(key, bytes(data))
    verdicts = verify_recursively(store, "last")
    first = next(each for each in verdicts if not each.verdict.sound)
    assert first.uuid == "flights"
    assert first.verdict.first is not None
    assert (first.verdict.first.code, first.verdict.first.object) == (
        "DataPhysical",
        f"slice {Multihash.parse(key.rsplit('/', 1)[1]).short}",
    )
