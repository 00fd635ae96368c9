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


@pytest.mark.requirement("CH-01")
def test_published_vectors_form_valid_chains() -> None:
    for name in ("good-root", "good-push", "good-deriv"):
        for version in (2, 3):
            these = [each for each in VECTORS["blocks"] if each["name"].startswith(name)]
            blocks = [Block.decode(bytes.fromhex(each["hex"])) for each in these if each["manifestVersion"] == version]
            state = ChainState()
            for each in sorted(blocks, key=lambda each: each.content.sequence_number):
                state = append(state, each)
            assert state.length == len(blocks) > 4


@pytest.mark.requirement("MB-02", "MB-03", "MB-04", "MB-05")
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
def test_block_link_violations_are_reported(link: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(seeded(), SetInfo(), **link) == expected


@pytest.mark.requirement("SEED-01", "SEED-02", "MB-03")
def test_chain_without_single_leading_seed_is_reported() -> None:
    assert found(ChainState(), SetInfo()) == [("SeedFirst", "SEED-01")]
    assert found(seeded(), ROOT) == [("SeedAgain", "SEED-02")]
    assert found(ChainState(), ROOT, prev_block_hash=H1) == [("PrevBlock", "MB-03")]
    assert found(ChainState(), ROOT) == []


@pytest.mark.requirement("EV-02")
@pytest.mark.parametrize("event", [AddData(new_watermark=later(1)), POLL, PUSH], ids=lambda event: event.kind)
def test_root_event_in_derivative_is_reported(event: MetadataEvent) -> None:
    assert ("EventKind", "EV-02") in found(chain(DERIVATIVE), event)


@pytest.mark.requirement("EV-02")
@pytest.mark.parametrize("event", [TRANSFORM, ExecuteTransform(query_inputs=())], ids=lambda event: event.kind)
def test_derivative_event_in_root_is_reported(event: MetadataEvent) -> None:
    assert ("EventKind", "EV-02") in found(chain(ROOT), event)


@pytest.mark.requirement("EV-01")
def test_event_of_newer_version_is_noted() -> None:
    assert found(seeded(), Unknown(14)) == [("UnknownEvent", "EV-01")]


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("AD-02", "AD-03", "AD-04", "AD-05", "AD-06", "AD-07", "AD-08", "AD-09", "AD-10")
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
def test_add_data_that_does_not_continue_chain_is_reported(
    changed: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert found(fed(), replace(NEXT, **changed)) == expected


@pytest.mark.requirement("AD-03")
def test_first_record_with_nonzero_offset_is_reported() -> None:
    assert found(seeded(), AddData(new_data=data(0, 0))) == []
    assert found(seeded(), AddData(new_data=data(1, 1))) == [("Offsets", "AD-03")]
    assert found(seeded(), AddData(prev_offset=0, new_data=data(1, 1))) == [
        ("PrevOffset", "AD-02"),
        ("Offsets", "AD-03"),
    ]


@pytest.mark.requirement("AD-05")
def test_dropped_checkpoint_is_no_predecessor() -> None:
    state = append(fed(), block(fed(), replace(NEXT, new_checkpoint=None)))
    again = AddData(prev_offset=10, new_watermark=later(4))
    assert found(state, again) == []
    assert found(state, replace(again, prev_checkpoint=H2)) == [("PrevCheckpoint", "AD-04")]


@pytest.mark.requirement("AD-07")
def test_repeated_state_of_source_is_reported_as_no_op() -> None:
    other = replace(STATE, source_name="other")
    state = append(fed(), block(fed(), replace(NEXT, new_source_state=other)))
    assert state.source_states == {"default": STATE, "other": other}
    unchanged = AddData(prev_offset=10, prev_checkpoint=H3, new_checkpoint=checkpoint(H3), new_watermark=later(3))
    assert found(state, replace(unchanged, new_source_state=STATE)) == [("NoOpEvent", "AD-10")]
    assert found(state, replace(unchanged, new_source_state=replace(STATE, value="2"))) == []


@pytest.mark.requirement("AD-09")
def test_add_data_without_effect_is_reported() -> None:
    assert found(seeded(), AddData()) == [("EmptyEvent", "AD-09")]


@pytest.mark.requirement("AD-11")
def test_data_without_schema_is_reported() -> None:
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


@pytest.mark.requirement("ET-01", "ET-02", "ET-03", "ET-04", "ET-05", "ET-06")
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
def test_query_inputs_that_do_not_continue_are_reported(
    event: ExecuteTransform, expected: list[tuple[str, str]]
) -> None:
    assert found(consumed(), event) == expected


@pytest.mark.requirement("ET-01", "ET-05")
def test_query_inputs_missing_or_out_of_order_are_reported() -> None:
    event = run({})
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[::-1])) == [("InputsOrder", "ET-05")]
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[:1])) == [("Inputs", "ET-01")]
    assert found(consumed(), replace(event, query_inputs=event.query_inputs[:1] * 2)) == [("Inputs", "ET-01")]
    first = ExecuteTransform(query_inputs=(), new_watermark=later(1))
    assert found(chain(DERIVATIVE), first) == [("NoTransform", "ET-05")]


@pytest.mark.requirement("ET-03")
def test_consumed_offset_is_kept_across_empty_interval() -> None:
    state = append(consumed(), block(consumed(), run({"new_block_hash": None, "new_offset": None})))
    assert state.consumed[A] == Consumed(H1, 4)


@pytest.mark.requirement("ET-06")
def test_run_without_any_effect_is_refused() -> None:
    nothing = run({"new_block_hash": None, "new_offset": None}, new_data=None)
    (problem,) = problems(consumed(), block(consumed(), nothing))
    assert (problem.code, problem.severity) == ("NoOpEvent", Severity.REFUSED)


# --- whatever the events say, an answer and no crash -----------------------------------------------------------------


@pytest.mark.requirement("VE-01")
@examples(25, 500)
@given(made=st.lists(events(), max_size=8))
def test_chain_rules_handle_random_events(made: list[MetadataEvent]) -> None:
    state = seeded()
    for event in made:
        found(state, event)
        state = advance(state, block(state, event))
    assert state.length == 2 + len(made)


@pytest.mark.requirement("SD-01")
def test_chain_rules_handle_damaged_schemas() -> None:
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
