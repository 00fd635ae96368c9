"""What a directory adds to the contract: durability, foreign writers, dead processes, coarse clocks."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from minimalkv.fs import FilesystemStore

from kubothek.errors import InvalidKey, ObjectNotFound, PreconditionFailed, StoreError, StoreUnavailable
from kubothek.storage import Store, StoreConfig, open_store
from tests.storage.racing import die_at


@pytest.fixture
def root(directory_config: StoreConfig) -> Path:
    return Path(directory_config.url.removeprefix("file://"))


@pytest.fixture
def store(directory_config: StoreConfig) -> Store:
    return open_store(directory_config)


@pytest.fixture
def foreign(root: Path) -> FilesystemStore:
    """The store that plateau writes with: in place, without a lock."""
    return FilesystemStore(str(root))


def hidden_files(root: Path) -> list[str]:
    return [path.name for path in (root / ".kubothek/.file/tmp").iterdir()]


# --- ETags ---


def test_file_store_etags_are_never_reused(store: Store) -> None:
    etags = [store.put("k", b"%4d" % number) for number in range(300)]
    assert len(set(etags)) == len(etags)


def test_file_store_etags_are_not_reused_after_delete(store: Store) -> None:
    etags = []
    for number in range(100):
        etags.append(store.put_if_absent("k", b"%4d" % number))
        store.delete(["k"])
    assert len(set(etags)) == len(etags)


def test_file_store_etags_stay_unique_with_coarse_timestamps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = os.utime

    def whole_seconds(descriptor: int, *, ns: tuple[int, int]) -> None:
        exact(descriptor, ns=(ns[0] // 10**9 * 10**9, ns[1] // 10**9 * 10**9))

    monkeypatch.setattr(os, "utime", whole_seconds)
    etags = [store.put("k", b"%4d" % number) for number in range(20)]
    assert len(set(etags)) == len(etags)
    times = [int(etag.partition("-")[0], 16) for etag in etags]
    assert times == sorted(set(times))


def test_foreign_write_within_one_clock_tick_is_detected(store: Store, foreign: FilesystemStore) -> None:
    for _ in range(10):
        foreign.put("k", b"first")
        data, info = store.get_with_info("k")
        foreign.put("k", b"other")
        assert data == b"first"
        with pytest.raises(PreconditionFailed):
            store.put_if_match("k", b"ours", info.etag)
        assert store.get("k") == b"other"


def test_foreign_write_over_own_object_is_detected(store: Store, foreign: FilesystemStore) -> None:
    etag = store.put("k", b"first")
    foreign.put("k", b"other")
    with pytest.raises(PreconditionFailed):
        store.put_if_match("k", b"ours!", etag)


def test_content_and_etag_match_during_foreign_writes(store: Store, foreign: FilesystemStore) -> None:
    done = threading.Event()
    foreign.put("k", bytes(1 << 20))

    def overwrite() -> None:
        for number in range(1, 30):
            foreign.put("k", bytes([number]) * (1 << 20))
        done.set()

    writer = threading.Thread(target=overwrite)
    writer.start()
    contents: dict[str, bytes] = {}
    while not done.is_set():
        data, info = store.get_with_info("k")
        assert contents.setdefault(info.etag, data) == data
    writer.join()
    assert store.get_with_info("k")[0] == bytes([29]) * (1 << 20)


def test_file_overwritten_continuously_raises_unavailable(
    store: Store, root: Path, foreign: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(
        sleep=lambda _seconds: foreign.put("k", b"again"),
        time_ns=lambda: (root / "k").stat().st_mtime_ns,  # no time passes between the write and the look
    )
    monkeypatch.setattr("kubothek.storage.file.time", clock)
    foreign.put("k", b"once")
    with pytest.raises(StoreUnavailable, match=r"'k'.*without a pause"):
        store.get_with_info("k")


def test_foreign_file_created_under_lock_fails_put_if_absent(
    store: Store, foreign: FilesystemStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_late(source: str, target: str, **directories: Any) -> None:
        foreign.put("k", b"theirs")
        link(source, target, **directories)

    monkeypatch.setattr(os, "link", link_late)
    with pytest.raises(PreconditionFailed):
        store.put_if_absent("k", b"ours")
    assert store.get("k") == b"theirs"


# --- crashes ---


def _create(config: StoreConfig) -> None:
    open_store(config).put_if_absent("k", b"dead")


@pytest.mark.parametrize("call", ["fsync", "utime", "link"])
def test_killed_writer_leaves_no_lock_and_no_visible_object(
    store: Store, directory_config: StoreConfig, root: Path, call: str
) -> None:
    store.put("other", b"")
    assert die_at(call, _create, directory_config) == -9
    assert len(hidden_files(root)) == 1
    assert [info.key for info in store.list("")] == ["other"]
    store.put_if_absent("k", b"alive")
    assert store.get("k") == b"alive"


def test_probe_deletes_old_temporary_files(store: Store, root: Path) -> None:
    store.put("k", b"")
    temporary = root / ".kubothek/.file/tmp"
    (temporary / "fresh").write_bytes(b"")
    (temporary / "abandoned").write_bytes(b"")
    os.utime(temporary / "abandoned", (0, 0))
    store.probe()
    assert hidden_files(root) == ["fresh"]


def test_content_is_synced_before_rename_and_directory_before_return(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("d/other", b"")
    events = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append(f"sync {'content' if '.kubothek' in path.parts else path.relative_to(root)}")
        fsync(descriptor)

    def record_replace(source: str, target: str, **directories: Any) -> None:
        events.append("rename")
        replace(source, target, **directories)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    store.put("d/k", b"data")
    assert events == ["sync content", "rename", "sync d"]
    events.clear()
    store.put("new/er/k", b"data")
    assert events == ["sync content", "sync .", "sync new", "rename", "sync new/er"]


def test_staged_content_can_be_read_back_before_publication(store: Store, root: Path) -> None:
    content = os.urandom(5 << 16) + b"end"
    staging = store.stage("d/k")
    assert staging is not None
    with staging as staged:
        staged.write(content[:100])
        staged.write(memoryview(content)[100:])
        assert staged.size == len(content)
        assert bytes(staged.memory(0, 1 << 16)) + bytes(staged.memory(1 << 16, staged.size)) == content
        assert not list(store.list(""))
        staged.enter()
        assert store.get("d/k") == content
    left = store.stage("d/left")
    assert left is not None
    with left as staged:
        staged.write(b"x")
    assert [info.key for info in store.list("")] == ["d/k"]
    assert hidden_files(root) == []


def test_flush_syncs_each_directory_once(
    store: Store, directory_config: StoreConfig, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = ["a/1", "b/1", "a/2"]
    store.put("a/0", b"")
    store.put("b/0", b"")
    events = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        events.append("content" if path.is_relative_to(root / ".kubothek") else path.name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    store.put_many([(key, b"data") for key in written])
    assert events == ["content"] * 3
    open_store(directory_config).flush(written)
    assert sorted(events[3:]) == ["a", "b"]
    assert [store.get(key) for key in written] == [b"data"] * 3


def test_put_many_syncs_all_contents_before_first_rename(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the disk has been given all of them before it is waited for."""
    synced: dict[int, set[str]] = {}
    fsync = os.fsync

    def record(descriptor: int) -> None:
        synced[os.fstat(descriptor).st_ino] = {info.key for info in store.list("many/")}
        fsync(descriptor)

    store.put("many/0", b"")
    monkeypatch.setattr(os, "fsync", record)
    store.put_many([(f"many/{number}", b"%d" % number) for number in range(1, 6)])
    inodes = [(root / f"many/{number}").stat().st_ino for number in range(1, 6)]
    assert [synced[inode] for inode in inodes] == [{"many/0"}] * 5


