"""Ledger merges of a few rows into histories of different lengths: what they cost is to depend on the rows alone.

The bar: 10,000 rows into 10 million cost at most three times what they cost into 100,000. Half of the rows are known
already: those of the last hours again, as most sources send them (``recent``), or any that ever were, by a key that
says nothing of when (``anywhere``), which is the worst there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from kubothek.odf.dataset import Root, again, create
from kubothek.odf.dataset import Table as View
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import MergeStrategyAppend, MergeStrategyLedger, ReadStepParquet
from kubothek.table.indexes import IndexKind
from kubothek.table.log import DatasetLog

BATCH = 10_000
_AT_ONCE = 1_000_000
_MS = pa.timestamp("ms", "UTC")
_MINUTE = 60_000
_OWNER = OwnerKey(bytes(range(32)))
_LOAD = "load"

Numbers = npt.NDArray[np.int64]


def run(place: Place, histories: Sequence[int], *, rounds: int = 5, seconds: float = 60) -> Iterator[Table]:
    """Two tables: of keys that ascend with time, and of keys that do not."""
    for name, known in (("recent", _recent), ("anywhere", _anywhere)):
        cases = []
        for rows in histories:
            ledger = Ledger.of(place, f"{name}-{rows}", rows, scattered=known is _anywhere)
            cases.append(Case(f"into {rows:,}", partial(ledger.merge, known), ledger.prepare))
        title = f"Ledger merge of {BATCH:,} rows, half of them known ({name}), {place.name}"
        yield compare(title, cases, rounds=rounds, seconds=seconds)


@dataclass
class Ledger:
    """A root dataset with a history; ``records`` says how many keys it has."""

    root: Root
    records: int
    scattered: bool
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    rows: pa.Table | None = None

    @classmethod
    def of(cls, place: Place, name: str, records: int, *, scattered: bool) -> Ledger:
        """One with so many records."""
        store = place.root(name).lake().store
        sources = tuple(
            AddPushSource(source_name=source, read=ReadStepParquet(), merge=merge)
            for source, merge in (("default", MergeStrategyLedger(primary_key=("id",))), (_LOAD, MergeStrategyAppend()))
        )
        snapshot = DatasetSnapshot(name=name, kind=DatasetKind.ROOT, metadata=sources)
        view = View(indices={"id": IndexKind.NATIVE})  # which the first merge would make otherwise
        ledger = cls(create(store, DatasetLog(store, name), snapshot, _OWNER, table=view), 0, scattered)
        while ledger.records < records:
            new = np.arange(ledger.records, min(records, ledger.records + _AT_ONCE))
            ledger.root.push(again(ledger._made(new)), _LOAD)
            ledger.records += len(new)
        return ledger

    def prepare(self) -> None:
        """A process that merges again and again keeps what it read; this one has just started."""
        self.root = Root(self.root.store, self.root.log)

    def merge(self, known: Callable[[Ledger], Numbers]) -> None:
        """What is timed: the whole commit."""
        new = np.arange(self.records, self.records + BATCH // 2)
        done = self.root.push(again(self._made(np.concatenate([known(self), new]))))
        assert done.records == len(new), "a merge takes the new ones, and no others"
        self.records += len(new)

    def _made(self, numbers: Numbers) -> pa.Table:
        """The records of these numbers, each always the same."""
        keys = numbers * 0x5851F42D4C957F2D if self.scattered else numbers  # odd, so that no two become one
        columns: dict[str, Any] = {
            "event_time": pa.array(numbers * _MINUTE, pa.int64()).cast(_MS),
            "id": pa.array(keys, pa.int64()),
            "amount": pa.array(numbers % 997 / 7),
            "carrier": pa.array([f"C{n:02d}" for n in range(20)]).take(numbers % 20),
        }
        return pa.table(columns)


def _recent(ledger: Ledger) -> Numbers:
    return np.arange(ledger.records - BATCH // 2, ledger.records)


def _anywhere(ledger: Ledger) -> Numbers:
    return ledger.random.choice(ledger.records, BATCH // 2, replace=False).astype(np.int64)
