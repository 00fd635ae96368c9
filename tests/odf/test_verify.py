"""Verification of whole chains in a store: REQ-03, VE-01, CH-02, and the rows of the slices (DAT, SL, OP, TIM, HS)."""

from __future__ import annotations

import io
import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kubothek.errors import ChainCorrupt, StoreUnavailable
from kubothek.odf import BrokenChain, Layout, Level, Scope, read_chain, verify
from kubothek.odf.problems import Problem, Severity
from kubothek.odf.spec.blocks import Dialect
from kubothek.odf.spec.events import AddData, AddPushSource, SetInfo
from kubothek.odf.spec.layout import head_bytes
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepCsv
from kubothek.odf.validation.slices import Expected, check_slices
from kubothek.odf.validation.verification import audit_store
from kubothek.storage import Store
from tests.faultstore import Fault, FaultStore
from tests.odf.conftest import first
from tests.odf.making import KEY, Maker, later, rows, small
from tests.odf.values import SOAK


@pytest.mark.requirement("VE-01")
@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("root", ["", "some/where/"])
def test_verification_of_valid_chain_is_sound(store: Store, root: str, dialect: Dialect) -> None:
    maker = small(store, Layout(root), dialect)
    seen: list[tuple[int, int]] = []
    verdict = verify(store, Layout(root), threads=2, progress=lambda done, of: seen.append((done, of)))
    assert verdict.problems == ()
    assert verdict.sound
    assert (verdict.dataset_id, verdict.head) == (KEY.dataset_id, maker.blocks[-1].hash)
    assert (verdict.blocks, verdict.slices, verdict.records) == (4, 2, 7)
    assert verdict.bytes == sum(info.size for info in store.list(f"{root}data/"))
    assert seen == [(1, 2), (2, 2)]
    assert verify(store, Layout(root), threads=5) == verdict, "with threads left for columns"


@pytest.mark.requirement("VE-01")
def test_verification_can_end_at_given_block(store: Store) -> None:
    """What came later does not matter: that is how a version is cited (REQ-02)."""
    maker = small(store)
    store.delete([Layout().block(maker.blocks[3].hash)])
    verdict = verify(store, Layout(), maker.blocks[2].hash, threads=1)
    assert (verdict.sound, verdict.blocks, verdict.records) == (True, 3, 3)
    assert first(store).code == "BlockMissing"


@pytest.mark.requirement("REQ-03")
def test_verification_finds_every_changed_byte(store: Store, tmp_path: Path) -> None:
    """``make soak``: all bits of every byte; else one bit of a spread of them. Missing and shorter files, too."""
    small(store)
    expected = {"refs": "Ref", "blocks": "Block", "data": "Data", "checkpoints": "Checkpoint"}
    count = 0
    for path in sorted(tmp_path.glob("[!.]*/*")):
        area, whole = path.parent.name, path.read_bytes()
        places = range(len(whole)) if SOAK or area == "refs" else range(len(whole) % 7, len(whole), 97)
        for place, bit in itertools.product(places, range(8)) if SOAK else ((place, place % 8) for place in places):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            problem = first(store)
            assert problem.code.startswith((expected[area], "BlockMissing")), (path, place, bit, problem)
            count += 1
        for cut in (whole[:-1], whole + b"\0", b""):
            path.write_bytes(cut)
            assert first(store).code.startswith(expected[area])
        path.unlink()
        assert first(store).code in {"RefMissing", "BlockMissing", "DataMissing", "CheckpointMissing"}
        path.write_bytes(whole)
    assert verify(store, Layout(), threads=1).sound
    assert count > 100


