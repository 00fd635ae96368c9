"""The table as the view of the chain: what a commit touches of it, how it is made anew and looked back at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kubothek.errors import MergeTooLarge, NotALedger, PartitionInvalid, RowsLost, VersionNotFound
from kubothek.odf.spec.multihash import Multihash
from kubothek.odf.spec.sources import MergeStrategyAppend, MergeStrategyLedger, MergeStrategySnapshot
from kubothek.odf.validation.state import Vocabulary
from kubothek.odf.view import as_at, as_of, keys, wanted_indices
from kubothek.storage import Store
from kubothek.table.expressions import parse
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import Transaction
from kubothek.table.operations import delete, rewrite_here
from kubothek.table.scratch import Scratch
from tests.odf.merge.world import MS, Record, World, columns, moment, shown

pytestmark = pytest.mark.slow

COLUMNS = columns(p=pa.int64(), k=pa.int64(), v=pa.string())
APPEND = MergeStrategyAppend()
LEDGER = MergeStrategyLedger(primary_key=("k",))
SNAPSHOT = MergeStrategySnapshot(primary_key=("p", "k"))
BY_P = Layout(partition_on=("p",), sort_by=("k",))


def rows(p: int, ks: range, v: str = "x", at: int = 0) -> list[Record]:
    return [{"event_time": moment(at), "p": p, "k": k, "v": v} for k in ks]


@pytest.mark.requirement("COR-01")
def test_table_commit_rewrites_only_files_with_retracted_rows(store: Store) -> None:
    world = World(store, COLUMNS, BY_P)
    whole = [*rows(1, range(50)), *rows(2, range(50)), *rows(3, range(50)), *rows(4, range(1))]
    world.ingest(SNAPSHOT, whole)
    before = set(world.snapshot.head.partitions)
    assert len(before) == 4
    # One row of partition 2 changes, one moves from 3 to 5, the only one of 4 goes.
    changed = [*rows(1, range(50)), *rows(2, range(49)), *rows(2, range(49, 50), "y"), *rows(3, range(1, 50))]
    assert world.ingest(SNAPSHOT, [*changed, *rows(5, range(1))]) == 5
    after = set(world.snapshot.head.partitions)
    assert {label.split("/")[0] for label in before & after} == {"p=1"}
    assert {label.split("/")[0] for label in after - before} == {"p=2", "p=3", "p=5"}
    assert len(after) == 4
    assert shown(world.shown_by_table()) == shown(world.shown_by_slices())
    assert world.snapshot.totals is not None
    assert world.snapshot.totals.rows == len(changed) + 1


@pytest.mark.requirement("OP-02")
def test_table_commit_on_diverged_table_is_refused(store: Store) -> None:
    world = World(store, COLUMNS)
    world.ingest(SNAPSHOT, rows(1, range(5)))
    with world.scratch() as scratch:
        merged = world.merge(SNAPSHOT, rows(1, range(4)), scratch)
        numbered = list(world.numbered(merged))
    started = world.log.begin("elsewhere", "1" * 64)
    assert isinstance(started, Transaction)
    started.commit(delete(store, started.snapshot, parse("k = 4"), rewriter=rewrite_here(store)))
    with pytest.raises(RowsLost, match="1 records of 'ledger' were to be taken back, but 0 of them"):
        world.write(numbered)
    world.rebuilt()
    world.write(numbered)
    assert [row["k"] for row in world.shown_by_table()] == [0, 1, 2, 3]


@pytest.mark.requirement("MS-03")
def test_key_lookup_reads_index_and_only_candidate_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(store, COLUMNS)
    both = MergeStrategyLedger(primary_key=("k", "v"))
    for start in range(0, 400, 100):
        world.ingest(both, rows(1, range(start, start + 100)))
    assert world.snapshot.head.index_state.kinds() == {"k": IndexKind.NATIVE}
    assert len(world.snapshot.head.partitions) == 4
    read: list[str] = []
    _note_files_opened(monkeypatch, read)
    # All new: the index has none of the values.
    assert world.merged(both, rows(1, range(1000, 1010)))[1].rows_in_all == 10
    assert read == []
    # Some are known: the one file that the index names.
    assert world.merged(both, [*rows(1, range(150, 155)), *rows(1, range(155, 157), "other")])[1].rows_in_all == 2
    assert len(set(read)) == 1
    # Of one column the index knows all values, whatever there is in the files.
    read.clear()
    assert world.merged(LEDGER, rows(1, range(395, 405)))[1].rows_in_all == 5
    assert read == []


def _note_files_opened(monkeypatch: pytest.MonkeyPatch, read: list[str]) -> None:
    real: Any = vars(keys)["open_files"]

    def watched(filesystem: Any, names: Any, schema: Any, **more: Any) -> Any:
        found = list(names)
        read.extend(found)
        return real(filesystem, found, schema, **more)

    monkeypatch.setattr(keys, "open_files", watched)


@pytest.mark.requirement("MS-02")
def test_merge_key_gets_index_only_for_supported_column() -> None:
    schema = columns(k=pa.string(), n=pa.list_(pa.int64()), d=pa.decimal128(5, 2))
    assert wanted_indices(MergeStrategyLedger(primary_key=("k", "n")), schema, ()) == {"k": IndexKind.NATIVE}
    assert wanted_indices(MergeStrategyLedger(primary_key=("k",)), schema, ("k",)) == {}
    assert wanted_indices(MergeStrategyLedger(primary_key=("d",)), schema, ()) == {}
    assert wanted_indices(MergeStrategyLedger(primary_key=("new",)), schema, ()) == {}
    assert wanted_indices(SNAPSHOT, schema, ()) == {}


@pytest.mark.requirement("EVO-01")
def test_column_added_later_is_null_in_older_rows(store: Store) -> None:
    world = World(store, columns(p=pa.int64(), k=pa.int64()))
    snapshot = MergeStrategySnapshot(primary_key=("k",))
    world.ingest(snapshot, [{"event_time": moment(0), "p": 1, "k": k} for k in range(4)])
    world.data = columns(p=pa.int64(), k=pa.int64(), z=pa.float32(), a=pa.list_(MS))
    later: list[Record] = [{"event_time": moment(0), "p": 1, "k": k, "z": 1.5 if k > 1 else None} for k in range(3)]
    later[0]["a"] = [moment(3), None]
    assert world.ingest(snapshot, later) == 5
    expected = [(1, None, None), (0, None, (moment(3), None)), (2, 1.5, None)]
    assert shown(world.shown_by_table(), "k", "z", "a") == expected
    assert shown(world.shown_by_slices(), "k", "z", "a") == expected
    world.rebuilt()
    assert shown(world.shown_by_table(), "k", "z", "a") == expected
    assert world.ingest(snapshot, later) == 0


@pytest.mark.requirement("PJ-01")
def test_as_of_returns_known_records_and_as_at_returns_past_events(store: Store) -> None:
    world = World(store, COLUMNS, BY_P)
    with world.scratch() as scratch, pytest.raises(NotALedger, match="no schema yet"):
        as_of(world.history, scratch)
    tables, times = [], []
    corrected = [*rows(1, range(1), "corrected", at=5), *rows(1, range(1, 2), "moved", at=30)]
    for given in (
        [*rows(1, range(2), "old", at=10), *rows(2, range(1), "old", at=20)],
        [*corrected, *rows(2, range(1), "old", at=20)],
        corrected,
    ):
        world.ingest(SNAPSHOT, given)
        tables.append(world.snapshot)
        times.append(world.now)
    seen = []
    for table, time in zip(tables, times, strict=True):
        history = world.history.until_time(time)
        with world.scratch() as scratch:
            from_slices = as_of(history, scratch).read_all().to_pylist()
            from_table = as_of(history, scratch, table=table).read_all().sort_by("offset").to_pylist()
        assert from_slices == from_table
        assert list(from_table[0]) == ["offset", "system_time", "event_time", "p", "k", "v"]
        seen.append([(row["p"], row["k"], row["v"]) for row in from_table])
    assert seen == [
        [(1, 0, "old"), (1, 1, "old"), (2, 0, "old")],
        [(2, 0, "old"), (1, 0, "corrected"), (1, 1, "moved")],
        [(1, 0, "corrected"), (1, 1, "moved")],
    ]
    blocks = [part.block for part in world.parts]
    assert world.history.until_block(blocks[0], blocks) == world.history.until_time(times[0])
    with pytest.raises(VersionNotFound, match="is not one of this chain"):
        world.history.until_block(Multihash.sha3(b"other"), blocks)

    def happened(at: int, version: int) -> list[str]:
        history = world.history.until_time(times[version])
        with world.scratch() as scratch:
            by_slices: list[Any] = as_at(history, moment(at), scratch).read_all().column("v").to_pylist()
            table = as_at(history, moment(at).replace(tzinfo=None), scratch, table=tables[version]).read_all()
        assert table.sort_by("offset").column("v").to_pylist() == by_slices
        return by_slices

    assert happened(10, 0) == ["old", "old"]
    assert happened(10, 2) == ["corrected"]
    assert happened(4, 2) == []
    assert happened(30, 1) == ["old", "corrected", "moved"]


@pytest.mark.requirement("SV-01")
def test_records_written_with_old_names_have_current_names(store: Store) -> None:
    world = World(store, COLUMNS, table=False)
    world.ingest(SNAPSHOT, rows(1, range(3)))
    world.names = Vocabulary(offset="nr", op="what", system_time="known", event_time="when")
    renamed = [{"when": row["event_time"], "p": 1, "k": row["k"], "v": "y"} for row in rows(1, range(1, 3))]
    assert world.ingest(SNAPSHOT, renamed) == 5
    found = world.shown_by_slices()
    assert list(found[0]) == ["nr", "known", "when", "p", "k", "v"]
    assert shown(found, "nr", "k", "v", "when") == [(5, 1, "y", moment(0)), (7, 2, "y", moment(0))]


@pytest.mark.requirement("SL-12")
def test_slices_and_tables_accept_specification_types(store: Store) -> None:
    world = World(store, COLUMNS, BY_P, types=(pa.uint64(), pa.uint8()))
    world.ingest(SNAPSHOT, [*rows(1, range(4)), *rows(2, range(4))])
    assert world.ingest(SNAPSHOT, [*rows(1, range(3)), *rows(2, range(4), "y")]) == 9
    assert world.ingest(MergeStrategyLedger(primary_key=("p", "k")), rows(1, range(2, 6))) == 2
    expected = shown(world.shown_by_slices())
    assert len(expected) == 9
    assert shown(world.shown_by_table()) == expected
    world.rebuilt()
    assert shown(world.shown_by_table()) == expected
    assert world.ingest(SNAPSHOT, [*rows(1, range(6)), *rows(2, range(3), "y")]) == 2
    # Later slices may have the other types.
    world.types = (pa.int64(), pa.int32())
    assert world.ingest(SNAPSHOT, rows(1, range(3))) == 6
    assert shown(world.shown_by_table()) == shown(world.shown_by_slices())


def test_null_in_partition_column_is_refused(store: Store) -> None:
    world = World(store, COLUMNS, BY_P)
    with pytest.raises(PartitionInvalid, match="'p'"):
        world.ingest(APPEND, [{"event_time": moment(0), "p": None, "k": 1, "v": "x"}])
    assert not world.snapshot.exists


def test_merge_beyond_scratch_limit_raises_merge_too_large(store: Store) -> None:
    world = World(store, COLUMNS)
    times: Any = pa.array([None] * 200_000, MS)
    many = pa.table([times, pa.array(range(200_000))], names=["event_time", "k"])
    with Scratch(memory="1MB") as scratch, pytest.raises(MergeTooLarge, match="more room than 1MB"):
        world.merge(LEDGER, many, scratch)
