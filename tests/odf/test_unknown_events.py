"""Verification after an event of a later version: what may depend on it is not judged, everything else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import UnsupportedVersion
from kubothek.odf import Layout, Verdict, verify
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block, Dialect
from kubothek.odf.spec.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    ExecuteTransform,
    ExecuteTransformInput,
    OffsetInterval,
    Seed,
    SetDataSchema,
    SetTransform,
    SetVocab,
    TransformInput,
)
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.sources import MergeStrategyLedger, ReadStepCsv, SqlQueryStep, TransformSql
from kubothek.storage import Store
from tests.odf.later import add_unknown
from tests.odf.making import KEY, SCHEMA, Maker, changes, later, rows

pytestmark = pytest.mark.requirement("EV-03")

OTHER = OwnerKey(bytes(range(1, 33))).dataset_id
STATE = Multihash.sha3(b"a state that block 3 left")


def begun(store: Store, *events: Any) -> Maker:
    """Two records in block 2; an event of a later version in block 3, or after these events."""
    maker = Maker(store, dialect=Dialect.ALIGNED)
    maker.start()
    maker.data(rows(0, 3, 1), 2)
    for event in events:
        maker.add(event, 2)
    add_unknown(maker)
    return maker


def continued(maker: Maker, table: pa.Table | None = None, start: int = 10, **changed: Any) -> Block:
    """Records after seven that the unknown event added."""
    table = rows(start, 2, 5) if table is None else table
    data = {"prev_offset": start - 1, "prev_checkpoint": STATE, "new_data": maker.slice(table, start)}
    return maker.data(table, 6, **{**data, **changed})


def notes(verdict: Verdict) -> list[tuple[str, str, int | None]]:
    assert verdict.sound, verdict.first
    return [(each.code, each.rule, each.number) for each in verdict.problems]


def errors(store: Store) -> set[str]:
    found = verify(store, Layout(), threads=1).problems
    return {problem.code for problem in found if problem.severity is Severity.ERROR}


def test_data_after_unknown_event_are_not_judged_by_state_before_it(store: Store) -> None:
    maker = begun(store)
    continued(maker)
    verdict = verify(store, Layout(), threads=1)
    assert notes(verdict) == [("UnknownEvent", "EV-01", 3), ("UnknownState", "AD-02", 4), ("UnknownState", "AD-04", 4)]
    assert (verdict.slices, verdict.records) == (2, 5)
    assert all(each.unverified for each in verdict.problems)
    assert "not verified: block 3" in verdict.unverified
    assert "(and 2 more)" in verdict.unverified
    assert (
        "not judged, as the event of block 3, of a later version of ODF, may explain it: prevOffset is 9, the last "
        "record's offset 2 (PrevOffset) [UnknownState, AD-02]"
    ) in str(verdict.problems[1])


def test_data_that_continue_the_state_before_unknown_event_need_no_note(store: Store) -> None:
    maker = begun(store)
    maker.data(rows(3, 2, 5), 6)
    assert notes(verify(store, Layout(), threads=1)) == [("UnknownEvent", "EV-01", 3)]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"prev_offset": 10}, "PrevOffset"),
        ({"prev_offset": None}, "PrevOffset"),
        ({"prev_checkpoint": STATE}, "PrevCheckpoint"),
        ({"new_watermark": later(5)}, "Watermark"),
        ({"new_watermark": None}, "Watermark"),
    ],
)
def test_first_data_after_unknown_event_settle_state(store: Store, changed: dict[str, Any], code: str) -> None:
    maker = begun(store)
    continued(maker)
    maker.data(rows(12, 1, 7), 7)
    assert errors(store) == set()
    maker.data(rows(13, 1, 8), 8, **changed)
    assert errors(store) == {code}


def test_event_without_data_settles_offset_after_unknown_event(store: Store) -> None:
    maker = begun(store)
    maker.add(AddData(prev_offset=9, prev_checkpoint=STATE, new_watermark=later(6)), 6)
    maker.add(AddData(prev_offset=9, new_watermark=later(7)), 7)
    assert errors(store) == set()
    maker.add(AddData(prev_offset=2, new_watermark=later(8)), 8)
    assert errors(store) == {"PrevOffset"}


def _offset_back(maker: Maker) -> None:
    continued(maker, start=2)


def _own_offsets(maker: Maker) -> None:
    interval = OffsetInterval(start=20, end=21)
    continued(maker, new_data=maker.slice(rows(20, 2, 5), 20, offset_interval=interval))


def _watermark_back(maker: Maker) -> None:
    continued(maker, new_watermark=later(1))


def _row_offsets(maker: Maker) -> None:
    continued(maker, rows(10, 2, 5, offset=[10, 12]))


def _operations(maker: Maker) -> None:
    continued(maker, rows(10, 2, 5, op=[0, 3]))


def _logical_hash(maker: Maker) -> None:
    continued(maker, new_data=maker.slice(rows(10, 2, 5), 10, logical_hash=maker.slice(rows(0, 1), 0).logical_hash))


def _bytes(maker: Maker) -> None:
    block = continued(maker)
    assert isinstance(block.content.event, AddData)
    assert block.content.event.new_data
    maker.store.put(maker.layout.data(block.content.event.new_data.physical_hash), b"other")


def _system_time(maker: Maker) -> None:
    continued(maker, rows(10, 2, 0))


def _block_time(maker: Maker) -> None:
    continued(maker)
    maker.add(SetVocab(), 1)


def _link(maker: Maker) -> None:
    continued(maker)
    maker.add(SetVocab(), 7, prev_block_hash=maker.blocks[2].hash)


def _kind(maker: Maker) -> None:
    maker.add(ExecuteTransform(query_inputs=(), prev_offset=2, new_watermark=later(6)), 6)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (_offset_back, "PrevOffset"),
        (_own_offsets, "Offsets"),
        (_watermark_back, "Watermark"),
        (_row_offsets, "DataOffsets"),
        (_operations, "DataCorrection"),
        (_logical_hash, "DataLogical"),
        (_bytes, "DataPhysical"),
        (_system_time, "DataSystemTime"),
        (_block_time, "SystemTime"),
        (_link, "BlockMissing"),
        (_kind, "EventKind"),
    ],
)
def test_fault_that_unknown_event_cannot_explain_is_found(
    store: Store, fault: Callable[[Maker], None], code: str
) -> None:
    fault(begun(store))
    found = errors(store)
    assert code in found or (code, found) == ("BlockMissing", {"Sequence"}), found


def test_fault_before_unknown_event_is_found(store: Store) -> None:
    maker = Maker(store, dialect=Dialect.ALIGNED)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    maker.data(rows(3, 1, 1), 1, prev_offset=1)
    add_unknown(maker)
    continued(maker)
    assert errors(store) == {"PrevOffset"}


def other_columns(start: int, names: dict[str, str]) -> pa.Table:
    table = rows(start, 2, 5)
    return table.rename_columns([names.get(name, name) for name in table.column_names])


@pytest.mark.parametrize(
    ("names", "rule"), [({"city": "town"}, "DAT-04"), ({"op": "what", "offset": "nr"}, "SL-11")], ids=["data", "common"]
)
def test_columns_after_unknown_event_are_not_judged(store: Store, names: dict[str, str], rule: str) -> None:
    maker = begun(store)
    table = other_columns(10, names)
    continued(maker, table)
    found = notes(verify(store, Layout(), threads=1))
    assert ("UnknownState", rule, 4) in found
    table = other_columns(12, names)
    wrong = maker.slice(table, 12, logical_hash=maker.slice(rows(0, 1), 0).logical_hash)
    maker.data(table, 7, prev_offset=11, new_data=wrong)
    assert errors(store) == {"DataLogical"}


def test_columns_are_judged_again_after_schema_and_vocabulary(store: Store) -> None:
    maker = begun(store)
    maker.add(SetVocab(operation_type_column="what"), 4)
    named = pa.schema([field.with_name("what") if field.name == "op" else field for field in SCHEMA])
    maker.add(SetDataSchema(raw_arrow_schema=encode_schema(named)), 4)
    continued(maker, other_columns(10, {"op": "what"}))
    found = notes(verify(store, Layout(), threads=1))
    assert {code for code, _, _ in found} == {"UnknownEvent", "UnknownState"}, "columns that the event may have named"
    maker.data(other_columns(12, {"op": "what", "city": "town"}), 7)
    assert errors(store) == {"DataSchema"}


def test_sources_after_unknown_event_are_not_judged(store: Store) -> None:
    source = AddPushSource(source_name="a", read=ReadStepCsv(), merge=MergeStrategyLedger(primary_key=("city",)))
    maker = begun(store, source)
    for event in (DisablePushSource(source_name="b"), DisablePollingSource()):
        maker.add(event, 5)
    continued(maker, changes(offset=[10, 11, 12, 13]), start=10)
    verdict = verify(store, Layout(), threads=1)
    assert [each for each in notes(verdict) if each[0] != "PushSchema"] == [
        ("UnknownEvent", "EV-01", 4),
        ("UnknownState", "PS-04", 5),
        ("UnknownState", "SP-03", 6),
        ("UnknownState", "AD-02", 7),
        ("UnknownState", "AD-04", 7),
        ("UnknownState", "OP-02", 7),
        ("DataKey", "MS-02", 7),
    ]
    retracts, keys = verdict.problems[-2:]
    assert "whether the records that it and later slices retract exist" in str(retracts)
    assert "the event of block 4, of a later version of ODF, can have records or change the sources" in str(keys)


def test_retractions_and_keys_before_unknown_event_are_judged(store: Store) -> None:
    maker = Maker(store, dialect=Dialect.ALIGNED)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    maker.data(changes(city=["new", "nobody", "city 1", "city 1"]), 2)
    add_unknown(maker)
    continued(maker, changes(offset=[10, 11, 12, 13]), start=10)
    (problem,) = [each for each in verify(store, Layout(), threads=1).problems if each.severity is Severity.ERROR]
    assert (problem.code, problem.number, problem.row) == ("DataRetract", 3, 4)


def test_runs_after_unknown_event_are_not_judged_by_state_before_it(store: Store) -> None:
    maker = Maker(store, dialect=Dialect.ALIGNED)
    maker.add(Seed(dataset_id=KEY.dataset_id, dataset_kind=DatasetKind.DERIVATIVE))
    sql = TransformSql(engine="datafusion", queries=(SqlQueryStep(query="SELECT 1"),))
    maker.add(SetTransform(inputs=(TransformInput(dataset_ref=str(KEY.dataset_id), alias="a"),), transform=sql))
    add_unknown(maker)
    one, two = (Multihash.sha3(bytes([number])) for number in range(2))

    def run(before: Multihash, after: Multihash, first: int, last: int, minutes: int) -> None:
        link = ExecuteTransformInput(
            dataset_id=OTHER, prev_block_hash=before, new_block_hash=after, prev_offset=first, new_offset=last
        )
        maker.add(ExecuteTransform(query_inputs=(link,), new_watermark=later(minutes)), minutes)

    run(one, two, 4, 9, 4)
    found = notes(verify(store, Layout(), threads=1))
    assert found == [("UnknownEvent", "EV-01", 2), ("UnknownState", "ET-01", 3), ("UnknownState", "ET-03", 3)]
    run(one, two, 9, 12, 5)
    assert errors(store) == {"InputLink"}
    maker.blocks.pop()
    run(two, one, 9, 8, 5)
    assert errors(store) == {"InputLink"}


def test_chain_that_begins_with_unknown_event_is_unsupported(store: Store) -> None:
    add_unknown(Maker(store, dialect=Dialect.ALIGNED))
    with pytest.raises(UnsupportedVersion, match="begins with an event written by a newer version"):
        verify(store, Layout())


def test_retraction_beside_unknown_column_type_does_not_end_verification(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = Maker(store)
    maker.start()
    maker.data(rows(0, 3, 1), 1)
    real: Any = SetDataSchema

    def unreadable(event: Any) -> Any:
        raise UnsupportedVersion(f"column 'x' of {real.kind}: a later type")

    monkeypatch.setattr("kubothek.odf.validation.state.columns_of", unreadable)
    monkeypatch.setattr("kubothek.odf.validation.rules_definition.columns_of", unreadable)
    maker.data(changes(), 2)
    verdict = verify(store, Layout(), threads=1)
    assert [code for code, _, _ in notes(verdict)] == ["UnknownSchema", "UnknownState"]
    assert all(isinstance(each, Problem) and each.unverified for each in verdict.problems)
