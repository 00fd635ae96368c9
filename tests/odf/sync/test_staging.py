"""Objects that were received wait together until they enter: each by itself, not too many, and none that is another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Event

import pytest

from kubothek.errors import ChainCorrupt, LakeError, StoreUnavailable
from kubothek.odf.named import Kind, Named
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.sync.transfer import Staging
from kubothek.odf.sync.verified import Arriving
from kubothek.storage import Store
from kubothek.storage.sha3_multibuffer import Lanes
from tests.odf.dataset.planes import LAYOUT
from tests.testcluster.base import wait_until

pytestmark = pytest.mark.slow

PATIENCE = 60.0
MOMENT = 0.3


class Given:
    """Objects in memory as a repository that streams them; ``wrong`` ones have other bytes than their hash says."""

    url = "memory:"

    def __init__(self, count: int, wrong: tuple[int, ...] = (), size: int = 5_000) -> None:
        self.bodies = {}
        for number in range(count):
            body = b"%d" % number * size
            named = Named(Kind.DATA, Multihash.sha3(body), len(body))
            self.bodies[named] = b"?" + body[1:] if number in wrong else body
        self.named = [*self.bodies]

    @contextmanager
    def stream(self, named: Named, start: int) -> Iterator[BytesIO]:
        yield BytesIO(self.bodies[named][start : named.size])


class Lane(Lanes):
    """Lets objects be hashed only once it is told to, and counts how many are at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.may = Event()
        self.began = Event()
        self.counts: list[int] = []

    def digests(self, streams):  # type: ignore[no-untyped-def] # as there
        self.counts.append(len(streams))
        self.began.set()
        assert self.may.wait(PATIENCE)
        return super().digests(streams)


def receive(staging: Staging, given: Given, store: Store, named: Named) -> None:
    place = store.stage(named.key(LAYOUT))
    assert place is not None
    staging.receive(Arriving(given, named, lambda size: None), place)  # type: ignore[arg-type] # all that it needs


def there(store: Store) -> set[str]:
    return {info.key for info in store.list(LAYOUT.root)}


def left(store: Store) -> list[Path]:
    """What was staged and is still there."""
    return [*Path(store.url.removeprefix("file://"), ".kubothek/.file/tmp").iterdir()]


def test_staged_objects_enter_in_bounded_groups(store: Store) -> None:
    given, lanes, entered = Given(50), Lane(), list[Named]()
    with ThreadPoolExecutor(2) as threads, Staging(lanes, entered.append, 3) as staging:
        first, *others = given.named
        receive(staging, given, store, first)
        assert lanes.began.wait(PATIENCE)
        done = [threads.submit(receive, staging, given, store, each) for each in others]
        # One is hashed, three wait, and two threads have one each.
        wait_until(lambda: len(left(store)) == 1 + 3 + 2, PATIENCE, "the sixth")
        waited = wait(done, MOMENT)
        assert (len(waited.done), len(left(store)), there(store)) == (3, 6, set())
        lanes.may.set()
        for each in done:
            each.result(PATIENCE)
    assert max(lanes.counts) <= 3
    assert sum(lanes.counts) == 50
    assert sorted(map(str, entered)) == sorted(map(str, given.named))
    assert {store.get(each.key(LAYOUT)) for each in given.named} == {*given.bodies.values()}
    assert left(store) == []


def test_staged_group_with_wrong_object_stores_valid_ones_only(store: Store) -> None:
    given, lanes, entered = Given(8, wrong=(2, 4)), Lane(), list[Named]()

    def all_of_them() -> None:
        with Staging(lanes, entered.append, 8) as staging:
            receive(staging, given, store, given.named[0])
            assert lanes.began.wait(PATIENCE)
            for each in given.named[1:6]:  # which are hashed at once
                receive(staging, given, store, each)
            lanes.may.set()
            wait_until(lambda: len(entered) == 4, PATIENCE, "the fourth")
            for each in itertools.cycle(given.named[6:]):  # until it is told
                receive(staging, given, store, each)

    with pytest.raises(ChainCorrupt, match=f"{given.named[2].hash}.*not those that the hash names"):
        all_of_them()
    right = {given.named[number] for number in (0, 1, 3, 5)}
    assert right <= {*entered}
    assert not {given.named[number].key(LAYOUT) for number in (2, 4)} & there(store)
    assert left(store) == []


def test_staging_with_wrong_last_object_raises_at_end(store: Store) -> None:
    given = Given(1, wrong=(0,))
    with pytest.raises(ChainCorrupt), Staging(Lanes(), lambda named: None, 1) as staging:
        receive(staging, given, store, given.named[0])
    assert there(store) == set()
    assert left(store) == []


def test_staging_disk_error_names_object(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is met by another thread than the one that received it."""

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    given = Given(1)
    store.put("makes/directories", b"")  # which are synced as well
    monkeypatch.setattr("os.fsync", fail)
    with (
        pytest.raises(StoreUnavailable, match=f"{given.named[0].hash}.*No space left"),
        Staging(Lanes(), lambda named: None, 1) as staging,
    ):
        receive(staging, given, store, given.named[0])
    assert left(store) == []


def test_staging_of_incomplete_object_leaves_no_file(store: Store) -> None:
    given = Given(1)
    named = given.named[0]
    given.bodies[named] = b"short"
    with pytest.raises(LakeError, match="ends after 5 bytes"), Staging(Lanes(), lambda named: None, 1) as staging:
        receive(staging, given, store, named)
    assert there(store) == set()
    assert left(store) == []
