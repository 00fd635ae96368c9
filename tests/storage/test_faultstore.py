"""The crash wrapper does what crash tests rely on."""

from __future__ import annotations

import multiprocessing

import pytest

from kubothek.errors import ObjectNotFound, StoreUnavailable
from kubothek.storage import Store, StoreConfig, open_store
from tests.faultstore import Call, Crash, Fault, FaultStore, every_crash


@pytest.fixture
def store(directory_config: StoreConfig) -> Store:
    return open_store(directory_config)


def write_two(store: Store) -> None:
    store.put("a", b"1")
    store.get("a")
    store.put_if_absent("b", b"2")


def test_faultstore_records_calls_and_forwards_them(store: Store) -> None:
    counting = FaultStore(store)
    write_two(counting)
    assert counting.calls == [Call("put", "a"), Call("get", "a"), Call("put_if_absent", "b")]
    assert store.get("b") == b"2"


def test_every_crash_visits_each_write_before_and_after_its_effect(store: Store) -> None:
    counting = FaultStore(store)
    write_two(counting)
    left = []
    for fault in every_crash(counting.calls):
        store.delete(["a", "b"])
        with pytest.raises(Crash):
            write_two(FaultStore(store, fault))
        left.append([info.key for info in store.list("")])
    assert left == [[], ["a"], ["a"], ["a", "b"]]


def test_faultstore_after_crash_refuses_every_call(store: Store) -> None:
    dying = FaultStore(store, Fault(nth=1, after=True))
    with pytest.raises(Crash):
        dying.put("a", b"")
    with pytest.raises(Crash):
        dying.delete(["a"])
    assert store.get("a") == b""


def test_faultstore_loses_response_once(store: Store) -> None:
    lossy = FaultStore(store, Fault(("put",), key="a", after=True, error=StoreUnavailable("lost")))
    lossy.put("b", b"")
    with pytest.raises(StoreUnavailable, match="lost"):
        lossy.put("a", b"1")
    assert lossy.get("a") == b"1"
    lossy.put("a", b"2")


def test_faultstore_hook_runs_before_call(store: Store) -> None:
    def delete_it(_name: str, key: str) -> None:
        store.delete([key])

    watched = FaultStore(store)
    watched.before_call = delete_it
    watched.put("a", b"")
    with pytest.raises(ObjectNotFound):
        watched.get("a")


def _write_and_be_killed(config: StoreConfig) -> None:
    write_two(FaultStore(open_store(config), Fault(nth=2, kill=True)))


def test_faultstore_kills_process_at_call(store: Store, directory_config: StoreConfig) -> None:
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_write_and_be_killed, args=(directory_config,))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    assert [info.key for info in store.list("")] == ["a"]
