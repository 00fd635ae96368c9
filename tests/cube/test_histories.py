"""Random histories of a cube, with crashes and other programs in between, against a model of lists.

``KUBOTHEK_SOAK=1`` (``make soak``) tries hundreds, new ones each time; the suite tries the same few always.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.cube.state import Member
from kubothek.storage import Store
from kubothek.table.log import DatasetLog
from tests.cube.foreign import append_as_kartothek
from tests.cube.small import PREFIX, build, cube_in, intent_left
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.table.log.memory import MemoryStore

pytestmark = pytest.mark.slow

SOAK: Final = bool(os.environ.get("KUBOTHEK_SOAK"))
COLUMNS: Final = {"seed": "v", "extra": "w"}
PARTITIONS: Final = (0, 1)

Rows = tuple[tuple[int, int], ...]
"""Partition and value of each row, in the order in which readers meet them."""
Model = dict[str, Rows]


@dataclass(frozen=True)
class Verb:
    """One step: what is done to which partition of which datasets, and at which of its writes the process dies."""

    name: str
    datasets: tuple[str, ...]
    partition: int
    crash: int | None
    after: bool

    def model(self, before: Model, value: int) -> Model:
        """What readers see once it is done."""
        rows = ((self.partition, value),)

        def without(found: Rows) -> Rows:
            return tuple(row for row in found if row[0] != self.partition)

        changes: dict[str, Callable[[Rows], Rows]] = {
            "append": lambda found: found + rows,
            "foreign": lambda found: found + rows,
            "update": lambda found: without(found) + rows,
            "remove": without,
            "overwrite": lambda _: rows,
            "tag": lambda found: found,
        }
        changed = changes[self.name]
        return before | {name: changed(before[name]) for name in self.datasets}

    def act(self, store: Store, number: int, value: int) -> None:
        """Do it, under the id of this number."""
        cube, commit_id = cube_in(store), f"step-{number}"
        data = {name: pa.table({"x": [value], "p": [self.partition], COLUMNS[name]: [value]}) for name in self.datasets}
        if self.name == "append":
            cube.append(data, id=commit_id)
        elif self.name == "update":
            cube.update(data, remove=f"p = {self.partition}", id=commit_id)
        elif self.name == "remove":
            cube.remove_partitions(f"p = {self.partition}", datasets=self.datasets, id=commit_id)
        elif self.name == "overwrite":
            cube.build(data, overwrite=True, id=commit_id)
        elif self.name == "foreign":
            append_as_kartothek(store, self.datasets[0], data[self.datasets[0]], self.partition)
        else:
            DatasetLog(store, f"{PREFIX}++{self.datasets[0]}").tag("t", 1)


BOTH: Final = ("seed", "extra")


@st.composite
def verbs(draw: st.DrawFn) -> Verb:
    name = draw(st.sampled_from(["append", "update", "remove", "overwrite", "foreign", "tag"]))
    one = draw(st.sampled_from([("seed",), ("extra",)]))
    datasets = (
        BOTH if name == "overwrite" else one if name in ("foreign", "tag") else draw(st.sampled_from([BOTH, one]))
    )
    crash = None if name == "foreign" else draw(st.none() | st.integers(1, 14))
    return Verb(name, datasets, draw(st.sampled_from(PARTITIONS)), crash, draw(st.booleans()))


@pytest.mark.timeout(0 if SOAK else 600)
@settings(max_examples=300 if SOAK else 12)
@given(st.lists(verbs(), max_size=30 if SOAK else 8))
def test_random_cube_history_matches_model(steps: list[Verb]) -> None:
    store = MemoryStore()
    build(store)
    model: Model = {"seed": ((0, 1), (0, 2)), "extra": ((0, 1),)}
    history = {1: model}
    for number, step in enumerate(steps):
        value = 100 + number
        before, model = model, step.model(model, value)
        if step.crash is not None:
            faulty = FaultStore(store, Fault(WRITES, step.crash, after=step.after))
            try:
                step.act(faulty, number, value)
            except Crash:
                assert rows(store) in (before, model), "the one cube or the other"
        step.act(store, number, value)
        if step.name == "foreign":
            assert rows(store) == model, "shown before it is adopted"
            cube_in(store).settle()
        assert rows(store) == model
        assert not intent_left(store)
        history[cube_in(store).snapshot().version] = model
    for version, expected in history.items():
        assert rows(store, version) == expected


def rows(store: Store, version: int | None = None) -> Model:
    """What readers see."""
    members = cube_in(store).snapshot(version).members
    return {name: tuple(_rows(store, member)) for name, member in members.items()}


def _rows(store: Store, member: Member) -> Iterator[tuple[int, int]]:
    for key in member.snapshot.head.files().values():
        partition = int(key.partition("p=")[2].partition("/")[0])
        values = pq.read_table(io.BytesIO(store.get(key)), columns=[COLUMNS[member.name]]).column(0)
        yield from ((partition, int(value)) for value in values.to_numpy())