@pytest.mark.requirement("VE-01")
def test_verification_follows_requested_level_and_scope(store: Store) -> None:
    """Levels, and slices of the blocks that were not verified before."""
    maker = small(store)
    slices = [event.new_data for block in maker.blocks if isinstance(event := block.content.event, AddData)]
    (early, late) = (each.physical_hash for each in slices if each)
    store.put(Layout().data(early), b"x")
    store.put(Layout().checkpoint(Multihash.sha3(b"state 1")), b"x")
    found = verify(store, Layout(), scope=Scope(level=Level.PHYSICAL))
    assert [problem.code for problem in found.problems] == ["CheckpointPhysical", "DataPhysical"]
    assert (found.slices, found.records) == (2, 0)
    chain = verify(store, Layout(), scope=Scope(level=Level.CHAIN))
    assert (chain.sound, chain.blocks, chain.slices, chain.bytes) == (True, 4, 0, 0)
    assert verify(store, Layout(), scope=Scope(first_block=3)).sound
    store.put(Layout().data(late), b"x")
    after = verify(store, Layout(), scope=Scope(first_block=3)).first
    assert after is not None
    assert after.number == 3


@pytest.mark.requirement("VE-04")
def test_verification_of_root_reports_different_bytes_of_same_records(store: Store) -> None:
    """What a root holds cannot be made again: a copy is a copy only if it is the same bytes."""
    maker = small(store)
    event = maker.blocks[2].content.event
    assert isinstance(event, AddData)
    assert event.new_data
    sink = io.BytesIO()
    pq.write_table(rows(0, 3, 1), sink, compression="none")
    store.put(Layout().data(event.new_data.physical_hash), sink.getvalue())
    assert first(store).code == "DataPhysical"


@pytest.mark.requirement("VE-01")
def test_verification_reports_first_problem_of_chain(store: Store) -> None:
    maker = small(store)
    for block in maker.blocks[2:]:
        event = block.content.event
        assert isinstance(event, AddData)
        assert event.new_data
        store.put(Layout().data(event.new_data.physical_hash), b"other")
    verdict = verify(store, Layout(), threads=2)
    assert [(problem.number, problem.code) for problem in verdict.problems] == [
        (2, "DataPhysical"),
        (3, "DataPhysical"),
    ]
    assert verdict.problems[0].block == maker.blocks[2].hash
    assert f"block 2 ({maker.blocks[2].hash.short}), slice" in str(verdict.first)


@pytest.mark.requirement("CH-01")
def test_verification_finds_block_under_wrong_name(store: Store) -> None:
    """Reordered: each block is whole, but not where it should be."""
    maker = small(store)
    store.put(Layout().block(maker.blocks[2].hash), maker.blocks[1].data)
    assert (first(store).code, first(store).number) == ("BlockHash", 2)


