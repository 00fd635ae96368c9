"""Changes of 100 versions row by row, beside deltalake-rs' change data feed of the same commits.

Delta writes the changed rows of an update a second time, into files that its feed reads. Kubothek writes nothing for a
feed: it compares the files that differ. So two histories are read: one of appends, whose rows both read from data
files, and one where every fifth commit updates some rows instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from kubothek.catalog import Dataset, Lake

VERSIONS = 100
ROWS = 10_000
"""Of each append."""
_UPDATED = 100
_EVERY = 5
_TYPES: dict[str, pa.DataType] = {
    "carrier": pa.string(),
    "day": pa.int64(),
    "delay": pa.float64(),
    "flight": pa.int64(),
}
_SCHEMA = pa.schema(_TYPES)
_ENABLE = {"delta.enableChangeDataFeed": "true"}


@dataclass
class History:
    """The same commits in a dataset and in a Delta table.

    ``changed``  the number of rows of the feed
    """

    lake: Lake
    ours: Dataset
    url: str
    changed: int = 0

    @classmethod
    def of(cls, root: Root, *, updates: bool) -> History:
        """One of :data:`VERSIONS` commits after the creation, partitioned by day."""
        lake = root.lake()
        ours = lake.create_dataset("flights", ["day"], _SCHEMA)
        url = f"{root.url}/delta"
        DeltaTable.create(url, _SCHEMA, partition_by=["day"], configuration=_ENABLE)
        history = cls(lake, ours, url)
        for number in range(1, VERSIONS + 1):
            if updates and number % _EVERY == 0:
                history._update(number - 1)
            else:
                history._append(number)
        return history

    def _append(self, number: int) -> None:
        rows = _rows(number)
        self.ours.append(rows)
        write_deltalake(self.url, rows, mode="append")
        self.changed += rows.num_rows

    def _update(self, number: int) -> None:
        where = f"day = {number} AND flight < {number * ROWS + _UPDATED}"
        self.ours.update({"delay": -1.0}, where=where, row_level=True)
        DeltaTable(self.url).update(updates={"delay": "-1.0"}, predicate=where)
        self.changed += 2 * _UPDATED

    def read_ours(self) -> None:
        """What is timed: a feed of all commits after the creation, of a dataset that was opened anew."""
        self._require(sum(batch.num_rows for batch in self.lake.dataset("flights").changes(1)))

    def read_delta(self) -> None:
        """The same by deltalake-rs."""
        feed = DeltaTable(self.url).load_cdf(starting_version=1)
        self._require(sum(batch.num_rows for batch in feed))

    def _require(self, rows: int) -> None:
        if rows != self.changed:
            raise RuntimeError(f"{rows} rows of a feed instead of {self.changed}")


def run(place: Place, *, rounds: int, seconds: float) -> Iterator[Table]:
    """A table of each history."""
    for name, updates in (("appends", False), ("appends and updates", True)):
        history = History.of(place.root(name.replace(" ", "-")), updates=updates)
        cases = [Case("Kubothek", history.read_ours), Case("deltalake-rs", history.read_delta)]
        title = f"Changes of {VERSIONS} versions ({name}), {history.changed:,} rows, {place.name}"
        yield compare(title, cases, rounds=rounds, seconds=seconds)


def _rows(number: int) -> pa.Table:
    flights = range(number * ROWS, (number + 1) * ROWS)
    columns: list[pa.Array[Any]] = [
        pa.array([f"C{flight % 20:02d}" for flight in flights]),
        pa.array([number] * ROWS, pa.int64()),
        pa.array([flight % 997 / 7 for flight in flights]),
        pa.array(flights, pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)
