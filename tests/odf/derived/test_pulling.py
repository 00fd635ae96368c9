"""Runs: what they take of their inputs, and what they commit."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from kubothek.catalog import Lake
from kubothek.errors import EventInvalid, InputError, RecordMissing, SchemaMismatch, TransformChanged, TransformInvalid
from kubothek.odf import Timestamp
from kubothek.odf.dataset import Ledger, Root, Table, again, export, import_chain
from kubothek.odf.derived import Derivative, Limits, OnChange, inputs_of, open_ledger
from kubothek.odf.spec.events import DatasetKind, DatasetSnapshot, SetDataSchema, SetInfo, SetTransform
from kubothek.odf.spec.sources import TransformSql
from kubothek.odf.transform import ENGINE_VERSION, checkpoint
from kubothek.sandbox import limited
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.verify import verify_dataset
from tests.odf.derived.world import (
    APPEND,
    LATE,
    PER_CARRIER,
    answer,
    derived,
    opened,
    owner,
    pull,
    push,
    root,
    rows,
    runs,
    settle,
    sound,
    table,
    transform,
)

pytestmark = pytest.mark.slow


@pytest.mark.requirement("DT-03")
def test_run_consumes_all_blocks_and_offsets_since_last_run(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 5)})
    derived(store)
    first = pull(store)
    assert first.consumed == 2
    assert table(store) == answer(store, LATE)
    push(store, {1: ("AA", 30), 2: ("BB", 50), 3: ("CC", 1)})
    pull(store)
    assert table(store) == answer(store, LATE)
    one, two = runs(store)
    assert (one.query_inputs[0].prev_block_hash, one.query_inputs[0].prev_offset) == (None, None)
    assert one.query_inputs[0].new_offset == 1
    assert two.query_inputs[0].prev_block_hash == one.query_inputs[0].new_block_hash
    assert (two.query_inputs[0].prev_offset, two.query_inputs[0].new_offset) == (1, 6)
    assert sound(store).records == 4
    assert pull(store).done.up_to_date


@pytest.mark.requirement("ST-02", "ST-03", "EN-11")
def test_transform_is_stored_with_input_ids_queries_and_engine_version(
    store: Store,
) -> None:
    made = root(store)
    late = derived(store, "late", transform(LATE.replace("flights", "f"), ("flights", "f")))
    stored = late.state.transform
    assert stored is not None
    assert isinstance(stored.transform, TransformSql)
    assert [(each.dataset_ref, each.alias) for each in stored.inputs] == [(str(made.id), "f")]
    assert stored.transform.query is None
    assert [step.query for step in stored.transform.queries or ()] == [LATE.replace("flights", "f")]
    assert stored.transform.version == ENGINE_VERSION
    push(store, {1: ("AA", 20)})
    assert pull(store).done.records == 1
    given = transform(LATE.replace("flights", "f"), ("flights", "f"))
    assert late.missing([given, SetInfo(description="new")], inputs_of(store)) == [SetInfo(description="new")]


@pytest.mark.requirement("ST-01")
def test_missing_inputs_are_reported_together_without_writes(store: Store) -> None:
    root(store)
    with pytest.raises(InputError, match="nowhere, neither"):
        derived(store, "late", transform(LATE, "flights", "nowhere", "neither"))
    with pytest.raises(EventInvalid, match="one SetTransform, not 2"):
        derived(store, "late", transform(), transform())
    assert not list(store.list("late"))


@pytest.mark.requirement("EN-05")
def test_invalid_query_is_refused_without_writes(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    with pytest.raises(TransformInvalid):
        derived(store, "late", transform("SELECT id, now() AS at FROM flights"))
    with pytest.raises(TransformInvalid):
        derived(store, "late", transform("SELECT nothing FROM flights"))
    assert not list(store.list("late"))


def test_dataset_as_own_input_is_refused(store: Store) -> None:
    root(store)
    late = derived(store)
    with pytest.raises(InputError, match="'late' is the dataset"):
        late.set_transform(transform(LATE, "flights", "late"), inputs_of(store))


@pytest.mark.requirement("DT-05")
def test_run_without_new_or_complete_input_data_commits_nothing(store: Store) -> None:
    root(store)
    root(store, "more")
    derived(
        store, "late", transform(f"{LATE} UNION ALL {LATE.replace('FROM flights', 'FROM more')}", "flights", "more")
    )
    assert pull(store).done.up_to_date
    push(store, {1: ("AA", 20)})
    waiting = opened(store).pending(inputs_of(store))
    assert (waiting.records, waiting.moved, waiting.empty, waiting.ready) == (1, True, ("more",), False)
    assert pull(store).done.up_to_date
    push(store, {2: ("BB", 30)}, "more")
    assert opened(store).pending(inputs_of(store)).ready
    assert pull(store).done.records == 2
    Root(store, DatasetLog(store, "more")).append_events([SetInfo(description="more")])
    assert not opened(store).pending(inputs_of(store)).ready
    assert pull(store).done.up_to_date
    assert len(runs(store)) == 1


@pytest.mark.requirement("DT-06")
def test_first_run_with_data_commits_schema_and_data_together(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 5)})
    derived(store)
    before = opened(store).snapshot.version
    assert pull(store).done.slices == 0  # nothing is late, and there are no columns yet
    push(store, {1: ("AA", 20)})
    done = pull(store).done
    assert (done.version, done.blocks, done.slices) == (before + 2, 2, 1)
    newest = [block.content.event for block in opened(store).blocks()][:2]
    assert isinstance(newest[1], SetDataSchema)
    sound(store)


@pytest.mark.requirement("DT-04", "DT-07")
def test_derivative_watermark_is_minimum_of_inputs_and_needs_own_run(store: Store) -> None:
    for name in ("flights", "more"):
        root(store, name)
        push(store, {1: ("AA", 20)}, name)
    derived(
        store, "late", transform(f"{LATE} UNION ALL {LATE.replace('FROM flights', 'FROM more')}", "flights", "more")
    )
    assert settle(store) == 1
    one, other = Timestamp.parse("2050-01-01T00:00:00Z"), Timestamp.parse("2051-01-01T00:00:00Z")
    Root(store, DatasetLog(store, "flights")).set_watermark(other)
    before = opened(store).state.watermark
    assert settle(store) == 1  # to that of the other one
    Root(store, DatasetLog(store, "flights")).set_watermark(Timestamp.parse("2052-01-01T00:00:00Z"))
    assert not opened(store).pending(inputs_of(store)).moved
    assert settle(store) == 0
    Root(store, DatasetLog(store, "more")).set_watermark(one)
    done = pull(store).done
    assert (done.watermark, done.records) == (one, 0)
    assert before is not None
    assert before < one
    push(store, {1: ("AA", 20), 2: ("BB", 1)})  # not late, and not a later watermark either: only consumed (ET-06)
    assert pull(store).consumed == 1
    assert opened(store).state.watermark == one
    assert pull(store).done.up_to_date
    events = runs(store)
    assert [each.prev_offset for each in events[-1].query_inputs] == [0, 0]
    assert events[-1].query_inputs[1].new_block_hash is None


@pytest.mark.requirement("DT-02")
def test_run_ends_at_schema_change_of_input(store: Store) -> None:
    root(store, merge=APPEND)
    derived(store, "late", transform("SELECT * FROM flights"))
    push(store, {1: ("AA", 20)})
    push(store, {2: ("BB", 20)})
    push(store, {3: ("CC", 20)}, tail=pa.array(["N1"]))
    waiting = opened(store).pending(inputs_of(store))
    assert (waiting.records, waiting.blocks, waiting.reshaped) == (3, 3, ("flights",))
    first = pull(store)
    assert (first.consumed, first.more) == (2, True)
    second = pull(store)
    assert (second.consumed, second.more) == (1, False)
    columns = ("id", "carrier", "tail")
    expected = {(1, "AA", None): 1, (2, "BB", None): 1, (3, "CC", "N1"): 1}
    assert table(store, columns=columns) == expected
    assert len([e for e in (b.content.event for b in opened(store).blocks()) if isinstance(e, SetDataSchema)]) == 2
    sound(store)


@pytest.mark.requirement("EVO-03")
def test_changed_query_does_not_resume_from_old_state(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    root(store, merge=APPEND)
    derived(store, "carriers", transform(PER_CARRIER))
    push(store, {1: ("AA", 20)})
    settle(store, "carriers")
    carriers = opened(store, "carriers")
    another = transform(PER_CARRIER.replace("sum(delay)", "max(delay)"))
    with pytest.raises(TransformChanged, match="Reset"):
        carriers.set_transform(another, inputs_of(store))
    with pytest.raises(TransformChanged, match="cannot continue from the state"):
        carriers.set_transform(another, inputs_of(store), on_change=OnChange.CONTINUE)
    push(store, {2: ("AA", 30)}, tail=pa.array(["N1"]))  # a column that the query does not look at
    settle(store, "carriers")
    push(store, {3: ("BB", 1)}, tail=pa.array(["N2"]))
    monkeypatch.setattr(checkpoint, "MAGIC", b"KUBOTHEK-STATE-9")  # another engine's
    monkeypatch.setattr(limited, "available", lambda: False)  # workers have their own MAGIC
    with pytest.raises(TransformChanged, match="cannot continue from its last state"):
        pull(store, "carriers")
    carriers.restart()
    settle(store, "carriers")
    columns = ("carrier", "flights", "delay")
    assert (
        table(store, "carriers", columns) == answer(store, PER_CARRIER, columns) == {("AA", 2, 50): 1, ("BB", 1, 1): 1}
    )


def test_change_from_stateless_to_stateful_query_cannot_continue(store: Store) -> None:
    root(store, merge=APPEND)
    late = derived(store)
    late.set_transform(transform(PER_CARRIER), inputs_of(store), on_change=OnChange.REFUSE)  # nothing was read yet
    late.set_transform(transform(LATE), inputs_of(store), on_change=OnChange.REFUSE)
    push(store, {1: ("AA", 20)})
    settle(store)
    for kept in (
        PER_CARRIER,
        f"SELECT f.event_time, f.id, f.carrier, f.delay FROM ({LATE}) f JOIN flights g ON f.id = g.id",
    ):
        with pytest.raises(TransformChanged, match="keeps a state, and cannot continue"):
            late.set_transform(transform(kept), inputs_of(store), on_change=OnChange.CONTINUE)
    late.set_transform(transform(PER_CARRIER), inputs_of(store), on_change=OnChange.RESET)
    push(store, {2: ("AA", 30)})
    settle(store)
    assert table(store, columns=("carrier", "flights", "delay")) == {("AA", 2, 50): 1}


@pytest.mark.requirement("DT-08")
def test_derivative_query_change_may_add_columns_but_not_drop_them(store: Store) -> None:
    root(store, merge=APPEND)
    derived(store, "late", transform("SELECT event_time, id, carrier, delay FROM flights"))
    push(store, {1: ("AA", 20)})
    settle(store)
    late = opened(store)
    narrower = transform("SELECT event_time, id, carrier FROM flights")
    late.set_transform(narrower, inputs_of(store), on_change=OnChange.CONTINUE)
    push(store, {2: ("BB", 20)})
    objects = {info.key for info in store.list("late/")}
    with pytest.raises(SchemaMismatch, match="'delay' is missing"):
        pull(store)
    assert {info.key for info in store.list("late/")} == objects
    late.set_transform(
        transform("SELECT event_time, id, carrier, delay, 'x' AS kind FROM flights"),
        inputs_of(store),
        on_change=OnChange.CONTINUE,
    )
    pull(store)
    assert table(store, columns=("id", "delay", "kind")) == {(1, 20, None): 1, (2, 20, "x"): 1}
    sound(store)


@pytest.mark.requirement("DAT-09")
@pytest.mark.parametrize("records", [1, 3, 1000])
def test_derivative_result_is_independent_of_run_boundaries(store: Store, records: int) -> None:
    query = f"{LATE} UNION ALL SELECT event_time, id, carrier, delay FROM more"
    root(store)
    root(store, "more", APPEND)
    steps = [{1: 20, 2: 30}, {1: 40, 3: 11}, {1: 5}, {}, {1: 20, 4: 50}]
    for number, step in enumerate(steps):
        push(store, {key: ("AA", delay) for key, delay in step.items()})
        push(store, {number: ("BB", 12)}, "more")
    derived(store, "late", transform(query, "flights", "more"))
    settle(store, limits=Limits(records=records))
    assert table(store) == answer(store, query)
    sound(store)
    assert (len(runs(store)) > 1) == (records < 1000)


@pytest.mark.requirement("OP-02")
def test_equal_records_added_and_retracted_in_one_run_leave_last_one(store: Store) -> None:
    """The query leaves out the key, so records are equal that were different ones before."""
    query = "SELECT event_time, carrier, delay FROM flights"
    root(store)
    derived(store, "late", transform(query))

    def now(*delays: tuple[int, int]) -> None:
        times = pa.array([datetime(2026, 11, 22, tzinfo=UTC)] * len(delays), pa.timestamp("ms", "UTC"))
        push(store, {number: ("AA", delay) for number, delay in delays}, event_time=times)

    now((1, 20), (2, 20))
    settle(store)
    now((1, 20), (2, 20), (3, 20))
    now((3, 20))
    now((3, 20), (4, 1))
    now((4, 2))
    settle(store)
    assert table(store, columns=("carrier", "delay")) == {("AA", 2): 1}
    late = opened(store)
    before = table(store, columns=("offset",))
    late.restore_view()
    assert table(store, columns=("offset",)) == before
    sound(store)


@pytest.mark.requirement("OP-02")
def test_retraction_missing_from_table_raises_record_missing(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    late = derived(store)
    settle(store)
    tripled = LATE.replace("delay FROM", "3 * delay AS delay FROM")
    late.set_transform(transform(tripled), inputs_of(store), on_change=OnChange.CONTINUE)
    push(store, {1: ("AA", 30)})
    with pytest.raises(RecordMissing, match="takes back what it never had"):
        pull(store)
    assert table(store) == {(1, "AA", 20): 1}
    late.set_transform(transform(LATE), inputs_of(store), on_change=OnChange.RESET)
    settle(store)
    assert table(store) == answer(store, LATE)


def test_derivative_without_table_has_chain_only(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    derived(store, table=None)
    assert pull(store).done.records == 1
    assert sound(store).records == 1
    assert table(store) == Counter()


def test_derivative_from_python_api_can_be_pulled_and_verified(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20)})
    lake = Lake(store)
    snapshot = DatasetSnapshot(name="late", kind=DatasetKind.DERIVATIVE, metadata=(transform(),))
    late = lake.create_ledger("late", snapshot, owner("late"))
    assert late.pull() == 1
    assert late.pull() == 0
    assert late.verify().sound
    assert isinstance(open_ledger(store, DatasetLog(store, "late")), Derivative)
    assert not isinstance(open_ledger(store, DatasetLog(store, "flights")), Derivative)
    with pytest.raises(InputError, match="root dataset"):
        _ = lake.dataset("flights").derivative
    with pytest.raises(InputError, match="no push source"):
        late.ledger.push(again(rows({2: ("BB", 20)})))
    with pytest.raises(EventInvalid):
        late.ledger.set_watermark(Timestamp.parse("2050-01-01T00:00:00Z"))


def test_derivative_as_input_of_derivative_is_consumed(store: Store) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 90)})
    derived(store)
    derived(
        store,
        "later",
        SetTransform(
            inputs=transform(LATE, "late").inputs,
            transform=TransformSql(
                engine="spark", query="SELECT event_time, id, carrier, delay FROM late WHERE delay > 50"
            ),
        ),
    )
    for _ in range(2):
        settle(store)
        settle(store, "later")
        assert table(store, "later") == answer(store, LATE.replace("> 10", "> 50"))
        push(store, {1: ("AA", 60), 2: ("BB", 40)})
    times = [block.content.system_time for block in opened(store, "later").blocks()]
    assert times == sorted(times, reverse=True)


@pytest.mark.requirement("LY-02")
def test_exported_derivative_continues_in_other_store(store: Store, tmp_path: Path) -> None:
    root(store)
    push(store, {1: ("AA", 20), 2: ("BB", 30)})
    derived(store, "carriers", transform(PER_CARRIER))
    pull(store, "carriers")
    push(store, {1: ("AA", 40)})
    pull(store, "carriers")
    (tmp_path / "other").mkdir()
    other = open_store(StoreConfig((tmp_path / "other").as_uri()))
    for name in ("flights", "carriers"):
        export(Ledger(store, DatasetLog(store, name)), other, f"odf/{name}/")
    columns = ("carrier", "flights", "delay")
    for name, uuid in (("carriers", "carriers"), ("flights", "known-otherwise")):
        import_chain(other, DatasetLog(other, uuid), other, f"odf/{name}/", table=Table())
    assert table(other, "carriers", columns) == table(store, "carriers", columns)
    assert verify_dataset(other, DatasetLog(other, "carriers")).sound
    push(other, {3: ("CC", 7)}, "known-otherwise")
    settle(other, "carriers")
    assert table(other, "carriers", columns) == {("CC", 1, 7): 1}
