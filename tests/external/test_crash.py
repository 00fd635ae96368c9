"""A refresh that dies anywhere loses no row of any query, and the next one makes all whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubothek.external import state
from kubothek.external.location import open_location
from kubothek.external.refresh import MOST_PARTS, Place, describe_here, refresh
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.skipping.model import SkippingState
from tests.external.conftest import DEFINITIONS, FILES, Trips
from tests.faultstore import Crash, FaultStore, every_crash

pytestmark = pytest.mark.slow

SMALLER = SkippingState(DEFINITIONS.indices[:1])


def filled(root: Path) -> Trips:
    """Files that are described; since then one went, one changed and one came."""
    root.mkdir()
    trips = Trips(root)
    for number in range(3):
        trips.put(number)
    trips.refresh()
    (trips.root / FILES.prefix / "part-0.parquet").unlink()
    trips.put(7, name="part-1.parquet")
    trips.put(4)
    return trips


def refreshed(store: Store, definitions: SkippingState) -> None:
    place = Place(store, store, "team.trips")
    refresh(place, FILES, definitions, build=lambda _bytes: describe_here(place))


def found(trips: Trips, number: int) -> bool:
    """Whether a query for the first id of a file opens one that has it."""
    place = open_location(trips.store, "trips")
    rows = place.dataset(place.plan(parse(f"id = {10 * number}"))).to_table()
    return 10 * number in rows.column("id").to_pylist()


@pytest.mark.parametrize("definitions", [DEFINITIONS, SMALLER], ids=["refresh", "other definitions"])
def test_refresh_after_crash_at_any_write_loses_no_rows(tmp_path: Path, definitions: SkippingState) -> None:
    counting = FaultStore(filled(tmp_path / "counting").store)
    refreshed(counting, definitions)
    crashes = list(every_crash(counting.calls))
    assert len(crashes) >= 6
    for number, fault in enumerate(crashes):
        trips = filled(tmp_path / str(number))
        with pytest.raises(Crash):
            refreshed(FaultStore(trips.store, fault), definitions)
        for there in (2, 4, 7):
            assert found(trips, there), fault
        refreshed(trips.store, definitions)
        for there in (2, 4, 7):
            assert found(trips, there), fault
        place = open_location(trips.store, "trips")
        assert place.known.described == 3, fault
        assert len(place.plan(parse("id = 20")).keys) == 1, fault
        index = state.read(trips.store, "team.trips").index
        assert index is not None
        named = {key for part in index.parts for key in part.keys}
        objects = {info.key for info in trips.store.list(state.root("team.trips"))}
        assert named <= objects
        assert len(objects) <= 3 * MOST_PARTS + 4, "what a crash left is swept by a refresh that changes something"


def test_file_changed_during_refresh_is_left_out(trips: Trips) -> None:
    key = trips.put(1)
    store = FaultStore(trips.store)

    def replaced(name: str, at: str) -> None:
        if name == "stat" and at == key:  # the look after reading
            store.before_call = None
            (trips.root / trips.put(2, name="fresh.parquet")).rename(trips.root / key)

    store.before_call = replaced
    place = Place(store, trips.store, "team.trips")
    done = refresh(place, FILES, DEFINITIONS, build=lambda _bytes: describe_here(place))
    assert (done.index.described, done.index.left_out) == (0, (f"{key}: it changed while it was read",))
    assert found(trips, 2)
