"""Verification of tables: every file against its record, indices against data, history against the head (VE-04)."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.catalog import Dataset, Lake
from kubothek.errors import DatasetNotFound, InputError, NotALedger, StoreUnavailable, VersionNotFound
from kubothek.odf import Level
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes import integrity
from kubothek.table.indexes.native import Manifest, read_manifest
from kubothek.table.log import DatasetLog, Head
from kubothek.table.log.model import keys
from kubothek.verify import DatasetVerdict, Finding, Since, keep_damage, known_damage, verify_dataset
from tests.faultstore import Fault, FaultStore
from tests.table.maintenance.table import filled
from tests.table.operations.table import flights

UUID = "flights"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    root = tmp_path / "lake"
    root.mkdir()
    return open_store(StoreConfig(root.as_uri()))


@pytest.fixture
def table(store: Store) -> Dataset:
    """Months 1 and 2 in four files each, month 3 in one; carriers are indexed in both ways."""
    return filled(Lake(store), indices={"carrier": "Native", "delay": "Kartothek"})


def verified(store: Store, **how: Any) -> DatasetVerdict:
    return verify_dataset(store, DatasetLog(store, UUID), **how)


def first(store: Store, **how: Any) -> Finding:
    found = verified(store, **how).first
    assert found is not None
    assert str(found)
    return found


def head_of(store: Store) -> Head:
    return Head.parse(UUID, store.get(keys.head(UUID)))


def some_file(store: Store) -> str:
    return sorted(head_of(store).files().values())[4]


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("level", Level)
def test_verification_of_valid_table_succeeds_at_every_level(store: Store, level: Level) -> None:
    told: list[tuple[int, int]] = []
    assert Lake(store).dataset(UUID).verify(level=level).sound
    verdict = verified(store, level=level, progress=lambda done, of: told.append((done, of)))
    assert verdict.sound
    assert verdict.whole
    assert verdict.table is not None
    assert (verdict.chain, verdict.table.unproven) == (None, 0)
    files = list(head_of(store).files().values())
    read = [store.stat(key).size for key in files] if level else []
    assert (verdict.table.files, verdict.bytes) == (len(read), sum(read))
    totals = DatasetLog(store, UUID).snapshot().totals
    assert totals is not None
    assert verdict.table.rows == (totals.rows if level is Level.FULL else 0)
    assert bool(told) == (level > Level.CHAIN)


@pytest.mark.usefixtures("table")
def test_verification_finds_every_changed_byte_and_names_file(store: Store, tmp_path: Path) -> None:
    key = some_file(store)
    path = tmp_path / "lake" / key
    whole = path.read_bytes()
    for place in range(len(whole) % 7, len(whole), max(1, len(whole) // 12)):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        found = first(store, level=Level.PHYSICAL)
        assert (found.code, found.object) == ("FileHash", key)
    path.write_bytes(whole[:-1])
    assert first(store).code == "FileHash"
    path.unlink()
    assert (first(store).code, first(store).object) == ("FileMissing", key)
    path.write_bytes(whole)
    assert verified(store).sound


@pytest.mark.usefixtures("table")
def test_verification_finds_both_of_two_swapped_files(store: Store) -> None:
    one, other, *_ = sorted(head_of(store).files().values())
    mine, theirs = store.get(one), store.get(other)
    store.put(one, theirs)
    store.put(other, mine)
    assert {each.object for each in verified(store).findings} == {one, other}


def _without_hash(store: Store, key: str) -> None:
    """As if another program had written the file: its size and rows are known, nothing else."""
    for record in DatasetLog(store, UUID).history():
        document = orjson.loads(store.get(record.key))
        for file in document["added"]:
            if file[1] == key:
                file[4] = None
                store.put(record.key, orjson.dumps(document))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("FileSize", lambda data: data + b"\0"),
        ("FileUnreadable", lambda data: b"x" * len(data)),
        ("FileUnreadable", lambda data: data[:4] + b"\xff" * 60 + data[64:]),
    ],
)
@pytest.mark.usefixtures("table")
def test_verification_reads_foreign_files_without_hash(
    store: Store, code: str, change: Callable[[bytes], bytes]
) -> None:
    key = some_file(store)
    _without_hash(store, key)
    verdict = verified(store)
    assert verdict.sound
    assert verdict.table is not None
    assert verdict.table.unproven == 1
    store.put(key, change(store.get(key)))
    assert (first(store).code, first(store).object) == (code, key)


@pytest.mark.parametrize("code", ["FileRows", "FileColumns"])
@pytest.mark.usefixtures("table")
def test_verification_compares_foreign_files_with_committed_statistics(store: Store, code: str) -> None:
    key = some_file(store)
    _without_hash(store, key)
    held = pq.read_table(pa.BufferReader(store.get(key)))
    changed = held.slice(1) if code == "FileRows" else held.set_column(
        held.schema.get_field_index("delay"), "delay", pa.array([[1]] * len(held))
    )  # fmt: skip
    data = _parquet(changed)
    for record in DatasetLog(store, UUID).history():
        document = orjson.loads(store.get(record.key))
        for file in document["added"]:
            if file[1] == key:
                file[3] = len(data)
                store.put(record.key, orjson.dumps(document))
    store.put(key, data)
    assert first(store).code == code


def test_verification_finds_index_that_contradicts_file(
    store: Store, table: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index from before the last commit stands in the place of the present one; its name has no hash."""
    monkeypatch.setattr(integrity, "digest_in", lambda _key: None)
    before = head_of(store)
    table.append(flights((3, "AA", 77)))
    after = head_of(store)
    shutil.copy(tmp_path / "lake" / str(before.indices["delay"]), tmp_path / "lake" / str(after.indices["delay"]))
    found = first(store)
    assert (found.code, found.column) == ("IndexWrong", "delay")
    assert found.object == list(after.files().values())[-1]
    store.put(after.index_state.native["carrier"], _only(store, after.index_state.native["carrier"]).render())
    assert {(each.code, each.column) for each in verified(store).findings} == {
        ("IndexWrong", "delay"),
        ("IndexWrong", "carrier"),
    }
    store.delete([str(after.indices["delay"])])
    assert first(store).code == "IndexUnreadable"


