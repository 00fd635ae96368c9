"""Any history of changes, crashes and foreign writers leaves indices that say what the files do (hypothesis)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubothek.table.indexes import IndexChange, IndexKind, lookup
from kubothek.table.log import Change, Head, Operation
from kubothek.table.log.update_indexes import reindex
from tests.faultstore import Crash, Fault, FaultStore
from tests.table.log.indexed import log_of, replacing, truth
from tests.table.log.memory import MemoryStore
from tests.table.log.plateaulike import ForeignWriter
from tests.table.log.table import SCHEMA, appending, started, write

HAPPENINGS = (
    *("append", "replace", "delete", "back", "race", "foreign", "overwritten"),
    *("rebuild", "tidy", "crash", "native", "kartothek", "drop"),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(HAPPENINGS), st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


class History:
    """A table with an index on ``x``, and what can happen to it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.steps = 0
        started(log_of(self.store), "create").commit(Change(operation=Operation.CREATE, schema=SCHEMA))
        self.old: list[Head] = []

    @property
    def head(self) -> Head:
        return log_of(self.store).snapshot().head

    def step(self, what: str, values: list[int], which: int) -> None:
        self.steps += 1
        name, log, store = f"s{self.steps}", log_of(self.store), self.store
        labels = list(self.head.partitions)
        victim = labels[which : which + 1]
        self.old.append(self.head)
        match what:
            case "append":
                started(log, name).commit(appending(write(store, name, values)))
            case "replace":
                started(log, name).commit(replacing([write(store, name, values)], victim))
            case "delete":
                started(log, name).commit(replacing([], victim))
            case "back":
                before = self.old[min(which, len(self.old) - 1)]
                gone = [label for label in before.partitions if label not in labels]
                files = [write(store, label, self.values_of(before, label)) for label in gone]
                started(log, name).commit(replacing(files, []))
            case "race":
                late = started(log, f"{name}-late")
                started(log, name).commit(appending(write(store, name, values)))
                late.commit(appending(write(store, f"{name}-late", values)))
            case "foreign" | "overwritten":
                foreign = ForeignWriter(store, name, values, removes=victim, erases=which == 3)
                foreign.read()
                if what == "overwritten":
                    started(log, f"{name}-lost").commit(appending(write(store, f"{name}-lost", values)))
                foreign.write()
                log.settle()
            case "crash":
                dying = FaultStore(store, Fault(nth=which + 2))
                with suppress(Crash):
                    started(log_of(dying), name).commit(appending(write(dying, name, values)))
            case "rebuild" | "tidy":
                reindex(store, log, rebuild=what == "rebuild")
            case "drop":
                started(log, name).commit(Change(operation=Operation.INDEX, index=IndexChange(wanted={"x": None})))
            case kind:
                reindex(store, log, {"x": IndexKind(kind.capitalize())})

    def values_of(self, head: Head, label: str) -> list[int]:
        return [value for value, labels in truth(self.store, head).items() if label in labels]


@given(kind=st.sampled_from(["native", "kartothek"]), steps=STEPS)
@example(kind="native", steps=[("append", [0], 0), ("kartothek", [0], 0), ("foreign", [0], 3)])
@settings(max_examples=60, deadline=None)
@pytest.mark.slow
def test_indices_after_random_history_stay_exact_at_each_step(
    kind: str, steps: list[tuple[str, list[int], int]]
) -> None:
    history = History()
    for step in [(kind, [0], 0), *steps]:
        history.step(*step)
        log_of(history.store).settle()
        head = history.head
        expected = truth(history.store, head)
        if not head.index_state.kinds():
            continue
        for value in range(7):
            found = lookup(history.store, head, SCHEMA, "x", "=", [value])
            assert found is not None
            assert found & head.partitions.keys() == expected.get(value, set()), (step, value)
            if head.indices:
                assert found <= head.partitions.keys(), "plateau cannot read an index with labels of old files"
