"""Random histories of merges give the rows that deltalake's merge gives on the same input."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kubothek.catalog import Dataset, Lake
from kubothek.errors import DuplicateKeys
from kubothek.storage import StoreConfig, open_store
from tests.sampling import SOAK, sampled

HISTORIES: Final = 2_000
ONE_IN: Final = 34
MERGES: Final = 3 if SOAK else 2
TYPES: Final[dict[str, pa.DataType]] = {"p": pa.int64(), "id": pa.int64(), "name": pa.string(), "v": pa.float64()}
WHERE: Final = (None, "source.v > 2", "target.v < source.v", "source.name = 'a'", "target.name IS NULL")
WHERE_SOURCE: Final = (None, "source.v > 2", "source.name IS NOT NULL")
WHERE_TARGET: Final = (None, "target.v > 3", "target.p = 1")
SETS: Final = (None, {"v": "target.v + source.v"}, {"name": "source.name", "p": "source.p"}, {"v": "source.v * 2"})


class Both:
    """One table of each library."""

    def __init__(self, root: Path, partition_on: str | None) -> None:
        (root / "lake").mkdir()
        rows = some_rows(random.Random(1), 6, TYPES)
        lake = Lake(open_store(StoreConfig((root / "lake").as_uri())))
        self.ours: Dataset = lake.create_dataset("t", [partition_on] if partition_on else [])
        self.ours.append(rows)
        write_deltalake(root / "delta", rows, partition_by=[partition_on] if partition_on else None)
        self.delta = DeltaTable(root / "delta")

    def rows(self) -> tuple[Counter[Any], Counter[Any]]:
        """The rows of each."""
        return counted(self.ours.scan().read_all()), counted(pa.table(self.delta.to_pyarrow_table()))


def counted(table: pa.Table) -> Counter[Any]:
    names = sorted(table.schema.names)
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


def some_rows(draw: random.Random, count: int, types: dict[str, pa.DataType], *, unique: bool = False) -> pa.Table:
    numbers = list(range(10))
    ids: list[int | None] = draw.sample(numbers, count) if unique else draw.choices(numbers, k=count)
    ids = [None if draw.random() < 0.15 else number for number in ids]
    values: dict[str, list[Any]] = {
        "p": draw.choices([1, 2, 3], k=count),
        "id": ids,
        "name": draw.choices(["a", "b", None], k=count),
        "v": draw.choices([1.0, 2.5, 4.0, None], k=count),
        "more": draw.choices([1, 2, None], k=count),
    }
    return pa.table({name: pa.array(values[name], data_type) for name, data_type in types.items()})


def clauses(draw: random.Random) -> dict[str, Any]:
    """Random clauses: at least one."""
    deletes: dict[str, Any] = {"action": "Delete"}
    matched = [
        draw.choice([deletes, {"action": "Update", "set": draw.choice(SETS)}]) | {"where": draw.choice(WHERE)}
        for _ in range(draw.choice([0, 1, 1, 2]))
    ]
    inserts = [{"action": "Insert", "where": draw.choice(WHERE_SOURCE)}] if draw.random() < 0.7 else []
    by_source: list[dict[str, Any]] = []
    if draw.random() < 0.3 or not (matched or inserts):
        update: dict[str, Any] = {"action": "Update", "set": {"name": "'gone'"}}
        by_source = [draw.choice([deletes, update]) | {"where": draw.choice(WHERE_TARGET)}]
    return {"when_matched": matched, "when_not_matched": inserts, "when_not_matched_by_source": by_source}


def merge_with_delta(table: DeltaTable, rows: pa.Table, key: tuple[str, ...], chosen: Any, *, evolve: bool) -> None:
    merger = table.merge(
        rows,
        predicate=" AND ".join(f"target.{name} = source.{name}" for name in key),
        source_alias="source",
        target_alias="target",
        merge_schema=evolve,
    )
    for clause in chosen["when_matched"]:
        if clause["action"] == "Delete":
            merger = merger.when_matched_delete(clause["where"])
        elif clause["set"] is None:
            merger = merger.when_matched_update_all(clause["where"])
        else:
            merger = merger.when_matched_update(clause["set"], clause["where"])
    for clause in chosen["when_not_matched"]:
        merger = merger.when_not_matched_insert_all(clause["where"])
    for clause in chosen["when_not_matched_by_source"]:
        if clause["action"] == "Delete":
            merger = merger.when_not_matched_by_source_delete(clause["where"])
        else:
            merger = merger.when_not_matched_by_source_update(clause["set"], clause["where"])
    merger.execute()


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled(range(HISTORIES), ONE_IN))
def test_random_merges_give_rows_of_deltalake(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    both = Both(tmp_path, draw.choice(["p", None]))
    types = dict(TYPES)
    for number in range(MERGES):
        key = draw.choice([("id",), ("id",), ("p", "id")])
        chosen = clauses(draw)
        evolve = "more" not in types and draw.random() < 0.2
        if evolve:
            # deltalake 1.6 gives rows that no clause updates the source's value in a new column.
            chosen |= {"when_matched": [{"action": "Update", "set": None, "where": None}]}
            chosen |= {"when_not_matched": [{"action": "Insert", "where": None}]}
            types["more"] = pa.int64()
        rows = some_rows(draw, draw.randrange(1, 8), types, unique=draw.random() < 0.85)
        keys = Counter(tuple(row[name] for name in key) for row in rows.to_pylist() if row["id"] is not None)
        if max(keys.values(), default=0) > 1:
            before = both.ours.version
            with pytest.raises(DuplicateKeys, match="have the key"):
                both.ours.merge(rows, key=key, evolve=evolve, **chosen)
            assert both.ours.version == before
            if evolve:
                del types["more"]
            continue
        both.ours.merge(rows, key=key, evolve=evolve, **chosen)
        merge_with_delta(both.delta, rows, key, chosen, evolve=evolve)
        ours, delta = both.rows()
        assert ours == delta, (number, key, chosen, rows.to_pylist())