def test_failed_put_many_names_object_and_leaves_no_partial_file(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("b", b"")
    objects = [("a", b"a"), ("b/c", b"c"), ("d", b"d")]
    with pytest.raises(InvalidKey, match=r"'b/c'.* both an object and a directory"):
        store.put_many(objects)
    fsync, count = os.fsync, itertools.count()

    def fail(descriptor: int) -> None:
        if next(count) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreUnavailable, match=r"'e' in .*: Input/output error"):
        store.put_many([("d", b"d"), ("e", b"e"), ("f", b"f")])
    assert hidden_files(root) == []
    assert {info.key: store.get(info.key) for info in store.list("")} == {"a": b"a", "b": b""}


def test_content_addressed_write_takes_no_lock(store: Store, root: Path) -> None:
    """A lock is a file: of many small objects each would cost as much as the object."""
    store.put_many([("d/1", b"1"), ("d/2", b"2")])
    staging = store.stage("d/3")
    assert staging is not None
    with staging as staged:
        staged.write(b"3")
        staged.enter()
    assert not (root / ".kubothek/.file/locks").exists()
    before = store.stat("d/3").etag
    store.put_many([("d/3", b"3")])
    assert store.stat("d/3").etag != before, "also where nobody swaps, no ETag comes back"
    store.put("d/4", b"4")
    assert (root / ".kubothek/.file/locks").is_dir()


# --- the tree ---


