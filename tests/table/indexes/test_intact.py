"""An index object that is not the one which was committed hides no rows: it is noticed, reported and made anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kubothek
from kubothek.dataset import Dataset
from kubothek.errors import IndexStale
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.indexes import kartothek, native
from kubothek.table.indexes.entries import no_entries
from kubothek.table.indexes.kartothek import render
from kubothek.table.indexes.native import Manifest, read_manifest
from kubothek.table.log import DatasetLog
from kubothek.table.maintenance.heal import ailments, heal
from kubothek.verify import verify_dataset


def _emptied(data: bytes) -> bytes:
    """A valid file of the same schema without rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)).slice(0, 0), sink)
    return sink.getvalue().to_pybytes()


def _halved(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    table = pq.read_table(pa.BufferReader(data))
    pq.write_table(table.slice(table.num_rows // 2), sink)
    return sink.getvalue().to_pybytes()


def _of_other_values(data: bytes) -> bytes:
    """As many rows, of values that no file has."""
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.set_column(0, table.schema.field(0), pa.array([99] * len(table), table.schema.field(0).type)), sink
    )
    return sink.getvalue().to_pybytes()


def _without_files(data: bytes) -> bytes:
    return orjson.dumps({**orjson.loads(data), "files": []})


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "native-file-emptied": ("file", _emptied),
    "native-file-halved": ("file", _halved),
    "native-file-swapped": ("file", _of_other_values),
    "native-manifest-emptied": ("manifest", _without_files),
    "kartothek-file-emptied": ("kartothek", _emptied),
    "kartothek-file-halved": ("kartothek", _halved),
}


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    """Ten files with three values each, in an index of either kind."""
    (tmp_path / "lake").mkdir()
    lake = kubothek.open((tmp_path / "lake").as_uri())
    made = lake.create_dataset("t", ["p"], indices={"x": "Native", "y": "Kartothek"})
    values = list(range(30))
    made.append(pa.table({"p": [v // 3 for v in values], "x": values, "y": values}))
    return made


def objects(store: Store, table: Dataset) -> dict[str, str]:
    state = table.snapshot().head.index_state
    (file,) = read_manifest(store, state.native["x"]).files
    return {"manifest": state.native["x"], "file": file.key, "kartothek": str(state.kartothek["y"])}


def fresh(table: Dataset) -> Dataset:
    """As another process sees it, which has nothing in memory."""
    return kubothek.open(table._lake.store.url).dataset("t")


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_index_keeps_all_rows_visible_and_is_rebuilt(table: Dataset, damage: str) -> None:
    store = table._lake.store
    what, change = DAMAGE[damage]
    key = objects(store, table)[what]
    store.put(key, change(store.get(key)))
    assert fresh(table).scan(where="x = 17").read_all().num_rows == 1
    assert fresh(table).scan(where="y = 17").read_all().num_rows == 1
    verdict = verify_dataset(open_store(StoreConfig(store.url)), DatasetLog(store, "t"))
    column = "y" if what == "kartothek" else "x"
    assert [(each.code, each.column) for each in verdict.findings] == [("IndexUnreadable", column)]
    other = open_store(StoreConfig(store.url))
    log = DatasetLog(other, "t")
    assert ailments(other, log, log.snapshot()) == (f"the index on {column!r}",)
    assert heal(other, log).repaired == (f"the index on {column!r}",)
    assert verify_dataset(other, log).sound
    plan = fresh(table).plan(f"{column} = 17")
    assert len(plan.files) == 1


def test_commit_onto_damaged_index_raises_index_stale(table: Dataset) -> None:
    store = table._lake.store
    there = objects(store, table)
    (file,) = read_manifest(store, there["manifest"]).files
    for key in (file.key, there["kartothek"]):
        store.put(key, _emptied(store.get(key)))
    with pytest.raises(IndexStale, match="its manifest says"):
        list(native.read_pieces(store, file, pa.int64()))
    with pytest.raises(IndexStale, match="hash in its name"):
        fresh(table).append(pa.table({"p": [11], "x": [40], "y": [40]}))


def _without_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("integrity", "lookup", "maintain"):
        monkeypatch.setattr(sys.modules[f"kubothek.table.indexes.{module}"], "digest_in", lambda _key: None)


def test_index_objects_without_hash_are_verified_by_their_rows(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another program, or of an older Kubothek."""
    store = table._lake.store
    there = objects(store, table)
    store.put(there["file"], _emptied(store.get(there["file"])))
    store.put(there["kartothek"], render("y", no_entries(pa.int64()), pa.int64()).to_pybytes())
    _without_hashes(monkeypatch)
    assert fresh(table).scan(where="x = 17").read_all().num_rows == 1
    assert fresh(table).scan(where="y = 17").read_all().num_rows == 1
    findings = verify_dataset(open_store(StoreConfig(store.url)), DatasetLog(store, "t")).findings
    assert {(each.code, each.column) for each in findings} == {("IndexUnreadable", "x"), ("IndexWrong", "y")}


def test_foreign_index_that_lacks_files_is_completed_by_commit(table: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table._lake.store
    key = objects(store, table)["kartothek"]
    store.put(key, _halved(store.get(key)))
    _without_hashes(monkeypatch)
    fresh(table).append(pa.table({"p": [11], "x": [40], "y": [40]}))
    head = fresh(table).snapshot().head
    entries, _ = kartothek.read(store, "y", head.indices["y"], pa.int64())
    assert set(entries.column("value").to_pylist()) == {*range(30), 40}


def test_index_key_contains_hash_of_object_bytes(table: Dataset) -> None:
    from kubothek.table.indexes import integrity, model

    store = table._lake.store
    for key in objects(store, table).values():
        assert model.digest_in(key) == model.digest_of(store.get(key))
        integrity.check_object(store, key)
        with pytest.raises(IndexStale, match="do not have the hash"):
            integrity.check_bytes(key, b"")
    manifest = read_manifest(store, objects(store, table)["manifest"])
    assert isinstance(manifest, Manifest)
    lying: Any = replace(manifest.files[0], rows=1)
    with pytest.raises(IndexStale, match="30 rows, its manifest says 1"):
        list(native.read_pieces(store, lying, pa.int64()))
