"""Verification of datasets that are ledgers: the chain, and the table that is its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubothek.errors import InputError
from kubothek.odf import Level
from kubothek.odf.spec.multihash import Multihash
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys
from kubothek.verify import DatasetVerdict, Finding, Since, keep_damage, known_damage, verify_dataset
from tests.odf.dataset.planes import UUID, made, push


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Versions 1 to 3: the chain begins, two planes, one of them corrected."""
    root = tmp_path / "lake"
    root.mkdir()
    store = open_store(StoreConfig(root.as_uri()))
    made(store)
    push(store, {1: "A320", 2: "B737"})
    push(store, {1: "A321", 2: "B737"})
    return store


def verified(store: Store, **how: Any) -> DatasetVerdict:
    return verify_dataset(store, DatasetLog(store, UUID), **how)


def first(store: Store, **how: Any) -> Finding:
    found = verified(store, **how).first
    assert found is not None
    assert str(found)
    return found


def some(store: Store, prefix: str) -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_verification_of_valid_chain_and_table_succeeds(store: Store) -> None:
    verdict = verified(store)
    assert verdict.sound, verdict.findings
    assert verdict.chain is not None
    assert verdict.table is not None
    assert (verdict.version, verdict.chain.slices, verdict.chain.records) == (3, 2, 4)
    assert (verdict.table.rows, verdict.table.unproven) == (2, 0)
    assert "blocks" in str(verdict)
    chain = verified(store, level=Level.CHAIN)
    assert (chain.sound, chain.bytes) == (True, 0)


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        (keys.chain(UUID) + "blocks/", "BlockHash"),
        (keys.chain(UUID) + "data/", "DataPhysical"),
        (f"{UUID}/table/", "FileHash"),
    ],
)
def test_verification_finds_every_changed_object_of_ledger(store: Store, prefix: str, code: str) -> None:
    named = set(DatasetLog(store, UUID).snapshot().head.files().values())
    objects = [key for key in some(store, prefix) if "/table/" not in key or key in named]
    assert objects
    for key in objects:
        whole = store.get(key)
        store.put(key, whole[:-1] + bytes([whole[-1] ^ 1]))
        assert first(store).code == code, key
        store.delete([key])
        assert first(store).code in {"BlockMissing", "DataMissing", "FileMissing"}, key
        store.put(key, whole)
    assert verified(store).sound


def test_verification_reports_forked_reference_and_accepts_lagging_one(store: Store) -> None:
    ref = keys.chain_ref(UUID)
    before = DatasetLog(store, UUID).snapshot(2).head.chain
    assert before is not None
    store.put(ref, before.head.encode())
    assert verified(store).sound, "the next commit moves it"
    store.put(ref, str(Multihash.sha3(b"another")).encode())
    assert (first(store).code, first(store).object) == ("Diverged", ref)


def test_verification_is_bounded_by_versions_and_blocks(store: Store) -> None:
    old = verified(store, version=2)
    assert old.chain is not None
    assert (old.sound, old.present, old.chain.records) == (True, False, 2)
    late = verified(store, since=Since(version=2))
    assert late.chain is not None
    assert (late.sound, late.whole, late.chain.slices) == (True, False, 1)
    last = late.chain.blocks - 1
    early = verified(store, until_block=last - 1)
    assert (early.sound, early.table) == (True, None)
    (slice_of_first,) = _slices(store, 2)
    store.put(slice_of_first, b"x")
    assert verified(store, since=Since(block=last - 1)).sound
    assert first(store, until_block=last - 1).code == "DataPhysical"
    with pytest.raises(InputError):
        verified(store, until_block=99)
    with pytest.raises(InputError):
        verified(store, until_block=1, since=Since(block=2))


def _slices(store: Store, version: int) -> list[str]:
    """Those that the commit of this version wrote."""
    record = next(each for each in DatasetLog(store, UUID).history() if each.version == version)
    assert record.ledger is not None
    return [keys.data_slice(UUID, physical) for physical in record.ledger.data]


def test_verification_records_damage_of_chain(store: Store) -> None:
    key = _slices(store, 2)[0]
    whole = store.get(key)
    store.put(key, b"x")
    keep_damage(store, UUID, verified(store))
    push(store, {1: "A350", 2: "B737"})
    noted = known_damage(store, UUID, DatasetLog(store, UUID).snapshot())
    assert noted is not None
    assert "DataPhysical" in str(noted)
    store.put(key, whole)
    keep_damage(store, UUID, verified(store))
    assert known_damage(store, UUID, DatasetLog(store, UUID).snapshot()) is None
