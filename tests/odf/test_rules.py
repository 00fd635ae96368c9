"""Which block may follow which chain: the rows of ODF 0.34.1, "Metadata Chain" and RFC-010, RFC-011 of links and data,
after which tests are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.odf.problems import Severity
from kubothek.odf.spec.arrow_schema import encode_schema
from kubothek.odf.spec.blocks import Block
from kubothek.odf.spec.events import (
    AddData,
    ExecuteTransform,
    ExecuteTransformInput,
    MetadataEvent,
    SetDataSchema,
    SetInfo,
)
from kubothek.odf.spec.multihash import Codec, Multihash
from kubothek.odf.spec.unknown import Unknown
from kubothek.odf.validation.rules import append, problems
from kubothek.odf.validation.state import ChainState, Consumed, advance
from tests.odf.chains import (
    DERIVATIVE,
    H1,
    H2,
    H3,
    NEXT,
    POLL,
    PUSH,
    ROOT,
    STATE,
    TRANSFORM,
    A,
    B,
    block,
    chain,
    checkpoint,
    data,
    fed,
    found,
    seeded,
)
from tests.odf.making import SCHEMA, later
from tests.odf.values import SOAK, events, examples
from tests.odf.vectors import VECTORS

# --- the link --------------------------------------------------------------------------------------------------------


def test_ch_01_vectors_form_chains_that_keep_the_rules() -> None:
    for name in ("good-root", "good-push", "good-deriv"):
        for version in (2, 3):
            these = [each for each in VECTORS["blocks"] if each["name"].startswith(name)]
            blocks = [Block.decode(bytes.fromhex(each["hex"])) for each in these if each["manifestVersion"] == version]
            state = ChainState()
            for each in sorted(blocks, key=lambda each: each.content.sequence_number):
                state = append(state, each)
            assert state.length == len(blocks) > 4


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ({"sequence_number": 1}, [("Sequence", "MB-02")]),
        ({"sequence_number": 3}, [("Sequence", "MB-02")]),
        ({"prev_block_hash": None}, [("PrevBlock", "MB-03")]),
        ({"prev_block_hash": H1}, [("PrevBlock", "MB-03")]),
        ({"system_time": later(0)}, [("SystemTime", "MB-04")]),
        ({"system_time": later(1)}, []),
    ],
)
def test_mb_02_mb_03_mb_04_and_mb_05_links(link: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(seeded(), SetInfo(), **link) == expected


def test_seed_01_seed_02_and_mb_03_a_chain_has_one_seed_and_starts_with_it() -> None:
    assert found(ChainState(), SetInfo()) == [("SeedFirst", "SEED-01")]
    assert found(seeded(), ROOT) == [("SeedAgain", "SEED-02")]
    assert found(ChainState(), ROOT, prev_block_hash=H1) == [("PrevBlock", "MB-03")]
    assert found(ChainState(), ROOT) == []


@pytest.mark.parametrize("event", [AddData(new_watermark=later(1)), POLL, PUSH], ids=lambda event: event.kind)
def test_ev_02_root_events_are_not_for_derivatives(event: MetadataEvent) -> None:
    assert ("EventKind", "EV-02") in found(chain(DERIVATIVE), event)


@pytest.mark.parametrize("event", [TRANSFORM, ExecuteTransform(query_inputs=())], ids=lambda event: event.kind)
def test_ev_02_derivative_events_are_not_for_roots(event: MetadataEvent) -> None:
    assert ("EventKind", "EV-02") in found(chain(ROOT), event)


def test_ev_01_an_event_of_a_later_version_is_noted() -> None:
    assert found(seeded(), Unknown(14)) == [("UnknownEvent", "EV-01")]


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"prev_offset": None}, [("PrevOffset", "AD-02")]),
        ({"prev_offset": 4}, [("PrevOffset", "AD-02")]),
        ({"new_data": data(9, 10)}, [("Offsets", "AD-03")]),
        ({"new_data": data(11, 12)}, [("Offsets", "AD-03")]),
        ({"new_data": data(10, 9)}, [("Offsets", "AD-03")]),
        ({"prev_checkpoint": None}, [("PrevCheckpoint", "AD-04")]),
        ({"prev_checkpoint": H1}, [("PrevCheckpoint", "AD-04")]),
        ({"new_watermark": None}, [("Watermark", "AD-06")]),
        ({"new_watermark": later(1)}, [("Watermark", "AD-06")]),
        ({"new_watermark": later(2)}, []),
        ({"new_data": data(10, 10, physical_hash=Multihash(Codec.SHA2_256, H1.digest))}, [("HashForm", "DS-01")]),
        ({"new_data": data(10, 10, logical_hash=H1)}, [("HashForm", "DS-01")]),
        ({"new_checkpoint": checkpoint(Multihash(Codec.SHA2_256, H1.digest))}, [("HashForm", "DS-02")]),
        ({"new_source_state": replace(STATE, kind="odf/last-modified")}, [("SourceState", "SS-01")]),
        ({"new_source_state": replace(STATE, kind="odf/last-modified", value="2024-01-01T00:00:00Z")}, []),
        ({"new_source_state": replace(STATE, kind="x/y")}, []),  # SS-02
        ({"new_data": None}, []),  # AD-08: a watermark of its own
        ({"new_data": None, "new_checkpoint": checkpoint(H2), "new_watermark": later(2)}, [("NoOpEvent", "AD-10")]),
        ({"new_data": None, "new_checkpoint": None, "new_watermark": later(2)}, []),  # it ends the lineage
    ],
)
def test_ad_02_to_ad_10_data_goes_on_where_it_ended(changed: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(fed(), replace(NEXT, **changed)) == expected


def test_ad_03_the_first_record_has_offset_0() -> None:
    assert found(seeded(), AddData(new_data=data(0, 0))) == []
    assert found(seeded(), AddData(new_data=data(1, 1))) == [("Offsets", "AD-03")]
    assert found(seeded(), AddData(prev_offset=0, new_data=data(1, 1))) == [
        ("PrevOffset", "AD-02"),
        ("Offsets", "AD-03"),
    ]


def test_ad_05_a_checkpoint_that_is_dropped_is_no_predecessor_any_more() -> None:
    state = append(fed(), block(fed(), replace(NEXT, new_checkpoint=None)))
    again = AddData(prev_offset=10, new_watermark=later(4))
    assert found(state, again) == []
    assert found(state, replace(again, prev_checkpoint=H2)) == [("PrevCheckpoint", "AD-04")]


def test_ad_07_a_source_state_is_the_last_of_its_source() -> None:
    other = replace(STATE, source_name="other")
    state = append(fed(), block(fed(), replace(NEXT, new_source_state=other)))
    assert state.source_states == {"default": STATE, "other": other}
    unchanged = AddData(prev_offset=10, prev_checkpoint=H3, new_checkpoint=checkpoint(H3), new_watermark=later(3))
    assert found(state, replace(unchanged, new_source_state=STATE)) == [("NoOpEvent", "AD-10")]
    assert found(state, replace(unchanged, new_source_state=replace(STATE, value="2"))) == []


def test_ad_09_an_event_brings_something() -> None:
    assert found(seeded(), AddData()) == [("EmptyEvent", "AD-09")]


def test_ad_11_data_needs_a_schema_and_nothing_else_does() -> None:
    assert found(chain(ROOT), AddData(new_data=data(0, 0))) == [("NoSchema", "AD-11")]
    assert found(chain(ROOT), AddData(new_source_state=STATE)) == []


# --- transformations -------------------------------------------------------------------------------------------------


def consumed() -> ChainState:
    """A derivative that saw records 0 to 4 of A, and a block of B."""
    inputs = (
        ExecuteTransformInput(dataset_id=A, new_block_hash=H1, new_offset=4),
        ExecuteTransformInput(dataset_id=B, new_block_hash=H2),
    )
    schema = SetDataSchema(raw_arrow_schema=encode_schema(SCHEMA))
    return chain(DERIVATIVE, TRANSFORM, schema, ExecuteTransform(query_inputs=inputs, new_data=data(0, 0)))


def run(one: dict[str, Any], two: dict[str, Any] | None = None, **changed: Any) -> ExecuteTransform:
    first = {"dataset_id": A, "prev_block_hash": H1, "prev_offset": 4, "new_block_hash": H2, "new_offset": 6}
    second = {"dataset_id": B, "prev_block_hash": H2}
    inputs = (ExecuteTransformInput(**{**first, **one}), ExecuteTransformInput(**{**second, **(two or {})}))
    return ExecuteTransform(**{"query_inputs": inputs, "prev_offset": 0, "new_data": data(1, 2), **changed})


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (run({}), []),
        (run({"new_block_hash": None, "new_offset": None}), []),
        (run({"prev_block_hash": None}), [("InputLink", "ET-03")]),
        (run({"prev_block_hash": H3}), [("InputLink", "ET-03")]),
        (run({"prev_offset": None}), [("InputLink", "ET-03")]),
        (run({}, {"prev_block_hash": None}), [("InputLink", "ET-03")]),
        (run({"new_block_hash": H1}), [("InputLink", "ET-04")]),
        (run({"new_block_hash": None}), [("InputLink", "ET-04")]),
        (run({"new_offset": 4}), [("InputLink", "ET-02")]),
        (run({"new_offset": 3}), [("InputLink", "ET-02")]),
        (run({}, prev_offset=None), [("PrevOffset", "AD-02")]),
        (run({}, new_data=None), [("NoOpEvent", "ET-06")]),
    ],
)
def test_et_01_to_et_06_inputs_go_on_where_they_ended(event: ExecuteTransform, expected: list[tuple[str, str]]) -> None:
    assert found(consumed(), event) == expected


def test_et_01_and_et_05_all_inputs_in_their_order() -> None:
    event = run({})
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[::-1])) == [("InputsOrder", "ET-05")]
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[:1])) == [("Inputs", "ET-01")]
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[:1] * 2)) == [("Inputs", "ET-01")]
    first = ExecuteTransform(query_inputs=(), new_watermark=later(1))
    assert found(chain(DERIVATIVE), first) == [("NoTransform", "ET-05")]


def test_et_03_what_was_consumed_is_carried_over_empty_intervals() -> None:
    state = append(consumed(), block(consumed(), run({"new_block_hash": None, "new_offset": None})))
    assert state.consumed[A] == Consumed(H1, 4)


def test_et_06_a_run_that_brings_nothing_at_all_is_refused() -> None:
    nothing = run({"new_block_hash": None, "new_offset": None}, new_data=None)
    (problem,) = problems(consumed(), block(consumed(), nothing))
    assert (problem.code, problem.severity) == ("NoOpEvent", Severity.REFUSED)


# --- whatever the events say, an answer and no crash -----------------------------------------------------------------


@examples(25, 500)
@given(made=st.lists(events(), max_size=8))
def test_ve_01_any_events_have_an_answer(made: list[MetadataEvent]) -> None:
    state = seeded()
    for event in made:
        found(state, event)
        state = advance(state, block(state, event))
    assert state.length == 2 + len(made)


def test_sd_01_damaged_schemas_have_an_answer() -> None:
    nested = pa.struct([("t", pa.timestamp("us", "Europe/Paris")), ("d", pa.decimal128(5, 2))])
    fields = [*SCHEMA, pa.field("l", pa.list_(pa.string())), pa.field("s", nested), pa.field("b", pa.binary(3))]
    data = encode_schema(pa.schema(fields))
    codes = set()
    for place in range(len(data)):
        for bit in range(8) if SOAK else (place % 8,):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            event = SetDataSchema(raw_arrow_schema=bytes(changed))
            codes |= {code for code, _ in found(seeded(), event)}
    assert codes >= {"SchemaBytes", "DataColumns", "SchemaEvolution"}
