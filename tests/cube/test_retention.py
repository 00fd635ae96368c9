"""A collector works on one dataset at a time; a version of the cube that a policy keeps stays whole all the same."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest

from kubothek.cube.handle import Cube
from kubothek.cube.log import CubeLog
from kubothek.errors import TooSlow, VersionNotFound
from kubothek.gc import Mode, Retention, collect
from kubothek.table.log import DatasetLog
from tests.cube.small import PREFIX, SPEC, State, extra, seed, values_of
from tests.faultstore import FaultStore
from tests.gc.aging import GRACE, AgingStore

pytestmark = pytest.mark.slow


def cube_in(store: AgingStore) -> Cube:
    return Cube(store, CubeLog(store, PREFIX, clock=lambda: store.now), SPEC)


def at(store: AgingStore, version: int) -> State:
    members = cube_in(store).snapshot(version).members
    return {name: values_of(store, member.snapshot) for name, member in members.items()}


def grown() -> tuple[AgingStore, dict[int, State]]:
    """A cube with a version a day; a dataset comes, and goes."""
    store, cube = AgingStore(), None
    cube = cube_in(store)
    cube.build({"seed": seed([1]), "extra": extra([1])})
    store.pass_by(GRACE)
    cube.extend({"more": pa.table({"x": [1], "m": [5]})}, partition_on={"more": []})
    store.pass_by(GRACE)
    cube.append({"seed": seed([2])})
    store.pass_by(GRACE)
    cube.delete(["more"])
    store.pass_by(GRACE)
    cube.update({"extra": extra([2])}, remove="p = 0")
    store.pass_by(3 * GRACE)
    return store, {version: at(store, version) for version in range(1, 6)}


@pytest.mark.parametrize("kept", [1, 3, 10])
def test_cube_version_is_retained_completely_or_expired(kept: int) -> None:
    store, before = grown()
    for name in ("seed", "extra", "more"):
        log = DatasetLog(store, f"{PREFIX}++{name}", clock=lambda: store.now)
        collect(store, log, [Retention(versions=kept)], mode=Mode.ENFORCE)
        store.pass_by(timedelta(hours=1))
        collect(store, log, [Retention(versions=kept)], mode=Mode.ENFORCE)
    assert at(store, cube_in(store).snapshot().version) == before[5]
    for version in range(max(1, 6 - kept), 6):
        assert at(store, version) == before[version], version
    if kept == 1:
        with pytest.raises(VersionNotFound, match="expired"):
            at(store, 2)


def test_cube_writer_slower_than_grace_period_commits_nothing() -> None:
    """Its oldest file may be a collector's by now."""
    store = AgingStore()
    cube_in(store).build({"seed": seed([1]), "extra": extra([1])})
    slow = FaultStore(store)
    slow.before_call = lambda _, key: store.pass_by(GRACE) if key.startswith("geo++seed/table/p=") else None
    with pytest.raises(TooSlow, match=r"geo\+\+extra.*Nothing was committed"):
        Cube(slow, CubeLog(slow, PREFIX, clock=lambda: store.now)).append({"extra": extra([2]), "seed": seed([2])})
    assert cube_in(store).snapshot().version == 1
    assert at(store, 1) == {"seed": [1], "extra": [1]}
    cube_in(store).append({"seed": seed([2])})
