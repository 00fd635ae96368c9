"""Data files that several threads encode: the same files, errors and limits as with one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubothek.errors import StoreUnavailable
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table import files, ordered_calls
from kubothek.table.files import ParquetPart, PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile
from kubothek.table.schema import normalise
from tests.sampling import SOAK

ROWS = pa.table(
    {
        "k": [n % 7 for n in range(3000)],
        "p": ["a" if n % 5 else "b" for n in range(3000)],
        "t": [f"text {n * 31 % 97}" for n in range(3000)],
        "x": [n * 7919 % 3001 for n in range(3000)],
        "n": [None if n % 3 else float(n) for n in range(3000)],
    }
)


@pytest.fixture(autouse=True)
def _threads_for_small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_calls, "_SMALL", 0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(StoreConfig(tmp_path.as_uri()))


class Recorder:
    """An observer that records its calls; ``fail`` raises the error of one of them."""

    def __init__(self, fail: Callable[[int], None] = lambda number: None) -> None:
        self.observed: list[tuple[str, pa.Table]] = []
        self.wrote_keys: list[str] = []
        self._fail = fail
        self._thread = threading.get_ident()

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        assert threading.get_ident() == self._thread
        self._fail(len(self.observed))
        self.observed.append((label, pa.Table.from_batches(batches)))

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        assert threading.get_ident() == self._thread
        assert footer.num_rows == sum(rows.num_rows for at, rows in self.observed if at == label)
        self.wrote_keys.append(key)


class InMemory:
    """A store that only takes objects, whose hashes the writer knows."""

    url = "memory:"

    def put_many(self, objects: Sequence[tuple[str, memoryview]]) -> None:
        pass

    def flush(self, keys: Iterable[str]) -> None:
        pass

    def delete(self, keys: Sequence[str]) -> None:
        raise AssertionError("there is no error")


def numbered() -> SimpleNamespace:
    """Names of files that are the same in each run."""
    numbers = iter(range(1 << 30))
    return SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(numbers):032x}"))


def written(
    store: Any, tables: Sequence[pa.Table], layout: Layout, cores: int, **options: Any
) -> tuple[list[PartitionFile], Recorder]:
    recorder = Recorder()
    schema = normalise(tables[0].schema, layout.partition_on)
    with (
        pytest.MonkeyPatch.context() as patch,
        PartitionedWriter(store, "ds", schema, layout, observer=recorder, cores=cores, **options) as writer,
    ):
        patch.setattr(files, "uuids", numbered())
        for number, table in enumerate(tables):
            writer.write(table)
            if number == 3:
                writer.flush()
        return writer.finish(), recorder


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    bucketed = draw(st.booleans())
    return Layout(
        partition_on=draw(st.sampled_from([(), ("k",), ("k", "p")])),
        sort_by=draw(st.sampled_from([(), ("x",), ("n", "x")])),
        bucket_by=("x",) if bucketed else (),
        num_buckets=3 if bucketed else 0,
        target_file_bytes=draw(st.sampled_from([20_000, 60_000, 1 << 27])),
        row_group_rows=draw(st.sampled_from([100, 400, 1 << 20])),
        compression=draw(st.sampled_from(["ZSTD", "NONE"])),
    )


@settings(max_examples=1000 if SOAK else 40, deadline=None)
@given(
    layouts(),
    st.lists(st.tuples(st.integers(0, 2900), st.integers(1, 1500)), min_size=1, max_size=6),
    st.sampled_from([60_000, 200_000, 1 << 28]),
    st.integers(2, 4),
)
def test_files_are_the_same_with_any_number_of_cores(
    layout: Layout, slices: list[tuple[int, int]], budget: int, cores: int
) -> None:
    tables = [ROWS.slice(start, length) for start, length in slices]
    (serial, serial_calls), (parallel, parallel_calls) = (
        written(InMemory(), tables, layout, count, memory_budget=budget) for count in (1, cores)
    )
    assert parallel == serial, "labels, rows, sizes and hashes, in their order"
    assert parallel_calls.observed == serial_calls.observed
    assert parallel_calls.wrote_keys == serial_calls.wrote_keys == [file.key for file in serial]
    assert sum(file.rows for file in serial) == sum(table.num_rows for table in tables)


# --- errors while row groups are being encoded ---------------------------------------------------------------


def threads_of_writers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(("encode", "upload"))}


@pytest.fixture
def ended() -> Iterator[None]:
    """No writer's thread remains after the test."""
    before = threads_of_writers()
    yield
    assert threads_of_writers() <= before


