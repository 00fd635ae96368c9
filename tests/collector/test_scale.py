"""Memory does not grow with keys, and a real S3 server lists and deletes as the collector expects."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

import kubothek
from kubothek.lake.collector import Kind, collection
from kubothek.lake.collector.mark import Moment
from kubothek.lake.collector.plan import Spool
from kubothek.lake.collector.sorted_keys import SortedKeys, unreferenced
from kubothek.lake.errors import StoreError
from kubothek.lake.store import ObjectInfo
from tests.collector.aging import START
from tests.s3server import S3Server


def listing(keys: Iterable[str]) -> Iterator[ObjectInfo]:
    return (ObjectInfo(key, 10, "e", START) for key in keys)


def test_keys_come_out_once_and_in_the_order_of_listings(tmp_path: Path) -> None:
    keys = ["b", "a", "ü", "\U0001f600", "￿", "a/b", "a-b", "b", "Z", "line\nbreak"]
    sorted_keys = SortedKeys(tmp_path, in_memory=2)
    sorted_keys.update(keys)
    assert len(list(tmp_path.iterdir())) == 5
    assert list(sorted_keys) == sorted(set(keys), key=str.encode)
    assert list(sorted_keys) == list(sorted_keys)


def test_many_runs_become_few(tmp_path: Path) -> None:
    numbers = [f"{number * 7919 % 3001:05d}" for number in range(3001)]
    sorted_keys = SortedKeys(tmp_path, in_memory=5)
    sorted_keys.update(numbers)
    assert len(list(tmp_path.iterdir())) < 40
    assert list(sorted_keys) == sorted(numbers)


@pytest.mark.parametrize(
    ("listed", "kept", "garbage"),
    [
        ("abcdef", "ace", "bdf"),
        ("abc", "", "abc"),
        ("", "abc", ""),
        ("bd", "abcde", ""),
        ("ad", "bc", "ad"),
    ],
)
def test_merge_join(listed: str, kept: str, garbage: str) -> None:
    assert [info.key for info in unreferenced(listing(listed), kept)] == list(garbage)


@pytest.mark.parametrize("listed", ["ba", "aa", "acb"])
def test_listing_that_does_not_ascend_is_refused(listed: str) -> None:
    with pytest.raises(StoreError, match="not the order of keys"):
        list(unreferenced(listing(listed), ""))


def peak(keys: int, directory: Path) -> int:
    """Bytes that it takes at most to find, among so many keys, the half that is garbage."""
    directory.mkdir()

    def name(number: int) -> str:
        return f"dataset/table/partition={number // 1000:08d}/{number:012d}.parquet"

    tracemalloc.start()
    kept = SortedKeys(directory, in_memory=1000)
    kept.update(name(number) for number in range(keys - 2, -1, -2))
    with Spool(directory) as spool:
        for info in unreferenced(listing(map(name, range(keys))), kept):
            spool.add(info, Kind.DATA)
    assert spool.objects == keys // 2
    assert sum(len(batch) for batch in spool.batches(1000)) == keys // 2
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.lake.collector.plan._GROUP_ROWS", 1000)
    monkeypatch.setattr("kubothek.lake.collector.sorted_keys._BATCH", 50)
    few, many = peak(5_000, tmp_path / "few"), peak(40_000, tmp_path / "many")
    assert many < 2 * few, f"{few >> 10} KiB for 5,000 keys, {many >> 10} KiB for 40,000"


@pytest.mark.s3
@pytest.mark.slow
def test_thousands_of_objects_on_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one page of a listing, and more than one request to delete."""
    with S3Server() as server:
        server.create_bucket("lake")
        (tmp_path / "AWS_ACCESS_KEY_ID").write_text(server.access_key)
        (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text(server.secret_key)
        lake = kubothek.open("s3://lake/ware", endpoint=server.endpoint, credentials_dir=str(tmp_path))
        letters = lake.create_dataset("letters", indices=["n"])
        for n in (1, 2, 3):
            letters.overwrite(pa.table({"n": [n]}))
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: lake.store.put(f"letters/table/litter-{n}.parquet", b"x"), range(1100)))
        assert not letters.collect(enforce=True).found
        monkeypatch.setattr(collection._Run, "_take_time", two_days_later(collection._Run._take_time))
        done = letters.collect(keep_versions=2, enforce=True)
        assert done.deleted[Kind.DATA].objects == 1100 + 1
        assert [letters.scan(as_of=v).read_all()["n"].to_pylist() for v in (3, 4)] == [[2], [3]]
        assert letters.scan(where="n = 3").read_all().num_rows == 1
        left = [info.key for info in lake.store.list("letters/table/")]
        assert len(left) == 3, list(islice(left, 10))


def two_days_later(
    take_time: Callable[[collection._Run, timedelta], Moment],
) -> Callable[[collection._Run, timedelta], Moment]:
    """The store's clock cannot be set, so the collector's is."""

    def later(run: collection._Run, grace: timedelta) -> Moment:
        moment = take_time(run, grace)
        return Moment(moment.now + timedelta(days=2), moment.grace)

    return later
