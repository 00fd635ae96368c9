"""What every store keeps of the contract in ``storage/base.py``; runs over a directory and over S3."""

from __future__ import annotations

import io
import os
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from kubothek.errors import BucketNotFound, InvalidKey, ObjectNotFound, PreconditionFailed
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.base import probe_store
from tests.faultstore import FaultStore
from tests.storage.racing import RACERS, create, increment, racers

AWKWARD_KEYS = [
    "%41",
    "a b",
    "a!/q",
    "a+b",
    "a-b/c=1%2F2/x.parquet",
    "a-b/c=1/x.parquet",
    "a.b",
    "a/b.c",
    "a/b/d",
    "a0",
    "z/é=ü/~t",
    "é",
]
"""In UTF-8 order; in a tree, ``a.b`` sorts between ``a-b/`` and ``a/``, and ``a/b.c`` before ``a/b/``."""


def test_store_returns_written_object_and_metadata(store: Store) -> None:
    etag = store.put("a/b", b"content")
    data, info = store.get_with_info("a/b")
    assert data == store.get("a/b") == b"content"
    assert (info.key, info.size, info.etag) == ("a/b", 7, etag)
    assert store.stat("a/b") == info
    assert list(store.list("a/b")) == [info]


def test_object_modification_time_is_aware_and_recent(store: Store) -> None:
    store.put("k", b"")
    assert abs(store.stat("k").modified - datetime.now(UTC)) < timedelta(seconds=10)


def test_empty_object_can_be_read(store: Store) -> None:
    store.put("k", b"")
    assert store.get("k") == b""
    assert store.stat("k").size == 0
    with store.open("k") as file:
        assert file.read() == b""


def test_put_replaces_object_and_accepts_memoryview(store: Store) -> None:
    first = store.put("k", b"one")
    second = store.put("k", memoryview(b"--two--")[2:5])
    assert first != second
    assert store.get("k") == b"two"


def test_get_if_changed_of_unchanged_object_returns_none(store: Store) -> None:
    etag = store.put("k", b"one")
    assert store.get_if_changed("k", etag) is None
    new = store.put("k", b"two")
    assert store.get_if_changed("k", etag) == store.get_with_info("k")
    assert store.get_if_changed("k", new) is None
    store.delete(["k"])
    with pytest.raises(ObjectNotFound):
        store.get_if_changed("k", new)


def test_put_if_absent_on_existing_key_fails(store: Store) -> None:
    etag = store.put_if_absent("k", b"first")
    with pytest.raises(PreconditionFailed):
        store.put_if_absent("k", b"second")
    assert store.get_with_info("k")[0] == b"first"
    assert store.stat("k").etag == etag


def test_put_if_match_with_stale_etag_fails(store: Store) -> None:
    old = store.put("k", b"old")
    new = store.put_if_match("k", b"new", old)
    assert store.stat("k").etag == new
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", b"stale", old)
    assert store.get("k") == b"new"


def test_put_if_match_on_deleted_object_fails(store: Store) -> None:
    etag = store.put("k", b"old")
    store.delete(["k"])
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", b"new", etag)
    with pytest.raises(ObjectNotFound):
        store.get("k")


@pytest.mark.parametrize("read", [Store.get, Store.get_with_info, Store.stat, Store.open])
def test_read_of_missing_key_raises_error_with_key_and_store(
    store: Store, read: Callable[[Store, str], object]
) -> None:
    with pytest.raises(ObjectNotFound, match=r"'a/absent' in .*://"):
        getattr(store, read.__name__)("a/absent")


def test_directory_in_store_is_no_object(store: Store) -> None:
    store.put("a/b/c", b"")
    for key in ("a", "a/b"):
        with pytest.raises(ObjectNotFound):
            store.get(key)
        with pytest.raises(ObjectNotFound):
            store.stat(key)
    store.delete(["a", "a/b"])
    assert [info.key for info in store.list("")] == ["a/b/c"]


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "..", "../a", "a/../b", "./a", "a/.", "a\0b", "\udc80", "k" * 1025]
)
def test_key_outside_store_is_refused(store: Store, key: str) -> None:
    with pytest.raises(InvalidKey):
        store.put(key, b"")
    with pytest.raises(InvalidKey):
        store.get(key)
    with pytest.raises(InvalidKey):
        store.delete([key])