def write_small_files(store: Store, recorder: Recorder | None = None, budget: int = 1 << 28) -> None:
    layout = Layout(partition_on=("k",), row_group_rows=100, target_file_bytes=3000)
    schema = normalise(ROWS.schema, ("k",))
    with PartitionedWriter(store, "ds", schema, layout, observer=recorder, cores=3, memory_budget=budget) as writer:
        for start in range(0, ROWS.num_rows, 500):
            writer.write(ROWS.slice(start, 500))
        writer.finish()


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("failing", [0, 5, 20])
@pytest.mark.parametrize("budget", [20_000, 1 << 28])
def test_failed_encoding_fails_writer_and_leaves_no_file(
    store: Store, monkeypatch: pytest.MonkeyPatch, failing: int, budget: int
) -> None:
    lock, calls = threading.Lock(), []
    write = ParquetPart.write

    def faulty(part: ParquetPart, batches: Sequence[pa.RecordBatch]) -> None:
        with lock:
            calls.append(part.label)
            fails = len(calls) > failing
        if fails:
            raise pa.ArrowInvalid("cannot encode this")
        write(part, batches)

    monkeypatch.setattr(ParquetPart, "write", faulty)
    with pytest.raises(pa.ArrowInvalid, match="cannot encode"):
        write_small_files(store, budget=budget)
    assert list(store.list("")) == []


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("failing", [0, 5, 20])
def test_observer_error_fails_writer_while_others_are_encoded(store: Store, failing: int) -> None:
    def fail(number: int) -> None:
        if number == failing:
            raise StoreUnavailable("no place for index entries")

    with pytest.raises(StoreUnavailable, match="index entries"):
        write_small_files(store, Recorder(fail))
    assert list(store.list("")) == []


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize("failing", [0, 5])
def test_failed_upload_fails_writer_while_others_are_encoded(
    store: Store, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    lock, put_many, puts = threading.Lock(), store.put_many, []

    def faulty(objects: Sequence[tuple[str, bytes | memoryview]]) -> None:
        for each in objects:
            with lock:
                puts.append(each)
                fails = len(puts) > failing
            if fails:
                raise StoreUnavailable("the store is away")
            put_many([each])

    monkeypatch.setattr(store, "put_many", faulty)
    with pytest.raises(StoreUnavailable, match="away"):
        write_small_files(store)
    assert list(store.list("")) == []


@pytest.mark.usefixtures("ended")
def test_error_of_caller_waits_for_running_encodings(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, running = threading.Event(), []
    write = ParquetPart.write

    def slow(part: ParquetPart, batches: Sequence[pa.RecordBatch]) -> None:
        running.append(part.label)
        begun.set()
        write(part, batches)
        running.remove(part.label)

    monkeypatch.setattr(ParquetPart, "write", slow)
    layout = Layout(row_group_rows=100)
    writer = PartitionedWriter(store, "ds", normalise(ROWS.schema), layout, cores=2)

    def fail() -> None:
        with writer:
            writer.write(ROWS.slice(0, 500))
            assert begun.wait(30)
            raise ValueError("row 500 is damaged")

    with pytest.raises(ValueError, match="row 500"):
        fail()
    assert running == []
    assert list(store.list("")) == []


def test_writer_with_one_core_encodes_in_the_thread_of_its_caller(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    write = ParquetPart.write

    def noted(part: ParquetPart, batches: Sequence[pa.RecordBatch]) -> None:
        seen.add(threading.get_ident())
        write(part, batches)

    monkeypatch.setattr(ParquetPart, "write", noted)
    written(store, [ROWS], Layout(partition_on=("k",)), 1)
    assert seen == {threading.get_ident()}
    written(store, [ROWS], Layout(partition_on=("k",)), 2)
    assert len(seen) > 1


# --- memory --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 64])
def test_parallel_writer_keeps_memory_budget(store: Store, partitions: int) -> None:
    """Arrow's own pool holds rows and unfinished files, also what waits for an encoder; random numbers stay large."""
    budget, rows = 16 << 20, 1 << 19
    values = np.random.default_rng(1).integers(0, 1 << 60, rows)
    columns: dict[str, Any] = {"k": np.arange(rows) % partitions, "x": values}
    table = pa.table(columns)
    layout = Layout(partition_on=("k",), compression="NONE", dictionary_columns=())
    before = pa.total_allocated_bytes()
    peak = 0

    class Measuring(Recorder):
        def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
            nonlocal peak
            peak = max(peak, pa.total_allocated_bytes() - before)

        def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
            nonlocal peak
            peak = max(peak, pa.total_allocated_bytes() - before)

    schema = normalise(table.schema, ("k",))
    with PartitionedWriter(store, "ds", schema, layout, observer=Measuring(), cores=4, memory_budget=budget) as writer:
        for _ in range(12):
            writer.write(table)
        files = writer.finish()
    assert sum(file.rows for file in files) == 12 * rows
    assert peak < 2 * budget, "of 48 MiB that stay, and 8 MiB of the caller"