def test_locks_and_temporary_files_are_not_listed(store: Store, root: Path) -> None:
    store.put("k", b"")
    assert (root / ".kubothek/.file/locks").is_dir()
    for prefix in ("", ".kubothek/", ".kubothek/.f", ".kubothek/.file/", ".kubothek/.file/locks/"):
        assert [info.key for info in store.list(prefix)] == (["k"] if not prefix else [])
    for directory in (".kubothek/", ".kubothek/.file/", ".kubothek/.file/locks/"):
        assert list(store.list_names(directory)) == []
    with pytest.raises(InvalidKey, match="locks of a file store"):
        store.put(".kubothek/.file/locks/x", b"")
    store.put(".kubothek/.filed", b"")


def test_key_cannot_be_both_object_and_directory(store: Store) -> None:
    store.put("a/b", b"")
    for write, key in ((store.put, "a"), (store.put_if_absent, "a"), (store.put, "a/b/c")):
        with pytest.raises(InvalidKey, match="both an object and a directory"):
            write(key, b"")
    with pytest.raises(ObjectNotFound):
        store.get("a/b/c")
    assert [info.key for info in store.list("")] == ["a/b"]


def test_name_longer_than_255_bytes_is_refused(store: Store) -> None:
    with pytest.raises(InvalidKey, match="255 bytes"):
        store.put("k" * 256, b"")


def test_listing_does_not_follow_symbolic_links(store: Store, root: Path) -> None:
    store.put("d/k", b"")
    (root / "d/loop").symlink_to(root / "d")
    (root / "fifo").touch()
    (root / "fifo").unlink()
    os.mkfifo(root / "fifo")
    assert [info.key for info in store.list("")] == ["d/k"]


@pytest.fixture
def scanned(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that are read, relative to the root, in order."""
    found: list[str] = []
    scandir = os.scandir

    def record(descriptor: int) -> Iterator[os.DirEntry[str]]:
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(root)))
        return scandir(descriptor)

    monkeypatch.setattr(os, "scandir", record)
    return found


def test_listing_reads_only_directories_of_prefix_after_start(store: Store, scanned: list[str]) -> None:
    for key in ("a/1/k", "a/2/k", "a/3/k", "b/k", "c/k"):
        store.put(key, b"")
    scanned.clear()
    assert [info.key for info in store.list("a/2")] == ["a/2/k"]
    assert scanned == ["a", "a/2"]
    scanned.clear()
    assert [info.key for info in store.list("", "a/2/k")] == ["a/3/k", "b/k", "c/k"]
    assert scanned == [".", "a", "a/2", "a/3", "b", "c"]


def test_listing_is_lazy(store: Store, scanned: list[str]) -> None:
    for key in ("a/k", "b/k", "c/k"):
        store.put(key, b"")
    scanned.clear()
    assert next(iter(store.list(""))).key == "a/k"
    assert scanned == [".", ".kubothek", "a"]


def test_delete_scans_no_directory_and_leaves_no_empty_directory(store: Store, root: Path, scanned: list[str]) -> None:
    keys = [f"a/{number % 2}/{number}" for number in range(50)]
    for key in [*keys, "a/kept"]:
        store.put(key, b"")
    scanned.clear()
    store.delete(keys)
    assert scanned == []
    assert sorted(path.name for path in (root / "a").iterdir()) == ["kept"]
    store.delete(["a/kept"])
    assert not (root / "a").exists()


def test_put_survives_concurrent_delete_of_its_directory(store: Store) -> None:
    done = threading.Event()

    def delete_all_the_time() -> None:
        while not done.is_set():
            store.put("d/e/other", b"")
            store.delete(["d/e/other"])

    thread = threading.Thread(target=delete_all_the_time)
    thread.start()
    try:
        for number in range(100):
            store.put(f"d/e/{number}", b"")
            assert store.get(f"d/e/{number}") == b""
            store.delete([f"d/e/{number}"])
    finally:
        done.set()
        thread.join()


# --- what the operating system refuses ---


@pytest.mark.parametrize(
    ("number", "expected", "remedy"),
    [
        (errno.ENOSPC, "DiskUnavailable", "; disk full: free space, then retry"),
        (errno.EDQUOT, "DiskUnavailable", "; disk full: free space, then retry"),
        (errno.EIO, "DiskUnavailable", "; retry later"),
        (errno.EROFS, "AccessDenied", "; grant this process's user write permission"),
        (errno.EACCES, "AccessDenied", "; grant this process's user write permission"),
        (errno.EINVAL, "StoreError", ""),
    ],
)
def test_failed_write_maps_to_matching_error_and_changes_nothing(
    store: Store, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: str, remedy: str
) -> None:
    store.put("k", b"before")

    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StoreError, match=f"'k' in file://.*{os.strerror(number)}{remedy}$") as raised:
            store.put("k", b"after")
    assert type(raised.value).__name__ == expected
    assert store.get("k") == b"before"
    assert hidden_files(root) == []