@pytest.mark.parametrize("prefix", ["/", "../", "a//", "a/../", "./"])
def test_prefix_outside_store_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(InvalidKey):
        list(store.list(prefix))


def test_unusual_keys_work_in_every_operation(store: Store) -> None:
    for key in AWKWARD_KEYS:
        store.put_if_match(key, key.encode(), store.put_if_absent(key, b"-"))
    assert [store.get(key).decode() for key in AWKWARD_KEYS] == AWKWARD_KEYS
    assert store.delete(AWKWARD_KEYS) == len(AWKWARD_KEYS)
    assert list(store.list("")) == []


def test_list_returns_byte_order_from_any_prefix_and_start(store: Store) -> None:
    for key in random.Random(1).sample(AWKWARD_KEYS, len(AWKWARD_KEYS)):
        store.put(key, b"")
    prefixes = [
        "",
        "a",
        "a-",
        "a-b/",
        "a-b/c=1",
        "a/",
        "a/b",
        "a/b/",
        "a/b/d",
        "a/b/d/",
        "é",
        "nothing",
        "nothing/",
    ]
    starts = [
        "",
        "%",
        "a",
        "a-b/c=1%2F2/x.parquet",
        "a.b",
        "a/",
        "a/b",
        "a/b.c",
        "a/b/d",
        "b",
        "z/é",
        "é",
        "\U0010ffff",
    ]
    for prefix in prefixes:
        for start in starts:
            expected = [key for key in AWKWARD_KEYS if key.startswith(prefix) and key.encode() > start.encode()]
            assert [info.key for info in store.list(prefix, start)] == expected, (prefix, start)


def test_list_names_returns_one_level(store: Store) -> None:
    for key in AWKWARD_KEYS:
        store.put(key, b"")
    names = [name for name in store.list_names("") if name != ".kubothek/"]
    assert names == ["%41", "a b", "a!/", "a+b", "a-b/", "a.b", "a/", "a0", "z/", "é"]
    assert list(store.list_names("a/")) == ["b.c", "b/"]
    assert list(store.list_names("absent/")) == []
    assert list(store.list_names(".kubothek/")) == []


def test_list_returns_more_than_one_page(store: Store) -> None:
    keys = [f"k/{number:04}" for number in range(1003)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b""), keys))
    assert [info.key for info in store.list("k/")] == keys
    assert [info.key for info in store.list("k/", "k/0990")] == keys[991:]
    assert store.delete(iter(keys)) == 1003
    assert list(store.list("k/")) == []


def test_delete_ignores_missing_keys_and_counts_requested_keys(store: Store) -> None:
    store.put("a/b", b"")
    store.put("a/c", b"")
    assert store.delete(["a/b", "a/absent", "x/y"]) == 3
    assert store.delete([]) == 0
    assert [info.key for info in store.list("")] == ["a/c"]


def test_store_reader_seeks_and_reads_like_file(store: Store) -> None:
    data = random.Random(2).randbytes(3 << 20)
    store.upload("big", io.BytesIO(data))
    with store.open("big") as file:
        assert file.seekable()
        assert file.read(10) == data[:10]
        file.seek(-8, io.SEEK_END)
        assert file.read() == data[-8:]
        file.seek(1_000_001)
        assert file.read(2_000_000) == data[1_000_001:3_000_001]
        file.seek(len(data) - 70_000)
        assert file.read() == data[-70_000:]
        assert file.read() == b""
        file.seek(0)
        assert file.read() == data


def test_store_reader_of_replaced_object_returns_old_content_or_fails(store: Store) -> None:
    old = random.Random(3).randbytes(3 << 20)
    store.put("k", old)
    with store.open("k") as file:
        head = file.read(5)
        store.put("k", bytes(len(old)))
        try:
            rest = file.read()
        except Exception as error:  # noqa: BLE001 - the class is asserted
            assert type(error).__name__ == "StoreError"  # noqa: PT017
            assert "'k'" in str(error)  # noqa: PT017
            assert "replaced while it was read" in str(error)  # noqa: PT017
        else:
            assert head + rest == old


