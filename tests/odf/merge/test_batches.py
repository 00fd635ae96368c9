"""The same stream in 1, 7 and 1,000 batches (as many in ``make soak``; the suite stops at 12), with late, duplicate,
corrected and retracted records.

What the ledger holds is the same for each strategy, is what the model says, and is the same in the table, in a table
that is made anew, and in the fold of the slices.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from kubothek.odf.spec.sources import (
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyChangelogStream,
    MergeStrategyLedger,
    MergeStrategySnapshot,
    MergeStrategyUpsertStream,
)
from kubothek.storage import StoreConfig, open_store
from kubothek.table.layout import Layout
from tests.odf.merge.world import MS, Model, Record, World, a_set, columns, moment, shown

pytestmark = pytest.mark.slow

SOAK = bool(os.environ.get("KUBOTHEK_SOAK"))
NAN = float("nan")
COLUMNS = columns(p=pa.int64(), k=pa.string(), v=pa.float32(), t=MS)
KEY = ("p", "k")
STRATEGIES: list[MergeStrategy] = [
    MergeStrategyAppend(),
    MergeStrategyLedger(primary_key=KEY),
    MergeStrategySnapshot(primary_key=KEY),
    MergeStrategySnapshot(primary_key=("k", "p"), compare_columns=("v",)),
    MergeStrategyUpsertStream(primary_key=KEY),
    MergeStrategyChangelogStream(primary_key=KEY),
]
NAMES = ["append", "ledger", "snapshot", "compared", "upserts", "changelog"]
DELETED = 7.5
"""The value of an event that deletes its key."""
LAYOUTS = [Layout(), Layout(partition_on=("p",), sort_by=("k",), target_file_bytes=1 << 12, row_group_rows=16)]


def world(root: Path, layout: Layout, **more: Any) -> World:
    root.mkdir(parents=True)
    return World(open_store(StoreConfig(root.as_uri())), COLUMNS, layout, **more)


def stream(random_: random.Random, count: int) -> list[Record]:
    """Records in the order in which they are heard of: some late, some twice, some again with other values."""
    rows: list[Record] = []
    for number in range(count):
        if rows and random_.random() < 0.3:
            again = random_.choice(rows)
            rows.append(
                again if random_.random() < 0.5 else {**again, "v": random_.choice([None, NAN, 0.0, -0.0, DELETED])}
            )
            continue
        late = random_.random() < 0.2
        rows.append(
            {
                "event_time": moment(number - (random_.randrange(50) if late else 0)),
                "p": random_.randrange(3),
                "k": random_.choice([None, "", "é/=?%", f"key {number}"]),
                "v": random_.choice([None, NAN, 1.5, float(number)]),
                "t": random_.choice([None, moment(number)]),
            }
        )
    return rows


def cut(rows: Sequence[Record], batches: int) -> list[Sequence[Record]]:
    size = max(1, -(-len(rows) // batches))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def snapshots(rows: Sequence[Record], batches: int) -> list[list[Record]]:
    """What a source says that shows its whole state, each time that it is asked: the last record of each key, without
    those that were deleted since."""
    found: list[list[Record]] = []
    known: dict[tuple[Any, ...], Record] = {}
    for batch in cut(rows, batches):
        for row in batch:
            key = (row["p"], row["k"])
            if row["v"] == DELETED:
                known.pop(key, None)
            else:
                known[key] = row
        found.append(list(known.values()))
    return found


def upserts(rows: Sequence[Record]) -> list[Record]:
    """The records as a source of upserts and deletions has them."""
    return [{**row, "op": int(row["v"] == DELETED)} for row in rows]


def changelog(rows: Sequence[Record], model: Model, now: datetime) -> list[Record]:
    """The changes that these upserts and deletions make, one after another, to what the model has."""
    copy = Model([*model.records])
    return [change for row in upserts(rows) for change in copy.ingest(STRATEGIES[4], [row], now)]


def given_to(strategy: MergeStrategy, rows: list[Record], model: Model, now: datetime) -> list[Record]:
    """The records as a source of this strategy has them."""
    match strategy:
        case MergeStrategySnapshot():
            return list({(each["p"], each["k"]): each for each in rows}.values())
        case MergeStrategyUpsertStream():
            return upserts(rows)
        case MergeStrategyChangelogStream():
            return changelog(rows, model, now)
        case _:
            return rows


def check(here: World, model: Model) -> tuple[list[Record], list[Record]]:
    """Slices are what the model says; the table is what stands of it, incrementally and made anew. Both are returned:
    each look costs a database.
    """
    records = here.records()
    assert shown(records) == shown(model.records, "op", "event_time", *COLUMNS.names)
    if not here.parts:
        assert not here.snapshot.exists
        return [], records
    expected = shown(model.state(), "event_time", *COLUMNS.names)
    by_slices, by_table = here.shown_by_slices(), here.shown_by_table()
    assert shown(by_slices) == shown(by_table) == expected
    before = here.snapshot.head.partitions
    here.rebuilt()
    assert not set(before) & set(here.snapshot.head.partitions)
    anew = here.shown_by_table()
    assert shown(anew) == expected
    offsets = [row["offset"] for row in by_slices]
    assert [row["offset"] for row in by_table] == [row["offset"] for row in anew] == offsets
    return anew, records


@pytest.mark.timeout(0 if SOAK else 600)
@pytest.mark.requirement("DAT-01", "COR-01")
@pytest.mark.parametrize("strategy", STRATEGIES, ids=NAMES)
def test_merged_stream_is_independent_of_batch_count(tmp_path: Path, strategy: MergeStrategy) -> None:
    random_ = random.Random(8)
    rows = stream(random_, 1000 if SOAK else 120)
    names = ["event_time", *COLUMNS.names]
    ends = {}
    many = 1000 if SOAK else 12  # each of them is a commit
    for number, batches in enumerate((1, 7, many)):
        here, model = world(tmp_path / str(batches), LAYOUTS[number % 2]), Model()
        taken = snapshots if isinstance(strategy, MergeStrategySnapshot) else cut
        for some in taken(rows, batches):
            batch, before = given_to(strategy, list(some), model, here.now), here.next
            if not batch and isinstance(strategy, MergeStrategyChangelogStream):
                continue  # it would have no column of operations
            here.ingest(strategy, batch)
            assert here.next - before == len(model.ingest(strategy, batch, here.now))
        by_table, records = check(here, model)
        compared = names if strategy is not STRATEGIES[3] else ["p", "k", "v"]
        ends[batches] = a_set(by_table, *compared)
        if isinstance(strategy, MergeStrategyUpsertStream | MergeStrategyChangelogStream):
            ends[batches] += a_set(records, "op", *names)
    assert ends[1] == ends[7] == ends[many]


row = st.fixed_dictionaries(
    {
        "event_time": st.none() | st.integers(0, 5).map(moment),
        "p": st.integers(0, 2),
        "k": st.sampled_from([None, "", "a", "b"]),
        "v": st.sampled_from([None, NAN, 0.0, -0.0, 1.5, DELETED]),
        "t": st.none() | st.integers(0, 2).map(moment),
    }
)


def twice(first: float, last: float) -> tuple[MergeStrategy, list[Record]]:
    """Two records of one key, which only Append lets in."""
    of_key: Record = {"event_time": moment(1), "p": 0, "k": "a", "t": None}
    return STRATEGIES[0], [{**of_key, "v": first}, {**of_key, "v": last}]


# The last record of the key is gone after one empty snapshot: what is left of it in the table is not the state.
@example(steps=[twice(1.5, 2.5), *[(STRATEGIES[2], [])] * 2], layout=LAYOUTS[0], table=True, in_memory=1 << 20)
# Records that differ by the sign of their zero alone are two: a retraction carries the one that it takes back.
@pytest.mark.requirement("MS-01", "MS-02", "MS-03", "MS-04", "MS-05", "MS-06", "MS-07", "MS-08", "MS-09")
@example(steps=[twice(0.0, -0.0), (STRATEGIES[2], [])], layout=LAYOUTS[0], table=True, in_memory=1 << 20)
@settings(
    max_examples=200 if SOAK else 8,
    deadline=None,
    derandomize=not SOAK,
    database=None,
    phases=tuple(Phase) if SOAK else (Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(st.tuples(st.sampled_from(STRATEGIES), st.lists(row, max_size=6)), min_size=1, max_size=5),
    layout=st.sampled_from(LAYOUTS),
    table=st.booleans(),
    in_memory=st.sampled_from([0, 1 << 20]),
)
def test_random_batches_of_all_strategies_match_model(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[MergeStrategy, list[Record]]],
    layout: Layout,
    table: bool,
    in_memory: int,
) -> None:
    here = world(tmp_path_factory.mktemp("steps") / "lake", layout, table=table, in_memory=in_memory)
    model = Model()
    for strategy, rows in steps:
        batch = given_to(strategy, rows, model, moment(1001 + here.times))
        if not batch and isinstance(strategy, MergeStrategyChangelogStream):
            continue  # it would have no column of operations
        here.ingest(strategy, batch, rows_a_slice=3)
        model.ingest(strategy, batch, here.now)
    if table:
        check(here, model)
    else:
        assert shown(here.records()) == shown(model.records, "op", "event_time", *COLUMNS.names)
