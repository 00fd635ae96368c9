"""Several writers of one cube: each commit happens once, whoever carries it out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kubothek.cube.log import CubeAlreadyApplied
from kubothek.errors import IdReused
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.log import DatasetLog
from tests.cube.small import append, at_write, build, cube_in, intent_left, operations, seed, state, writes_of
from tests.faultstore import FaultStore
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("other", ["append", "tag", "same"])
def test_commit_during_any_call_of_another_commit_lands_once(other: str) -> None:
    """At each call that changes the store, another commit comes in between, from the beginning to the end."""
    prepared = MemoryStore()
    build(prepared)
    counting = FaultStore(prepared.copy())
    append(counting)
    for moment in range(writes_of(counting.calls)):
        inner = prepared.copy()
        store = FaultStore(inner)

        def act(inner: Store = inner) -> None:
            if other == "tag":
                DatasetLog(inner, "geo++extra").tag("here", 1)
            else:
                append(inner, "append" if other == "same" else "other", 3 if other == "same" else 4)

        at_write(store, moment, act)
        append(store)
        assert not intent_left(inner)
        found = state(inner)
        cells = [3, 4] if other == "append" else [3]
        assert sorted(found["seed"]) == [1, 2, *cells], moment
        assert sorted(found["extra"]) == [1, *cells], moment
        names = operations(inner)
        assert names.count("Append") == len(cells)
        assert names.count("Tag") == (other == "tag")
        assert "Undone" not in names


def test_concurrent_cube_writers_and_taggers_all_land(tmp_path: Path) -> None:
    config = StoreConfig(tmp_path.as_uri())
    build(open_store(config))

    def write(number: int) -> None:
        store = open_store(config)
        append(store, f"n{number}", 10 + number)
        DatasetLog(store, "geo++seed").tag(f"t{number}", 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))
    found = state(open_store(config))
    assert sorted(found["seed"]) == [1, 2, *range(10, 18)]
    assert sorted(found["extra"]) == [1, *range(10, 18)]
    assert operations(open_store(config)).count("Append") == 8
    assert len(DatasetLog(open_store(config), "geo++seed").tags()) == 8


def test_cube_commit_id_reused_for_another_change_is_refused() -> None:
    store = MemoryStore()
    build(store)
    append(store, "one")
    assert isinstance(append(store, "one"), CubeAlreadyApplied)
    with pytest.raises(IdReused):
        cube_in(store).remove_partitions("p = 0", id="one")
    assert state(store) == {"seed": [1, 2, 3], "extra": [1, 3]}
    with pytest.raises(IdReused):
        cube_in(store).append({"seed": seed([8])}, id="one")