def test_upload_rewinds_stream_and_writes_several_parts(store: Store) -> None:
    data = os.urandom(1 << 20) * 33
    source = io.BytesIO(data)
    source.seek(5)
    etag = store.upload("big", source)
    assert store.stat("big").etag == etag
    assert store.get("big") == data


def test_put_many_writes_all_objects(store: Store) -> None:
    store.put("0/77", b"of before")
    objects = [(f"{number % 7}/{number}", b"%d" % number) for number in range(150)]
    store.put_many(objects)
    store.put_many([])
    store.flush(key for key, _ in objects)
    assert {info.key for info in store.list("")} == {key for key, _ in objects}
    assert [store.get(key) for key, _ in objects] == [data for _, data in objects]


def test_put_many_with_invalid_key_names_key(store: Store) -> None:
    objects = [(f"{number}", b"%d" % number) for number in range(10)]
    with pytest.raises(InvalidKey, match=r"'a/\.\./b'"):
        store.put_many([*objects, ("a/../b", b""), ("c", b"")])
    assert {(info.key, store.get(info.key)) for info in store.list("")} <= {*objects, ("c", b"")}


def test_missing_store_root_is_reported_and_not_created(
    missing_root: Store, any_call: Callable[[Store], object]
) -> None:
    for _ in range(2):
        with pytest.raises(BucketNotFound, match="create it, or correct the URL"):
            any_call(missing_root)


def test_store_can_be_pickled(store: Store) -> None:
    store.put("k", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.config == store.config
    assert copy.get("k") == b"1"


def test_store_works_in_forked_process(store: Store) -> None:
    store.put("k", b"1")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.put("child", store.get("k"))
            status = 0
        finally:
            os._exit(status)
    assert store.get("k") == b"1"
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("child") == b"1"


def test_probe_detects_conditional_writes_and_cleans_up(store: Store) -> None:
    found = store.probe()
    assert found.conditional_writes
    assert abs(found.clock_skew) < 2
    assert list(store.list("")) == []


class IgnoresIfMatch(FaultStore):
    """What a server does that does not know the header."""

    def put_if_match(self, key: str, data: bytes | memoryview, etag: str) -> str:
        return self.put(key, data)


class IgnoresIfNoneMatch(FaultStore):
    def put_if_absent(self, key: str, data: bytes | memoryview) -> str:
        return self.put(key, data)


@pytest.mark.parametrize(
    ("careless", "absent", "match"), [(IgnoresIfMatch, True, False), (IgnoresIfNoneMatch, False, True)]
)
def test_probe_detects_server_that_ignores_conditions(
    store: Store, careless: type[FaultStore], absent: bool, match: bool
) -> None:
    found = probe_store(careless(store))
    assert (found.put_if_absent, found.put_if_match) == (absent, match)
    assert not found.conditional_writes


def test_concurrent_put_if_match_has_one_winner_per_round(config: StoreConfig, store: Store) -> None:
    store.put("counter", b"0")
    rounds = 5
    with racers() as pool:
        futures = [pool.submit(increment, config, "counter", rounds) for _ in range(RACERS)]
        lost = sum(future.result() for future in futures)
    assert store.get("counter") == b"%d" % (RACERS * rounds)
    assert lost > 0, "nobody raced"


def test_concurrent_put_if_absent_has_one_winner_per_key(config: StoreConfig, store: Store) -> None:
    keys = [f"new/{number}" for number in range(20)]
    with racers() as pool:
        futures = {name: pool.submit(create, config, keys, name) for name in map(str, range(RACERS))}
        won = {key: name for name, future in futures.items() for key in future.result()}
        assert sum(len(future.result()) for future in futures.values()) == len(keys)
    assert {key: store.get(key).decode() for key in keys} == won


def test_together_returns_both_results_or_first_error(store: Store) -> None:
    store.put("k", b"content")
    assert store.together(lambda: store.get("k"), lambda: store.stat("k").size) == (b"content", 7)
    with pytest.raises(ObjectNotFound, match="second"):
        store.together(lambda: store.get("k"), lambda: store.get("second"))
    with pytest.raises(ObjectNotFound, match="first"):
        store.together(lambda: store.get("first"), lambda: store.get("second"))


def test_open_store_sends_no_request() -> None:
    open_store(StoreConfig("s3://bucket", "http://127.0.0.1:1"))
    open_store(StoreConfig("file:///no/such/directory"))
