"""Memory does not grow with keys, and a real S3 server lists and deletes as the collector expects."""

from __future__ import annotations

import tracemalloc
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kubothek
from kubothek.errors import StoreError, StoreUnavailable
from kubothek.gc import Count, Kind, Mode, Retention, collect, collection
from kubothek.gc.areas import areas
from kubothek.gc.listing import GarbageSearch, write_kept
from kubothek.gc.mark import Moment
from kubothek.gc.plan import Found, objects_of
from kubothek.gc.sorted_keys import SortedKeys, unreferenced
from kubothek.storage import ObjectInfo, Store
from kubothek.storage.parallel import spread_here
from tests.faultstore import FaultStore
from tests.gc.aging import START, AgingStore, log_of
from tests.gc.test_collect import overwrite
from tests.s3server import S3Server
from tests.table.log.memory import MemoryStore
from tests.table.log.table import append, present

pytestmark = pytest.mark.slow


def listing(keys: Iterable[str]) -> Iterator[ObjectInfo]:
    return (ObjectInfo(key, 10, "e", START) for key in keys)


def test_sorted_keys_are_unique_and_in_listing_order(tmp_path: Path) -> None:
    keys = ["b", "a", "ü", "\U0001f600", "￿", "a/b", "a-b", "b", "Z", "line\nbreak"]
    sorted_keys = SortedKeys(tmp_path, in_memory=2)
    sorted_keys.update(keys)
    assert len(list(tmp_path.iterdir())) == 5
    assert list(sorted_keys) == sorted(set(keys), key=str.encode)
    assert list(sorted_keys) == list(sorted_keys)


def test_sorted_keys_merge_many_runs_into_few(tmp_path: Path) -> None:
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
def test_merge_join_returns_unreferenced_keys(listed: str, kept: str, garbage: str) -> None:
    assert [info.key for info in unreferenced(listing(listed), kept)] == list(garbage)


@pytest.mark.parametrize("listed", ["ba", "aa", "acb"])
def test_listing_out_of_order_is_refused(listed: str) -> None:
    with pytest.raises(StoreError, match="not the order of keys"):
        list(unreferenced(listing(listed), ""))


class Endless(MemoryStore):
    """Lists data files that are not there, as many as a test wants; tells what is put and not kept."""

    def __init__(self, files: int) -> None:
        super().__init__()
        self.files = files

    def name(self, number: int) -> str:
        return f"dataset/table/partition={number // 1000:08d}/{number:012d}.parquet"

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        first = bisect_right(range(self.files), start_after, key=self.name)
        return listing(self.name(number) for number in range(first, self.files))


def peak(keys: int, directory: Path) -> tuple[int, Found]:
    """Bytes that it takes at most to find, among so many keys, the half that is garbage; and what was found."""
    directory.mkdir()
    store = Endless(keys)
    data = len(areas("dataset", "table")) - 1
    tracemalloc.start()
    kept = SortedKeys(directory, in_memory=1000)
    kept.update(store.name(number) for number in range(keys - 2, -1, -2))
    ranges = [*write_kept(directory / "kept", [kept], data)]
    store.objects["kept"] = (directory / "kept").read_bytes(), ObjectInfo("kept", 0, "", START)
    search = GarbageSearch("dataset", "table", Moment(START + timedelta(days=2), timedelta(days=1)), 1, "kept", "plan")
    found = []
    for part in ranges:
        found.append(search(store, part))
        for listed in found[-1].parts:
            assert sum(map(len, objects_of(store, "dataset", listed, 100))) <= 1000
            store.delete([listed.key])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most, Found.joined(found)


@pytest.mark.slow
def test_memory_is_independent_of_number_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.gc.plan.PART_OBJECTS", 1000)
    monkeypatch.setattr("kubothek.gc.listing.RANGE_KEYS", 1000)
    monkeypatch.setattr("kubothek.gc.sorted_keys._BATCH", 50)
    (few, _), (many, found) = peak(5_000, tmp_path / "few"), peak(40_000, tmp_path / "many")
    assert many < 2 * few, f"{few >> 10} KiB for 5,000 keys, {many >> 10} KiB for 40,000"
    assert found.counts == {Kind.DATA: Count(20_000, 200_000)}


