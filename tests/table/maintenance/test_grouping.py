"""Which files are worth writing once more: thresholds, buckets, bundles; and a second look finds nothing to do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.table.bucketing import Bucketing
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance.grouping import BUNDLE_TARGETS, Bundle, Thresholds, bundles, tasks
from kubothek.table.partitioning import Group

TARGET = 100
BUCKETING = Bucketing((("n", pa.int64()),), 2)


def file(path: str, name: str, size: int) -> PartitionFile:
    label = f"{path}/{name}" if path else name
    return PartitionFile(label, f"d/table/{label}.parquet", size, size)


def found(
    files: list[PartitionFile], bucketing: Bucketing | None = None, *, min_files: int = 2, min_small_share: float = 0
) -> list[tuple[str, int | None, list[str]]]:
    thresholds = Thresholds(target_bytes=TARGET, min_files=min_files, min_small_share=min_small_share)
    return [
        (bundle.group.path, bundle.group.bucket, [each.label.rpartition("/")[2] for each in bundle.files])
        for bundle in bundles(files, bucketing, thresholds)
    ]


def test_grouping_bundles_small_files_per_partition() -> None:
    files = [file("p=1", "a", 10), file("p=2", "b", 10), file("p=1", "c", 49), file("p=2", "d", 10)]
    assert found(files) == [("p=1", None, ["a", "c"]), ("p=2", None, ["b", "d"])]


def test_grouping_omits_files_of_half_target_size_or_more() -> None:
    assert found([file("", "a", 50), file("", "b", 50), file("", "c", 49), file("", "d", 1)]) == [
        ("", None, ["c", "d"])
    ]
    assert found([file("", "a", 500), file("", "b", 49)]) == []


@pytest.mark.parametrize(("small", "large", "due"), [(2, 0, False), (3, 0, True), (3, 3, True), (3, 4, False)])
def test_grouping_thresholds_apply_per_partition(small: int, large: int, due: bool) -> None:
    files = [file("p=1", f"s{n}", 1) for n in range(small)] + [file("p=1", f"l{n}", 90) for n in range(large)]
    files += [file("p=2", f"s{n}", 1) for n in range(2)]
    assert bool(found(files, min_files=3, min_small_share=0.5)) is due


def test_grouping_omits_single_file() -> None:
    assert found([file("", "a", 1)], min_files=0) == []


def test_grouping_treats_quoted_partition_paths_as_equal() -> None:
    assert found([file("p=a%20b", "a", 1), file("p=a b", "b", 1)]) == [("p=a%20b", None, ["a", "b"])]


def test_grouping_keeps_buckets_separate() -> None:
    files = [file("", f"{n}{BUCKETING.mark(n % 2)}", 1) for n in range(4)]
    marks = [BUCKETING.mark(0), BUCKETING.mark(1)]
    assert found(files, BUCKETING) == [
        ("", 0, [f"0{marks[0]}", f"2{marks[0]}"]),
        ("", 1, [f"1{marks[1]}", f"3{marks[1]}"]),
    ]


def test_partition_with_unbucketed_files_is_one_group_if_file_count_drops() -> None:
    unmarked = [file("", "a", 1), file("", f"b{BUCKETING.mark(0)}", 1)]
    assert found(unmarked, BUCKETING) == []
    assert found([*unmarked, file("", "c", 1)], BUCKETING) == [("", None, ["a", f"b{BUCKETING.mark(0)}", "c"])]


def test_grouping_cuts_large_partitions_into_bundles() -> None:
    files = [file("", str(n), 40) for n in range(100)]
    cut = bundles(files, None, Thresholds(target_bytes=TARGET))
    assert [each for bundle in cut for each in bundle.files] == files
    assert all(bundle.bytes <= BUNDLE_TARGETS * TARGET for bundle in cut)
    assert len(cut) == 10


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 150)), max_size=60))
def test_grouping_of_compacted_files_returns_nothing(given: list[tuple[int, int]]) -> None:
    files = [file(f"p={part}", str(n), size) for n, (part, size) in enumerate(given)]
    thresholds = Thresholds(target_bytes=TARGET)
    rounds = 0
    while cut := bundles(files, None, thresholds):
        gone = {each for bundle in cut for each in bundle.files}
        assert all(thresholds.is_small(each) for each in gone)
        after = [each for each in files if each not in gone]
        for number, bundle in enumerate(cut):
            whole, rest = divmod(bundle.bytes, TARGET)
            sizes = [TARGET] * whole + [rest] * bool(rest)
            assert len(sizes) < len(bundle.files)
            after += [file(bundle.group.path, f"{rounds}-{number}-{n}", size) for n, size in enumerate(sizes)]
        assert len(after) < len(files)
        files = after
        rounds += 1
    for part in range(3):
        sizes = [each.bytes for each in files if each.label.startswith(f"p={part}/")]
        assert sum(2 * size < TARGET for size in sizes) <= 1
        assert len(sizes) <= 2 * -(-sum(sizes) // TARGET) + 1


@given(st.lists(st.integers(0, 1000), max_size=50), st.integers(1, 2000), st.integers(1, 8))
def test_grouping_tasks_hold_all_bundles_in_order_within_size_limit(sizes: list[int], most: int, least: int) -> None:
    given = [Bundle(Group(f"p={n}"), (file(f"p={n}", "a", size),)) for n, size in enumerate(sizes)]
    cut = tasks(given, most_bytes=most + (1 << 16), at_least=least)
    assert [bundle for task in cut for bundle in task] == given
    assert all(len(task) == 1 or sum(b.bytes + (1 << 16) for b in task) <= most + (1 << 16) for task in cut)
    assert len(cut) >= min(least, len(given))
