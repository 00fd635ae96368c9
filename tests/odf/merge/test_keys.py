"""Keys are found in the table by its index, its partitions and its files, and all ways find the same ones."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kubothek.odf.spec.sources import MergeStrategyLedger
from kubothek.odf.view.keys import KeySearch, in_table
from kubothek.storage import Store
from kubothek.table.indexes.lookup import values_held
from kubothek.table.layout import Layout
from tests.odf.merge.world import World, columns, moment

pytestmark = pytest.mark.slow

NAN = float("nan")
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [5, -7, 0, None, 2**31 - 1]),
    (pa.uint64(), [0, 2**63, 2**64 - 1, 7, None]),
    (pa.float32(), [0.0, -1.5, NAN, None, 0.1]),
    (pa.float64(), [-0.0, NAN, float("inf"), None, 1e300]),
    (pa.string(), ["", "ä", "a" * 200, None, "a" * 199]),
    (pa.binary(2), [b"\0\0", b"ab", b"\xff\xff", None, b"zz"]),
    (pa.bool_(), [True, None, False, None, None]),
    (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31), None, date(2024, 2, 29)]),
    (pa.timestamp("ms", "UTC"), [moment(0), moment(-(10**9)), moment(10**9), None, moment(1)]),
    (pa.decimal128(10, 2), [Decimal("-0.01"), Decimal("0"), Decimal("99999999.99"), None, Decimal("1")]),
    (pa.time32("ms"), [0, 1, 86_399_999, None, 500]),
]


@pytest.mark.requirement("MS-03")
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_key_search_finds_values_of_every_type(store: Store, kind: pa.DataType, values: list[Any]) -> None:
    world = World(store, columns(p=pa.int64(), k=kind), Layout(partition_on=("p",)))
    alone, both = MergeStrategyLedger(primary_key=("k",)), MergeStrategyLedger(primary_key=("p", "k"))
    given = list(dict.fromkeys(values[:4]))
    for part in (given[:2], given[2:]):
        assert world.ingest(alone, [{"event_time": moment(0), "p": 1, "k": value} for value in part]) == len(part)
    again = [{"event_time": moment(0), "p": 1, "k": value} for value in values]
    new = len(set(values) - set(given))
    assert world.merged(alone, again)[1].rows_in_all == new
    assert world.merged(both, again)[1].rows_in_all == new
    assert world.merged(both, [{**row, "p": 2} for row in again])[1].rows_in_all == len(set(values))


@pytest.mark.requirement("MS-03")
def test_key_search_ignores_index_entries_of_deleted_files(store: Store) -> None:
    world = World(store, columns(k=pa.int64()))
    ledger = MergeStrategyLedger(primary_key=("k",))
    world.ingest(ledger, [{"event_time": moment(0), "k": k} for k in range(10)])
    before = world.snapshot
    world.ingest(ledger, [{"event_time": moment(0), "k": k} for k in range(10, 20)])
    snapshot = world.snapshot
    wanted = pa.array([3, 13, 23], pa.int64())
    assert snapshot.schema is not None
    (first,) = before.head.partitions
    (second,) = set(snapshot.head.partitions) - {first}
    for labels, expected in (({first, second}, [3, 13]), ({first}, [3]), ({second}, [13]), (set(), [])):
        held = values_held(store, snapshot.head, snapshot.schema, "k", wanted, labels)
        assert held is not None
        assert (held[0].to_pylist(), held[1]) == (expected, frozenset())
    assert values_held(store, snapshot.head, snapshot.schema, "event_time", wanted, {first}) is None


@pytest.mark.requirement("MS-03")
def test_key_search_with_damaged_index_falls_back_to_files(store: Store) -> None:
    world = World(store, columns(k=pa.int64()))
    ledger = MergeStrategyLedger(primary_key=("k",))
    world.ingest(ledger, [{"event_time": moment(0), "k": k} for k in range(10)])
    for info in list(store.list("ledger/")):
        if "/index/" in info.key:
            store.put(info.key, b"damaged")
    with world.scratch() as scratch:
        search = KeySearch(pa.table({"k": pa.array([9, 10], pa.int64())}), scratch)
        in_table(store, world.snapshot, search)
    assert np.array_equal(search.found, [True, False])
