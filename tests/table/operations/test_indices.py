"""Operations on tables with secondary indices: they stay exact, and tell where rows are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import minimalkv
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from plateau.io.eager import read_table

from kubothek.catalog import Dataset, Lake
from kubothek.errors import IndexInvalid, RowLevelNeeded
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.expressions import parse
from kubothek.table.operations import rewrite
from kubothek.table.scan.plan import plan
from tests.table.operations.table import flights, head, labels, rows

pytestmark = pytest.mark.slow

CHANGES: dict[str, Callable[[Dataset], object]] = {
    "replace": lambda t: t.replace(flights((1, "ZZ", 10), (4, "AA", 4))),
    "delete": lambda t: t.delete("month = 1"),
    "row-level delete": lambda t: t.delete("delay = 10", row_level=True),
    "update": lambda t: t.update({"carrier": "ZZ"}, where="delay = 20", row_level=True),
    "move": lambda t: t.update({"month": 1}, where="month = 3", row_level=True),
    "overwrite": lambda t: t.overwrite(flights((7, "B6", 7))),
    "rollback": lambda t: t.rollback(2),
}


@pytest.fixture(params=["Native", "Kartothek"])
def indexed(request: pytest.FixtureRequest, store: Store) -> Dataset:
    dataset = Lake(store).create_dataset("flights", ["month"], indices={"carrier": request.param})
    dataset.append(flights((1, "AA", 10), (1, None, 11), (2, "UA", 20), (2, None, 21)))
    dataset.append(flights((3, "AA", 30), (3, "B6", None)))
    return dataset


def found(store: Store, dataset: Dataset, where: str) -> tuple[list[Any], int]:
    """The rows, and how many files the index left to look for them."""
    snapshot = dataset.snapshot()
    assert snapshot.schema is not None
    steps = {step.name: step.files_left for step in plan(store, snapshot, parse(where).bind(snapshot.schema)).steps}
    read = dataset.scan(["month", "carrier", "delay"], where=where).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in read), key=repr), steps["secondary indices"]


@pytest.mark.parametrize("change", CHANGES)
def test_index_after_each_change_is_exact(indexed: Dataset, store: Store, change: str) -> None:
    CHANGES[change](indexed)
    for carrier in ("AA", "UA", "B6", "ZZ"):
        expected = [row for row in rows(indexed) if row[1] == carrier]
        holding = {label for label in labels(indexed) if carrier in carriers(store, labels(indexed)[label])}
        assert found(store, indexed, f"carrier = '{carrier}'") == (expected, len(holding)), carrier


def carriers(store: Store, key: str) -> set[Any]:
    return set(pq.read_table(pa.BufferReader(store.get(key))).column("carrier").to_pylist())


@pytest.mark.parametrize("change", CHANGES)
def test_plateau_reads_changed_table_through_its_own_index(tmp_path: Path, change: str) -> None:
    root = tmp_path / "lake"
    root.mkdir()
    dataset = Lake(open_store(StoreConfig(root.as_uri()))).create_dataset(
        "flights", ["month"], indices={"carrier": "Kartothek"}
    )
    dataset.append(flights((1, "AA", 10), (1, None, 11), (2, "UA", 20), (3, "AA", 30)))
    dataset.append(flights((3, "B6", 31)))
    CHANGES[change](dataset)
    store = minimalkv.get_store_from_url(f"hfs://{root}")
    for carrier in ("AA", "ZZ"):
        expected = sorted(row[2] or 0 for row in rows(dataset) if row[1] == carrier)
        if expected:
            frame = read_table("flights", store=lambda: store, predicates=[[("carrier", "==", carrier)]])
            assert sorted(frame["delay"]) == expected, carrier


def test_delete_by_indexed_column_requires_row_level_for_partial_file(indexed: Dataset, store: Store) -> None:
    before = head(store)
    with pytest.raises(RowLevelNeeded, match=r"rows inside of files.*month=2.*rowLevel: true"):
        indexed.delete("carrier = 'UA'")
    assert head(store) == before
    indexed.delete("carrier = 'XX'")
    assert len(rows(indexed)) == 6


def test_delete_of_file_with_only_matching_value_needs_no_row_level(indexed: Dataset) -> None:
    indexed.append(flights((4, "UU", 1), (4, "UU", 2)))
    indexed.delete("carrier = 'UU'")
    assert {row[0] for row in rows(indexed)} == {1, 2, 3}


def test_delete_opens_only_files_named_by_index(indexed: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    inner = rewrite.Rewrite.open

    def counting(self: Any, store: Store, files: list[str]) -> Any:
        opened.extend(files)
        return inner(self, store, files)

    monkeypatch.setattr(rewrite.Rewrite, "open", counting)
    indexed.delete("carrier = 'B6' AND month > 0", row_level=True)
    assert {key.split("/")[2] for key in opened} == {"month=3"}


def test_index_on_column_dropped_with_schema_is_dropped(indexed: Dataset, store: Store) -> None:
    indexed.overwrite(pa.table({"month": [1], "gate": ["A1"]}), allow_schema_change=True)
    assert not indexed.snapshot().head.index_state.kinds()
    indexed.append(pa.table({"month": [1], "gate": ["A2"]}))
    indexed.rollback(3, allow_schema_change=True)
    assert len(rows(indexed)) == 6
    assert found_rows(indexed, "carrier = 'AA'") == [(1, "AA", 10), (3, "AA", 30)]


def test_pending_index_is_dropped_with_column_and_unknown_is_refused(store: Store) -> None:
    dataset = Lake(store).create_dataset("flights", ["month"], indices=["gate"])
    with pytest.raises(IndexInvalid, match="'gate'"):
        dataset.append(flights((1, "AA", 10)))
    dataset.append(pa.table({"month": [1], "gate": pa.nulls(1)}))
    assert dataset.snapshot().head.index_state.pending
    dataset.overwrite(flights((1, "AA", 10)), allow_schema_change=True)
    assert not dataset.snapshot().head.index_state.wanted()


def found_rows(dataset: Dataset, where: str) -> list[Any]:
    read = dataset.scan(["month", "carrier", "delay"], where=where).read_all().to_pylist()
    return sorted((tuple(row.values()) for row in read), key=repr)