def cut(path: Path, *kept: str) -> list[tuple[int, str, str | None, int | None]]:
    return [(part.area, part.after, part.until, part.group) for part in write_kept(path, kept, 1)]


def test_listing_ranges_are_contiguous_and_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.gc.listing.RANGE_KEYS", 2)
    assert cut(tmp_path / "a", "abcde", "", "fg") == [
        (1, "", "b", 0),
        (1, "b", "d", 1),
        (1, "d", None, 2),
        (2, "", None, None),
        (3, "", None, 3),
    ]
    assert pq.read_table(tmp_path / "a")["key"].to_pylist() == list("abcdefg")


@settings(max_examples=60, deadline=None)
@given(
    there=st.sets(st.integers(0, 40)),
    kept=st.sets(st.integers(0, 40)),
    a_range=st.integers(1, 7),
)
def test_listing_ranges_return_all_unreferenced_objects_only(there: set[int], kept: set[int], a_range: int) -> None:
    store = AgingStore()
    for number in there:
        store.put(f"d/table/{number:02d}.parquet", b"x")
    store.pass_by(timedelta(days=2))
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubothek.gc.listing.RANGE_KEYS", a_range)
        path = Path(directory) / "kept"
        names = sorted(f"d/table/{number:02d}.parquet" for number in kept)
        ranges = [*write_kept(path, [names], len(areas("d", "table")) - 1)]
        store.put("kept", path.read_bytes())
    search = GarbageSearch("d", "table", Moment(store.now, timedelta(days=1)), 1, "kept", "plan")
    found = Found.joined(spread_here(store)(search, ranges, "look"))
    listed = [doomed.key for part in found.parts for batch in objects_of(store, "d", part, 3) for doomed in batch]
    assert sorted(listed) == sorted(f"d/table/{number:02d}.parquet" for number in there - kept)


class Forgetful(AgingStore):
    """Lists from the beginning, wherever it was told to begin."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return super().list(prefix)


def test_store_that_ignores_listing_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.gc.listing.RANGE_KEYS", 1)
    store = Forgetful()
    append(log_of(store), store, "first", [1])
    append(log_of(store), store, "second", [2])
    store.pass_by(timedelta(days=3))
    with pytest.raises(StoreError, match="not the order of keys"):
        collect(store, log_of(store), [Retention()], mode=Mode.ENFORCE)
    assert sorted(present(store)) == [1, 2]


def test_plan_parts_of_one_turn_run_before_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts there are, and whoever is slow."""
    monkeypatch.setattr("kubothek.gc.plan.PART_OBJECTS", 1)
    store = AgingStore()
    append(log_of(store), store, "first", [1])
    for n in range(2, 6):
        overwrite(store, f"v{n}", [n])
    store.pass_by(timedelta(days=3))
    deleting = FaultStore(store)
    done = collect(deleting, log_of(deleting), [Retention(versions=1)], mode=Mode.ENFORCE)
    turns = [".kubothek" not in call.key for call in deleting.calls if call.name == "delete"]
    assert len(turns) == sum(count.objects for count in done.deleted.values()) > 6
    assert turns == sorted(turns)


def test_spread_raises_first_error_of_thread() -> None:
    def work(store: Store, item: int) -> int:
        if item == 2:
            raise StoreUnavailable("no answer")
        return item

    assert spread_here(AgingStore())(work, [0, 1], "work") == [0, 1]
    with pytest.raises(StoreUnavailable):
        spread_here(AgingStore())(work, [0, 1, 2, 3], "work")


@pytest.mark.s3
@pytest.mark.slow
def test_thousands_of_objects_on_s3_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
