"""Merges of a few rows into histories of different lengths: what they cost is to depend on the rows alone.

The bar: 10,000 rows into 10 million cost at most three times what they cost into 100,000. Half of the rows are known
already: those of the last hours again, as most sources send them (``recent``), or any that ever were, by a key that
says nothing of when (``anywhere``), which is the worst there is. A Ledger and a stream of upserts leave those as they
are; a changelog corrects them, which rewrites the files of the table that hold them, so it has recent ones only. Beside
those of any time is the time that it takes to decode what has a known key on each page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from kubothek.odf.dataset import Root, again, create
from kubothek.odf.dataset import Table as View
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategyUpsertStream,
    ReadStepParquet,
)
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.indexes import IndexKind
from kubothek.table.indexes.native import read_manifest
from kubothek.table.log import DatasetLog

BATCH = 10_000
_AT_ONCE = 1_000_000
_MS = pa.timestamp("ms", "UTC")
_MINUTE = 60_000
_OWNER = OwnerKey(bytes(range(32)))
_LOAD = "load"
ADDED, CORRECTED = (0,), (2, 3)

Numbers = npt.NDArray[np.int64]


def run(place: Place, histories: Sequence[int], *, rounds: int = 5, seconds: float = 60) -> Iterator[Table]:
    """Tables for each strategy: of keys that ascend with time, and of keys that do not."""
    for strategy, name, known in (
        (MergeStrategyLedger, "recent", _recent),
        (MergeStrategyLedger, "anywhere", _anywhere),
        (MergeStrategyUpsertStream, "recent", _recent),
        (MergeStrategyUpsertStream, "anywhere", _anywhere),
        (MergeStrategyChangelogStream, "recent", _recent),
    ):
        cases = []
        for rows in histories:
            where = f"{strategy.kind}-{name}-{rows}"
            ledger = Ledger.of(place, where, rows, strategy(primary_key=("id",)), scattered=known is _anywhere)
            cases.append(Case(f"into {rows:,}", partial(ledger.merge, known), ledger.prepare))
            if known is _anywhere:
                cases.append(Case(f"decoding {rows:,}", ledger.decode))
        title = f"{strategy.kind} merge of {BATCH:,} rows, half of them known ({name}), {place.name}"
        yield compare(title, cases, rounds=rounds, seconds=seconds)


@dataclass
class Ledger:
    """A root dataset with a history; ``records`` says how many keys it has."""

    root: Root
    records: int
    scattered: bool
    strategy: MergeStrategy
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    rows: pa.Table | None = None

    @classmethod
    def of(cls, place: Place, name: str, records: int, strategy: MergeStrategy, *, scattered: bool) -> Ledger:
        """One with so many records. Streams load it themselves: they have to know that it has each key once."""
        store = place.root(name).lake().store
        sources = tuple(
            AddPushSource(source_name=source, read=ReadStepParquet(), merge=merge)
            for source, merge in (("default", strategy), (_LOAD, MergeStrategyAppend()))
        )
        load = _LOAD if isinstance(strategy, MergeStrategyLedger) else "default"
        snapshot = DatasetSnapshot(name=name, kind=DatasetKind.ROOT, metadata=sources)
        view = View(indices={"id": IndexKind.NATIVE})  # which the first merge would make otherwise
        ledger = cls(create(store, DatasetLog(store, name), snapshot, _OWNER, table=view), 0, scattered, strategy)
        while ledger.records < records:
            new = np.arange(ledger.records, min(records, ledger.records + _AT_ONCE))
            ledger.root.push(again(ledger._events(new, ADDED)), load)
            ledger.records += len(new)
        return ledger

    def prepare(self) -> None:
        """A process that merges again and again keeps what it read; this one has just started."""
        self.root = Root(self.root.store, self.root.log)

    def merge(self, known: Callable[[Ledger], Numbers]) -> None:
        """What is timed: the whole commit."""
        new, old = np.arange(self.records, self.records + BATCH // 2), known(self)
        if isinstance(self.strategy, MergeStrategyChangelogStream):
            old = np.repeat(old[: BATCH // 4], 2)
            batch = pa.concat_tables([self._events(old, CORRECTED), self._events(new, ADDED)])
            expected = BATCH
        else:
            batch, expected = self._events(np.concatenate([old, new]), ADDED), len(new)
        assert self.root.push(again(batch)).records == expected, "a merge takes what is new, and nothing else"
        self.records += len(new)

    def decode(self) -> None:
        """The floor of a merge of keys that are anywhere: pyarrow decodes what has one on each page, and nothing else.

        This is the index and, for upserts, the columns of the table that are compared or returned.
        """
        head, files = self.root.log.snapshot().head, arrow_filesystem(self.root.store)
        for file in read_manifest(self.root.store, head.index_state.native["id"]).files:
            pq.read_table(file.key, filesystem=files, read_dictionary=["label"], use_threads=False)
        if isinstance(self.strategy, MergeStrategyUpsertStream):
            columns = ["offset", *self._made(np.zeros(0, np.int64)).schema.names]
            for key in head.files().values():
                pq.read_table(key, columns=columns, filesystem=files, partitioning=None, use_threads=False)

    def _events(self, numbers: Numbers, ops: Sequence[int]) -> pa.Table:
        """The records, with operations by turns if the strategy takes any."""
        made = self._made(numbers)
        if isinstance(self.strategy, MergeStrategyLedger):
            return made
        return made.append_column("op", pa.array(np.resize(ops, len(numbers)).astype(np.int32)))

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
