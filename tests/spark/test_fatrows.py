from __future__ import annotations

import pyarrow as pa
import pytest

from kubothek.spark import fatrows
from kubothek.spark.fatrows import Packer, Unpacker, fat_rows
from kubothek.table.partitioning import Group

P1, P2 = Group("p=1"), Group("p=2")


def batch(values: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.int64()), pa.array([str(value) for value in values], pa.string())], names=["a", "b"]
    )


def unpacked(rows: list[pa.RecordBatch], schema: pa.Schema) -> dict[Group | None, list[int | None]]:
    found: dict[Group | None, list[int | None]] = {}
    for fat in rows:
        for group, count, content in Unpacker(schema).unpack(fat):
            assert content is not None
            assert content.num_rows == count
            found.setdefault(group, []).extend(content.column("a").to_pylist())
    return found


def test_packed_rows_are_unpacked_by_partition_and_bucket() -> None:
    packer = Packer()
    rows = [
        r
        for group, values in [(P1, [1, 2]), (P2, [3]), (Group("p=1", 0), [5]), (P1, [4])]
        for r in packer.add(group, batch(values))
    ]
    assert rows == [], "small partitions wait for more rows"
    rows += packer.finish()
    assert unpacked(rows, batch([]).schema) == {P1: [1, 2, 4], P2: [3], Group("p=1", 0): [5]}


def test_packer_sends_large_partitions_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatrows, "FAT_ROW_BYTES", 1000)
    packer = Packer()
    rows = [*packer.add(P1, batch(list(range(1000))))]
    assert len(rows) > 10
    rows += packer.finish()
    assert all(
        content.nbytes < 3000 for fat in rows for _, _, content in Unpacker(batch([]).schema).unpack(fat) if content
    )
    assert unpacked(rows, batch([]).schema) == {P1: list(range(1000))}


def test_packer_holds_small_partitions_only_up_to_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fatrows, "HELD_BYTES", 5000)
    packer = Packer()
    sent = [r for number in range(1000) for r in packer.add(Group(f"p={number}", number % 3), batch([number]))]
    assert sent
    found = unpacked([*sent, *packer.finish()], batch([]).schema)
    assert found == {Group(f"p={number}", number % 3): [number] for number in range(1000)}


def test_held_rows_do_not_keep_what_they_were_divided_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch goes to one partition at once, but for a row that waits for more."""
    monkeypatch.setattr(fatrows, "FAT_ROW_BYTES", 1 << 16)
    monkeypatch.setattr(fatrows, "HELD_BYTES", 1 << 20)
    packer = Packer()
    before = pa.total_allocated_bytes()
    peak = 0
    for number in range(100):
        rows = batch(list(range(10_000)))
        sent = [*packer.add(P1, rows.slice(1)), *packer.add(P2, rows.slice(0, 1))]
        del rows
        peak = max(peak, pa.total_allocated_bytes() - before)
        assert sent or not number
    assert len(unpacked([*packer.finish()], batch([]).schema)[P2]) == 100
    assert peak < 4 << 20, "of 18 MB that were divided"


def test_packed_row_with_count_only_has_no_rows() -> None:
    assert [*Unpacker(batch([]).schema).unpack(fat_rows([(None, 7, None)]))] == [(None, 7, None)]


def test_packer_accepts_empty_partition_path() -> None:
    packer = Packer()
    assert [*packer.add(Group(""), batch([1]))] == []
    assert unpacked([*packer.finish()], batch([]).schema) == {Group(""): [1]}
