"""A ledger's commit beside a table's commit of the same rows.

Both partition, sort into files, hash and commit the same rows, which are in memory. The ledger writes them twice, as
slices of the chain and as files of its table, and hashes the slices' records as well. The bar of issue 8 is 1.5 times
the table's commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from kubothek.odf.dataset import Table as View
from kubothek.odf.dataset import again, create
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepParquet
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog

LAYOUT: Final = Layout(partition_on=("year", "month"))
INDEXED: Final = ("carrier", "customer")
_YEARS: Final = 2
_numbers = count()


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Table]:
    """A table with the indices of ``bulk``, and one without any."""
    given = make_rows(rows)
    for indexed in (INDEXED, ()):
        view = View(layout=LAYOUT, indices=dict.fromkeys(indexed, IndexKind.NATIVE))
        cases = [
            Case("table", partial(to_table, place, given, indexed)),
            Case("ledger with its table", partial(to_ledger, place, given, view)),
            Case("ledger alone", partial(to_ledger, place, given, None)),
        ]
        size = f"{rows:,} rows, {given.nbytes / 1e6:,.0f} MB in memory, {len(indexed)} indices"
        yield compare(f"commit {size}, {place.name}", cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)


def make_rows(rows: int) -> pa.Table:
    """Rows in the order of their event times, as sources give them."""
    random = np.random.default_rng(1)
    step = _YEARS * 365 * 86_400_000 // rows
    times = 1_577_836_800_000 + np.arange(rows, dtype=np.int64) * step
    dates = times.astype("datetime64[ms]")
    columns: dict[str, Any] = {
        "event_time": pa.array(times, pa.timestamp("ms", "UTC")),
        "year": dates.astype("datetime64[Y]").astype(np.int64) + 1970,
        "month": dates.astype("datetime64[M]").astype(np.int64) % 12 + 1,
        "carrier": pa.array([f"C{n:02d}" for n in range(20)]).take(random.integers(0, 20, rows)),
        "customer": random.integers(0, 100_000, rows),
        "amount": random.normal(100, 30, rows).round(2),
        "distance": random.integers(0, 5000, rows),
    }
    return pa.table(columns)


def to_table(place: Place, rows: pa.Table, indexed: tuple[str, ...]) -> None:
    """Create and fill a dataset."""
    lake = place.root(f"table-{next(_numbers)}").lake()
    lake.create_dataset("bulk", partition_on=LAYOUT.partition_on, indices=indexed).append(rows)


def to_ledger(place: Place, rows: pa.Table, view: View | None) -> None:
    """Create a ledger and push the rows."""
    store: Store = place.root(f"ledger-{next(_numbers)}").lake().store
    source = AddPushSource(source_name="default", read=ReadStepParquet(), merge=MergeStrategyAppend())
    snapshot = DatasetSnapshot(name="bulk", kind=DatasetKind.ROOT, metadata=(source,))
    create(store, DatasetLog(store, "bulk"), snapshot, OwnerKey.new(), table=view).push(again(rows))
