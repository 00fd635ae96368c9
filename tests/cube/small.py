"""A small cube for tests of its transaction: two datasets, in a store in memory, read without the query engine."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from kubothek.cube.handle import Cube, CubeCommitResult
from kubothek.cube.log import CubeLog
from kubothek.storage import Store
from kubothek.table.log import Claim, DatasetLog, Snapshot
from kubothek.table.log.model.paths import partition_path
from kubothek.table.log.multi.head import head_key
from kubothek.table.log.multi.spec import CubeSpec
from tests.faultstore import WRITES, Call, FaultStore

PREFIX = "geo"
SPEC = CubeSpec.of(PREFIX, dimension_columns="x", partition_columns="p")

State = Mapping[str, list[int]]
"""The payload of each dataset, in the order in which readers meet it."""


def cube_in(store: Store, claim: Claim | None = None) -> Cube:
    return Cube(store, CubeLog(store, PREFIX, claim_of=lambda _: claim), SPEC)


def seed(cells: Sequence[int], values: Sequence[int] | None = None, p: int = 0) -> pa.Table:
    """Cells of one partition, with a payload."""
    return pa.table({"x": cells, "p": [p] * len(cells), "v": list(values or cells)})


def extra(cells: Sequence[int], values: Sequence[int] | None = None, p: int = 0) -> pa.Table:
    return pa.table({"x": cells, "p": [p] * len(cells), "w": list(values or cells)})


def build(store: Store, commit_id: str | None = "build") -> CubeCommitResult:
    return cube_in(store).build({"seed": seed([1, 2]), "extra": extra([1])}, id=commit_id)


def append(store: Store, commit_id: str | None = "append", cell: int = 3) -> CubeCommitResult:
    return cube_in(store).append({"seed": seed([cell]), "extra": extra([cell])}, id=commit_id)


def state(store: Store) -> State:
    """What readers of the cube see now."""
    return {name: values_of(store, member.snapshot) for name, member in cube_in(store).snapshot().members.items()}


def raw(store: Store, name: str) -> list[int]:
    """What the own head of a member says."""
    return values_of(store, DatasetLog(store, f"{PREFIX}++{name}").snapshot(raw=True))


def values_of(store: Store, snapshot: Snapshot) -> list[int]:
    column = {"geo++seed": "v", "geo++extra": "w", "geo++more": "m"}[snapshot.head.uuid]
    return [value for key in snapshot.head.files().values() for value in values_in(store.get(key), column)]


@cache
def values_in(data: bytes, column: str) -> list[int]:
    """A column of a data file; tests look at the same files again and again."""
    return [int(value) for value in pq.read_table(io.BytesIO(data), columns=[column]).column(0).to_numpy()]


def at_write(
    store: FaultStore, moment: int, act: Callable[[], object], watch: Callable[[], None] | None = None
) -> None:
    """Let ``act`` happen once, ahead of the call of this number (from 0) that changes the store; watch at each call."""
    count, lock = iter(range(1 << 30)), Lock()

    def meanwhile(call: str, _: str) -> None:
        if watch is not None:
            watch()
        if call in WRITES:
            with lock:
                number = next(count)
            if number == moment:
                act()

    store.before_call = meanwhile


def writes_of(calls: Iterable[Call]) -> int:
    """How many calls change the store."""
    return sum(call.name in WRITES for call in calls)


def intent_left(store: Store) -> bool:
    return b'"intent"' in store.get(head_key(PREFIX))


def operations(store: Store) -> list[str]:
    """What the cube's history shows, oldest first."""
    return [record.operation for record in cube_in(store).history()][::-1]


def paths(store: Store, name: str) -> list[str]:
    head = cube_in(store).snapshot().member(name).snapshot.head
    return [partition_path(key) for key in head.files().values()]
