"""The collector dies at any call of the store, and is run again: nothing that is referenced is ever gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from kubothek.errors import StoreUnavailable
from kubothek.gc import Kind, Mode, Retention, collect
from kubothek.storage import Store
from kubothek.table.indexes import IndexChange, IndexKind
from kubothek.table.log import Change, DatasetLog, Operation
from tests.faultstore import ALL, Crash, Fault, FaultStore
from tests.gc.aging import GRACE, AgingStore, contents, dangling, log_of
from tests.gc.test_collect import overwrite
from tests.table.log.table import SCHEMA, UUID, append, keys_below, started, write

pytestmark = pytest.mark.slow

TWO = [Retention(versions=2)]

T = TypeVar("T")
R = TypeVar("R")


def run(store: Store) -> object:
    return collect(store, log_of(store), TWO, mode=Mode.ENFORCE)


def expired() -> AgingStore:
    """Six versions with two kinds of indices, the old ones due; litter of a crash; a deletion taken back."""
    store = AgingStore()
    kinds = {"x": IndexKind.NATIVE}
    started(log_of(store), "create").commit(
        Change(operation=Operation.CREATE, schema=SCHEMA, index=IndexChange(wanted=kinds))
    )
    append(log_of(store), store, "first", [1])
    overwrite(store, "second", [2])
    log_of(store).delete()
    log_of(store).restore()
    overwrite(store, "third", [3])
    append(log_of(store), store, "fourth", [4])
    write(store, "litter")
    store.pass_by(3 * GRACE)
    return store


def calls_of(operate: Callable[[Store], object]) -> int:
    counting = FaultStore(expired())
    operate(counting)
    return sum(call.name in ALL for call in counting.calls)


def referenced(log: DatasetLog, store: Store) -> dict[int, list[int]]:
    """The two versions that are retained, as every file of theirs tells."""
    return {version: values for version, values in contents(store).items() if version in (6, 7)}


def assert_nothing_is_lost(store: AgingStore) -> None:
    assert referenced(log_of(store), store) == {6: [3], 7: [3, 4]}
    assert not dangling(store)


def assert_swept(store: AgingStore) -> None:
    files = [key for key in keys_below(store, f"{UUID}/table/") if key.endswith(".parquet")]
    assert len(files) == 2
    assert all("third" in key or "fourth" in key for key in files)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_collection_crash_at_any_call_loses_no_data(after: bool) -> None:
    prepared = expired()
    for nth in range(1, calls_of(run) + 1):
        store = prepared.copy()
        with pytest.raises(Crash):
            run(FaultStore(store, Fault(ALL, nth, after=after)))
        assert_nothing_is_lost(store)
        run(store)
        assert_nothing_is_lost(store)
        assert_swept(store)


@pytest.mark.slow
def test_store_that_fails_at_any_call_loses_no_data() -> None:
    """An error is no crash: clean-up code runs, and must not make it worse."""
    prepared = expired()
    for nth in range(1, calls_of(run) + 1):
        store = prepared.copy()
        faulty = FaultStore(store, Fault(ALL, nth, error=StoreUnavailable("no answer")))
        with suppress(StoreUnavailable):
            run(faulty)
        assert_nothing_is_lost(store)
        run(store)
        assert_nothing_is_lost(store)
        assert_swept(store)


def test_deletion_interrupted_within_batch_loses_no_data() -> None:
    """The store deletes some keys of a batch, in its own order, and then nothing more; any part may come first."""
    prepared = expired()
    for some in (slice(None, None, 2), slice(1, None, 2), slice(None, 3)):
        store = HalfDeleting(prepared.copy(), some)
        with pytest.raises(Crash):
            collect(store, log_of(store), TWO, mode=Mode.ENFORCE, spread=partial(backwards, store))
        inner = store.inner
        assert isinstance(inner, AgingStore)
        assert_nothing_is_lost(inner)
        run(inner)
        assert_nothing_is_lost(inner)
        assert_swept(inner)


def test_retained_versions_stay_readable_through_indices() -> None:
    store = expired()
    done = collect(store, log_of(store), TWO, mode=Mode.ENFORCE)
    assert done.deleted[Kind.INDEX].objects > 2
    assert_nothing_is_lost(store)


def backwards(store: Store, work: Callable[[Store, T], R], items: Sequence[T], title: str) -> list[R]:
    """A spread that begins with the last item."""
    return [work(store, item) for item in reversed(items)][::-1]


class HalfDeleting(FaultStore):
    """Dies in its first deletion, of which only some keys are done."""

    def __init__(self, inner: Store, some: slice) -> None:
        super().__init__(inner)
        self._some = some

    def delete(self, keys: Iterable[str]) -> int:
        all_keys = [*keys]
        self.inner.delete(all_keys[self._some])
        self._dead = True
        raise Crash("in the middle of a batch")