@pytest.mark.requirement("MB-02")
def test_verification_finds_skipped_sequence_number(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    maker.add(SetInfo(description="x"), sequence_number=3)
    assert first(store).code == "Sequence"


@pytest.mark.requirement("CH-01")
def test_verification_of_forked_chain_follows_head(store: Store) -> None:
    maker = small(store)
    other = Maker(store, blocks=maker.blocks[:3])
    other.add(SetInfo(description="a fork"), 5)
    assert verify(store, Layout(), threads=1).records == 3
    store.put(Layout().head, head_bytes(maker.blocks[-1].hash))
    assert verify(store, Layout(), threads=1).records == 7


@pytest.mark.requirement("CH-03")
def test_verification_without_chain_reports_missing_reference(store: Store) -> None:
    assert (first(store).code, first(store).rule) == ("RefMissing", "CH-03")
    with pytest.raises(BrokenChain, match="refs/head") as caught:
        read_chain(store, Layout())
    assert isinstance(caught.value, ChainCorrupt)
    assert caught.value.reason == "Corrupt"


@pytest.mark.requirement("AD-06")
def test_verification_includes_chain_rules(store: Store) -> None:
    maker = small(store)
    maker.data(rows(7, 1, 3), 3, new_watermark=None)
    problem = first(store)
    assert (problem.code, problem.rule, problem.number) == ("Watermark", "AD-06", 4)


@pytest.mark.requirement("HS-09")
def test_verification_notes_block_with_non_reference_encoding(store: Store) -> None:
    maker = small(store)
    data = maker.blocks[-1].data + b"\0\0\0\0"
    block = Multihash.sha3(data)
    store.put(Layout().block(block), data)
    store.put(Layout().head, head_bytes(block))
    verdict = verify(store, Layout(), threads=1)
    assert verdict.sound
    assert [(problem.code, problem.severity) for problem in verdict.problems] == [("BlockDialect", Severity.NOTE)]


@pytest.mark.requirement("VE-01")
def test_verification_with_many_notes_still_reports_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.odf.validation.verification._KEPT", 2)
    maker = Maker(store)
    maker.start()
    for number in range(4):
        read, merge = ReadStepCsv(), MergeStrategyAppend()
        maker.add(AddPushSource(source_name=str(number), read=read, merge=merge))
    maker.add(AddData(new_watermark=later(9), prev_offset=1))
    verdict = verify(store, Layout(), threads=1)
    assert [problem.code for problem in verdict.problems] == ["PushSchema", "PushSchema", "PrevOffset"]
    assert not verdict.sound


@pytest.mark.requirement("VE-01")
def test_slice_check_can_run_in_other_process(store: Store) -> None:
    """What is needed travels, and what was found: to Spark's executors and back."""
    small(store)
    audit, _ = audit_store(store, Layout())
    expected: Expected = pickle.loads(pickle.dumps(audit.slices[1]))
    assert expected == audit.slices[1]
    (facts,) = check_slices(store, Layout(), [expected])
    assert pickle.loads(pickle.dumps(facts)) == facts
    assert (facts.rows, facts.problems) == (4, ())


# --- large, and a store that fails -----------------------------------------------------------------------------------


@pytest.mark.requirement("CH-01")
def test_chain_read_fetches_each_block_once(store: Store) -> None:
    maker = Maker(store)
    maker.start()
    for number in range(60):
        maker.add(SetInfo(description=str(number)), number)
    store.put(Layout().block(Multihash.sha3(b"x")), b"an object of somebody else")
    counted = FaultStore(store)
    chain = read_chain(counted, Layout())
    assert [block.hash for block in chain] == [block.hash for block in maker.blocks]
    assert len(counted.calls) <= 62 + 3, "each block, the head, a block of somebody else, one listing"
    tail = read_chain(counted, Layout(), until=maker.blocks[20].hash)
    assert [block.hash for block in tail] == [block.hash for block in maker.blocks[21:]]
    assert read_chain(store, Layout(), until=maker.blocks[-1].hash) == []
    with pytest.raises(BrokenChain, match="Diverged, SH-03"):
        read_chain(store, Layout(), until=Multihash.sha3(b"x"))
    store.delete([Layout().block(maker.blocks[10].hash)])
    assert (first(store).code, first(store).number) == ("BlockMissing", 10)


@pytest.mark.requirement("REQ-03")
@pytest.mark.parametrize("key", ["refs/", "blocks/", "data/", "checkpoints/"])
def test_verification_with_unavailable_store_raises_unavailable(store: Store, key: str) -> None:
    small(store)
    fault = Fault(("get",), key=key, error=StoreUnavailable("the store does not answer"))
    with pytest.raises(StoreUnavailable):
        verify(FaultStore(store, fault), Layout(), threads=2)


@pytest.mark.requirement("DS-01")
def test_verification_of_large_slice_spills_to_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.storage.hashed.IN_MEMORY", 100)
    small(store)
    assert verify(store, Layout(), threads=2).sound
    slice_info = next(store.list("data/"))
    data = store.get(slice_info.key)
    store.put(slice_info.key, data[:-1] + bytes([data[-1] ^ 1]))
    assert first(store).code == "DataPhysical"


@pytest.mark.requirement("VE-01")
def test_verification_problem_names_object_column_and_offset() -> None:
    problem = Problem("X", "Y-1", "message")
    assert str(problem) == "message [X, Y-1]"
    assert (
        str(replace(problem, object="slice 1", column="c", row=3)) == "slice 1, column 'c', offset 3: message [X, Y-1]"
    )