def _only(store: Store, key: str) -> Manifest:
    """The manifest with one of its files only."""
    manifest = read_manifest(store, key)
    return Manifest(manifest.column, manifest.type, manifest.files[:1], manifest.uncovered)


@pytest.mark.usefixtures("table")
def test_verification_finds_inconsistent_history(store: Store) -> None:
    newest = next(DatasetLog(store, UUID).history())
    whole = store.get(newest.key)
    document = orjson.loads(whole)
    document["head_digest"] = "0" * 64
    store.put(newest.key, orjson.dumps(document))
    assert first(store, level=Level.CHAIN).code in {"HistoryBroken", "VersionIncomplete"}
    store.put(newest.key, b"{}")
    assert first(store, level=Level.CHAIN).code in {"HistoryBroken", "VersionIncomplete"}
    store.delete([newest.key])
    assert first(store).code in {"HistoryBroken", "VersionIncomplete"}
    store.put(newest.key, whole)
    assert verified(store).sound
    store.put(keys.head(UUID), b"no head at all")
    assert first(store).code == "HeadUnreadable"
    store.delete([keys.head(UUID)])
    assert first(store).code == "HeadMissing"


def test_verification_is_bounded_by_version_and_since(store: Store, table: Dataset) -> None:
    early = head_of(store)
    version = DatasetLog(store, UUID).snapshot().version
    table.append(flights((3, "AA", 77)))
    verdict = verified(store, since=Since(version))
    assert verdict.sound
    assert verdict.table is not None
    assert (verdict.table.files, verdict.whole) == (1, False)
    store.put(sorted(early.files().values())[0], b"")
    assert verified(store, since=Since(version)).sound, "that was verified before"
    assert not verified(store, version=version).sound
    (new,) = set(head_of(store).files().values()) - set(early.files().values())
    store.put(new, b"")
    assert first(store, since=Since(version)).object == new
    with pytest.raises(VersionNotFound):
        verified(store, version=99)
    with pytest.raises(InputError):
        verified(store, version=version, since=Since(version + 1))


@pytest.mark.usefixtures("table")
def test_verification_of_missing_dataset_or_silent_store_raises(store: Store) -> None:
    with pytest.raises(NotALedger):
        verified(store, until_block=3)
    with pytest.raises(DatasetNotFound):
        verify_dataset(store, DatasetLog(store, "nowhere"))
    fault = Fault(("get",), key=some_file(store), error=StoreUnavailable("the store does not answer"))
    silent = FaultStore(store, fault)
    with pytest.raises(StoreUnavailable):
        verify_dataset(silent, DatasetLog(silent, UUID))


# --- the note on it --------------------------------------------------------------------------------------------------


def _known(store: Store) -> str | None:
    found = known_damage(store, UUID, DatasetLog(store, UUID).snapshot())
    return None if found is None else str(found)


def test_verification_damage_record_stays_until_repair(store: Store, table: Dataset) -> None:
    key = some_file(store)
    whole = store.get(key)
    version = DatasetLog(store, UUID).snapshot().version
    keep_damage(store, UUID, verified(store))
    assert _known(store) is None
    store.put(key, b"x" + whole[1:])
    keep_damage(store, UUID, verified(store))
    noted = _known(store)
    assert noted is not None
    assert key in noted
    keep_damage(store, UUID, verified(store, level=Level.CHAIN))
    assert _known(store) == noted, "nobody looked at it again"
    table.overwrite(flights((1, "AA", 1)))
    assert _known(store) is None, "the present version does without it"
    table.rollback(version)
    assert _known(store) == noted
    store.put(key, whole)
    keep_damage(store, UUID, verified(store))
    assert _known(store) is None
    table.append(flights((1, "AA", 1)))
    store.put(key, b"")
    keep_damage(store, UUID, verified(store, version=version))
    assert _known(store) is None, "of an old version nothing is noted"


@pytest.mark.parametrize("repeated", [20, 60_000])
def test_verification_counts_values_that_repeat_in_a_file_once(store: Store, repeated: int) -> None:
    """Few values, and those of a column of which most are distinct, are collected for indices as they come."""
    dataset = Lake(store).create_dataset("d", (), {"x": "int64", "y": "double"}, indices={"x": "Native"})
    rows = repeated + repeated // 10
    columns: dict[str, Any] = {"x": [n % repeated for n in range(rows)], "y": [1.0] * rows}
    dataset.append(pa.table(columns))
    assert dataset.verify().wrong == 0
