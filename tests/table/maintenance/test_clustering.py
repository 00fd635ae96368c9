"""Compaction that puts rows in order: filters open fewer files, what is in order stays, and no row changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubothek.catalog import Dataset, Lake
from kubothek.errors import InputError, LayoutInvalid, RowsChanged
from kubothek.storage import Store
from kubothek.table.clustering import Clustering
from kubothek.table.log import PartitionFile
from kubothek.table.maintenance import rewriting
from kubothek.table.maintenance.content import Content
from kubothek.table.maintenance.grouping import RUN_TARGETS, Thresholds, bundles
from kubothek.table.maintenance.rewriting import Curve, in_order
from tests.faultstore import WRITES, Crash, Fault, FaultStore
from tests.table.maintenance.table import ROWS, files_of, filled
from tests.table.operations.deeds import copy, table_in
from tests.table.operations.table import everything, flights, labels, rows

pytestmark = pytest.mark.slow

COUNT = 8_000
"""Of points: each x and each y from 0 up once, in no order."""


@pytest.fixture
def points(store: Store) -> Dataset:
    """Sixteen files, each with points from everywhere."""
    dataset = Lake(store).create_dataset(
        "points", target_file_size=13_000, row_group_rows=250, compression="NONE", dictionary_columns=["x", "y"]
    )
    random = np.random.default_rng(5)
    x, y = random.permutation(COUNT), random.permutation(COUNT)
    for start in range(0, COUNT, 500):
        dataset.append(pa.table({"x": pa.array(x[start : start + 500]), "y": pa.array(y[start : start + 500])}))
    return dataset


def opened(dataset: Dataset, column: str) -> float:
    """How many files a filter on one value opens, in the mean."""
    return float(np.mean([len(dataset.plan(f"{column} = {value}").files) for value in range(100, COUNT, 790)]))


def content(dataset: Dataset) -> Content:
    return Content.of(dataset.scan())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "most"),
    [
        ({"sort_by": ["x"]}, {"x": 1.0}),
        ({"sort_by": ["y", "x"]}, {"y": 1.0}),
        ({"z_order_by": ["x", "y"]}, {"x": 6.0, "y": 6.0}),
    ],
    ids=["x", "y", "curve"],
)
def test_filter_on_clustered_column_opens_few_files(
    points: Dataset, order: dict[str, Any], most: dict[str, float]
) -> None:
    before = content(points)
    assert opened(points, "x") == opened(points, "y") == 16
    done = points.compact(**order)
    assert done.removed.files == 16
    assert len(labels(points)) >= 10
    for column, few in most.items():
        assert opened(points, column) <= few
    assert content(points) == before


def test_clustered_files_are_not_rewritten_again(points: Dataset, store: Store) -> None:
    points.compact(z_order_by=["x", "y"])
    before = everything(store)
    assert points.compact(z_order_by=["x", "y"]).version is None
    assert points.plan_compaction(z_order_by=["x", "y"]).bundles == ()
    assert everything(store) == before
    assert points.plan_compaction(z_order_by=["y", "x"]).rewritten.files == len(labels(points))
    assert points.plan_compaction(sort_by=["x", "y"]).rewritten.files == len(labels(points))


def test_appended_files_are_clustered_without_rewriting_large_runs(points: Dataset) -> None:
    points.compact(sort_by=["x"])
    large = set(labels(points))
    for start in range(2):
        points.append(pa.table({"x": [start, COUNT - start], "y": [0, 0]}))
    done = points.compact(sort_by=["x"])
    assert (done.removed.files, done.added.files) == (2, 1)
    assert large < set(labels(points))
    for start in range(2):
        points.append(pa.table({"x": [start, COUNT - start], "y": [1, 1]}))
    done = points.compact(sort_by=["x"])
    assert (done.removed.files, done.added.files) == (3, 1), "with the small run that is there"


def test_files_written_after_clustering_are_clustered_again(table: Dataset) -> None:
    table.compact(sort_by=["carrier"])
    assert table.plan_compaction(sort_by=["carrier"]).bundles == ()
    table.update({"delay": 99}, where="month = 1 AND delay = 11", row_level=True)
    table.append(flights((1, "ZZ", 5)))
    (bundle,) = table.plan_compaction(sort_by=["carrier"]).bundles
    assert (bundle.group.path, len(bundle.files)) == ("month=1", 2)


def test_clustered_files_declare_sort_order_and_keep_bucket(store: Store) -> None:
    options: dict[str, Any] = {"sort_by": ["delay"], "bucket_by": ["carrier"], "num_buckets": 2}
    table = filled(Lake(store), **options)
    table.compact(sort_by=["carrier", "delay"])
    assert rows(table) == ROWS
    assert dict(table.plan("month = 1 AND carrier = 'A1'").steps)["partition keys"] == 1
    ordered = (
        Clustering(("carrier", "delay"))
        .read(pa.array(labels(table), pa.string()))
        .is_valid()
        .to_numpy(zero_copy_only=False)
    )
    assert sum(ordered) >= 2
    for key in compress(labels(table).values(), ordered):
        with store.open(key) as source:
            found = pq.ParquetFile(pa.PythonFile(source, mode="r"))
            carriers = found.read()["carrier"].to_pylist()
            (first, second) = found.metadata.row_group(0).sorting_columns
        assert (first.column_index, second.column_index) == (0, 1)
        assert carriers == sorted(carriers, key=lambda carrier: (carrier is None, carrier))
    assert table.compact(sort_by=["carrier", "delay"]).version is None


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"sort_by": ["nope"]}, r"sortBy names column 'nope'; the columns are month, carrier, delay"),
        ({"z_order_by": ["delay", "month"]}, r"zOrderBy names partition column 'month'"),
        ({"z_order_by": ["delay", "delay"]}, r"zOrderBy names column 'delay' twice"),
        ({"z_order_by": [f"c{n}" for n in range(9)]}, r"zOrderBy names 9 columns; name 1 to 8"),
    ],
)
def test_clustering_by_invalid_columns_is_refused_before_writing(
    table: Dataset, store: Store, order: dict[str, Any], says: str
) -> None:
    before = everything(store)
    with pytest.raises(LayoutInvalid, match=says):
        table.compact(**order)
    with pytest.raises(LayoutInvalid, match=says):
        table.plan_compaction(**order)
    with pytest.raises(InputError, match="one order"):
        table.compact(sort_by=["delay"], z_order_by=["delay"])
    assert everything(store) == before


def test_clustering_by_list_column_is_refused(store: Store) -> None:
    dataset = Lake(store).create_dataset("nested", schema={"tags": "list<string>"})
    with pytest.raises(LayoutInvalid, match="only plain values"):
        dataset.compact(sort_by=["tags"])


def test_row_lost_while_sorting_raises_rows_changed(
    table: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(store)

    def forgetful(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in in_order(*arguments):
            yield batch.slice(1)

    monkeypatch.setattr(rewriting, "in_order", forgetful)
    with pytest.raises(RowsChanged, match="Nothing was committed"):
        table.compact(sort_by=["delay"])
    assert {key for key in before if "metadata" in key} == {key for key in everything(store) if "metadata" in key}
    assert (table.version, rows(table)) == (5, ROWS)


@pytest.mark.slow
def test_clustering_that_crashes_is_atomic_and_completes_on_rerun(tmp_path: Path, store: Store) -> None:
    filled(Lake(store))
    root = tmp_path / "lake"

    def compact(on: Store) -> Any:
        return table_in(on).compact(z_order_by=["delay", "carrier"], id="mine")

    counting = FaultStore(copy(root, tmp_path / "counted"))
    compact(counting)
    writes = sum(call.name in WRITES for call in counting.calls)
    for nth in range(1, writes + 1):
        again = copy(root, tmp_path / str(nth))
        with pytest.raises(Crash):
            compact(FaultStore(again, Fault(WRITES, nth)))
        assert rows(table_in(again)) == ROWS, nth
        assert compact(again).version == 6, nth
        assert (rows(table_in(again)), set(files_of(table_in(again)).values())) == (ROWS, {1}), nth


def test_clustering_skips_files_replaced_by_concurrent_commit(table: Dataset, store: Store) -> None:
    taking = FaultStore(store)

    def before_call(name: str, key: str) -> None:
        if name == "put" and key.startswith("flights/table/month=1/"):
            taking.before_call = None
            Dataset(Lake(store), "flights").replace(flights((1, "RR", 1)), where="month = 1")

    taking.before_call = before_call
    done = Dataset(Lake(taking), "flights").compact(sort_by=["delay"])
    assert done.skipped == ("month=1",)
    assert rows(table) == sorted([row for row in ROWS if row[0] != 1] + [(1, "RR", 1)], key=repr)


# --- which files, and which of them together -------------------------------------------------------------------------

TARGET = 100
ORDER = Clustering(("n",))


def file(name: str, size: int) -> PartitionFile:
    return PartitionFile(name, f"d/table/{name}.parquet", size, size)


@given(st.lists(st.lists(st.integers(1, 400), min_size=1, max_size=20), min_size=1, max_size=15))
def test_clustering_keeps_run_count_and_rewrite_volume_bounded(arrivals: list[list[int]]) -> None:
    limit = RUN_TARGETS * TARGET
    files: list[PartitionFile] = []
    rewritten = 0
    for number, sizes in enumerate(arrivals):
        files += [file(f"{number}-{n}", size) for n, size in enumerate(sizes)]
        cut = bundles(files, None, Thresholds(target_bytes=TARGET), ORDER)
        for n, bundle in enumerate(cut):
            assert bundle.bytes <= limit or len(bundle.files) == 1
            rewritten += bundle.bytes
            taken, mark = set(bundle.files), ORDER.new_mark()
            files = [each for each in files if each not in taken]
            whole, rest = divmod(bundle.bytes, TARGET)
            parts = [TARGET] * whole + [rest] * bool(rest)
            files += [file(f"r{number}-{n}-{p}{mark}", size) for p, size in enumerate(parts)]
        if cut:
            assert bundles(files, None, Thresholds(target_bytes=TARGET), ORDER) == ()
            assert None not in runs_of(files)
    total = sum(each.bytes for each in files)
    assert len({*runs_of(files)} - {None}) <= 2 * total / limit + 12
    assert rewritten <= 12 * total


def runs_of(files: list[PartitionFile]) -> list[str | None]:
    return ORDER.read(pa.array([each.label for each in files], pa.string())).to_pylist()


def test_clustering_mark_of_other_order_or_bucket_is_not_recognized() -> None:
    mark = ORDER.new_mark()
    names = pa.array([f"a{mark}", f"a{mark}-0123456789ab-7", "a", f"a{mark}x", f"p={mark}/b"], pa.string())
    runs = ORDER.read(names).to_pylist()
    assert runs[0] == runs[1] == mark[-12:]
    assert runs[2:] == [None, None, None]
    for other in (Clustering(("n",), curve=True), Clustering(("n", "m")), Clustering(("m",))):
        assert other.read(names).null_count == len(names)


# --- the order itself ------------------------------------------------------------------------------------------------

VALUES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([-(2**63), 2**63 - 1])),
        st.one_of(st.none(), st.text("ab\u00e9", max_size=3)),
        st.one_of(st.none(), st.floats(width=16)),
    ),
    max_size=50,
)


def batches(found: Sequence[tuple[Any, ...]], step: int) -> list[pa.RecordBatch]:
    types: dict[str, pa.DataType] = {"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "n": pa.int64()}
    lines = [(*row, n) for n, row in enumerate(found)]
    columns = list(zip(*lines, strict=True)) if lines else [()] * 4
    table = pa.table(dict(zip(types, columns, strict=True)), pa.schema(types))
    return table.to_batches(max_chunksize=step) if found else []


@pytest.mark.slow
@given(VALUES, st.integers(1, 20), st.sampled_from([1, 10_000]), st.booleans())
def test_clustering_sort_returns_each_row_once_in_order(
    found: list[tuple[Any, ...]], step: int, piece: int, curve: bool
) -> None:
    order = Clustering(("i", "s", "f"), curve)
    given_ = batches(found, step)

    def columns(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return (batch.select(list(names)) for batch in given_)

    sorted_ = list(in_order(lambda: iter(given_), columns, len(found), order, piece_bytes=piece))
    out = pa.Table.from_batches(sorted_, given_[0].schema) if given_ else pa.table({"n": []})
    numbers: list[Any] = out["n"].to_pylist()
    assert sorted(numbers) == list(range(len(found)))
    if curve:
        places = Curve.through(columns(order.by), len(found), order.by)
        seen: list[Any] = [place for batch in sorted_ for place in places.positions(batch).to_pylist()]
        assert seen == sorted(seen)
    elif given_:
        whole = pa.Table.from_batches(given_).sort_by([(name, "ascending") for name in "isf"])
        assert repr(out.drop_columns(["n"]).to_pylist()) == repr(whole.drop_columns(["n"]).to_pylist())


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1, max_size=60))
def test_curve_through_one_column_sorts_nulls_first(values: list[float | None]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.float64())], names=["f"])
    places: list[Any] = Curve.through([batch], len(values), ["f"]).positions(batch).to_pylist()
    by_place = [values[n] for n in sorted(range(len(values)), key=lambda n: (places[n], n))]
    expected = sorted(values, key=lambda v: (v is not None, v != v, v if v is not None and v == v else 0))
    assert [repr(v) for v in by_place] == [repr(v) for v in expected]
    assert all((place == 0) == (value is None) for place, value in zip(places, values, strict=True))


def test_curve_weighs_column_of_few_values_like_column_of_many() -> None:
    flag, number = np.arange(4096) % 2 == 1, np.arange(4096) // 2
    batch = pa.RecordBatch.from_arrays([pa.array(number), pa.array(flag)], names=["n", "b"])
    places = Curve.through([batch], 4096, ["n", "b"]).positions(batch).to_numpy()
    halves = np.argsort(places, kind="stable").reshape(4, -1)
    for part in halves:
        assert not 0.02 < flag[part].mean() < 0.98
        assert np.ptp(number[part]) < 1100


def test_curve_from_sample_approximates_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubothek.table.maintenance.rewriting._SAMPLE", 512)
    values = np.random.default_rng(1).normal(size=20_000)
    pieces = pa.table({"v": pa.array(values)}).to_batches(max_chunksize=777)
    curve = Curve.through(pieces, len(values), ["v"])
    assert len(curve.cuts["v"]) <= 512
    order = np.argsort(np.concatenate([curve.positions(piece).to_numpy() for piece in pieces]), kind="stable")
    displaced = np.abs(np.argsort(np.argsort(values)) - np.argsort(order))
    assert displaced.max() < 400
