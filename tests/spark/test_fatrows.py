from __future__ import annotations

import pyarrow as pa
import pytest

from kubothek.spark import fatrows
from kubothek.spark.fatrows import Packer, Unpacker, fat_rows


def batch(values: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.int64()), pa.array([str(value) for value in values], pa.string())], names=["a", "b"]
    )


def unpacked(rows: list[pa.RecordBatch], schema: pa.Schema) -> dict[str | None, list[int | None]]:
    found: dict[str | None, list[int | None]] = {}
    for fat in rows:
        for path, count, content in Unpacker(schema).unpack(fat):
            assert content is not None
            assert content.num_rows == count
            found.setdefault(path, []).extend(content.column("a").to_pylist())
    return found


def test_what_is_packed_comes_back_by_partition() -> None:
    packer = Packer()
    rows = [
        r for path, values in [("p=1", [1, 2]), ("p=2", [3]), ("p=1", [4])] for r in packer.add(path, batch(values))
    ]
    assert rows == [], "small partitions wait for more rows"
    rows += packer.finish()
    assert unpacked(rows, batch([]).schema) == {"p=1": [1, 2, 4], "p=2": [3]}


def test_large_partitions_are_sent_off_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatrows, "FAT_ROW_BYTES", 1000)
    packer = Packer()
    rows = [*packer.add("p=1", batch(list(range(1000))))]
    assert len(rows) > 10
    rows += packer.finish()
    assert all(
        content.nbytes < 3000 for fat in rows for _, _, content in Unpacker(batch([]).schema).unpack(fat) if content
    )
    assert unpacked(rows, batch([]).schema) == {"p=1": list(range(1000))}


def test_many_small_partitions_are_held_only_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatrows, "HELD_BYTES", 5000)
    packer = Packer()
    sent = [r for number in range(1000) for r in packer.add(f"p={number}", batch([number]))]
    assert sent
    found = unpacked([*sent, *packer.finish()], batch([]).schema)
    assert found == {f"p={number}": [number] for number in range(1000)}


def test_a_row_that_only_counts_has_no_rows() -> None:
    assert [*Unpacker(batch([]).schema).unpack(fat_rows([(None, 7, None)]))] == [(None, 7, None)]


def test_an_empty_partition_path_is_a_partition() -> None:
    packer = Packer()
    assert [*packer.add("", batch([1]))] == []
    assert unpacked([*packer.finish()], batch([]).schema) == {"": [1]}
