"""A derivative kept up to date: 10,000 new records on histories of different lengths, against the answer made anew.

The bar: on 100 million records of history the update costs at most twice what it costs on 1 million. The history is a
record a second, so a hundred times the history is a hundred times the windows; the new records are of the last
hours, one in a hundred late by up to a month, and one in a hundred takes a record back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Table, compare
from kubothek.odf import DatasetId, Layout, OwnerKey, Timestamp, Vocabulary
from kubothek.odf.dataset import again
from kubothek.odf.dataset import create as create_root
from kubothek.odf.derived import Derivative, Limits, create, inputs_of
from kubothek.odf.derived.verification import verify_runs
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot, SetTransform
from kubothek.odf.spec.events import TransformInput as EventInput
from kubothek.odf.spec.sources import MergeStrategyAppend, ReadStepParquet, SqlQueryStep, TransformSql
from kubothek.odf.transform import TransformInput, TransformRequest, execute
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.storage.parallel import spread_here
from kubothek.table.log import DatasetLog
from kubothek.table.log.model import keys

NEW = 10_000
REPLAYED = 4_000_000
RUNS = 8
_AT_ONCE = 5_000_000
_START = 1_577_836_800_000
_MS = pa.timestamp("ms", "UTC")
_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("offset", pa.int64()),
    ("op", pa.int32()),
    ("system_time", _MS),
    ("event_time", _MS),
    ("carrier", pa.string()),
    ("delay", pa.int32()),
    ("distance", pa.float64()),
]
SCHEMA = pa.schema(_COLUMNS)
ANSWER = (
    "count(*) AS flights, sum(delay) AS delay, avg(distance) AS distance, min(delay) AS least, max(delay) AS most "
    "FROM flights GROUP BY window(event_time, '1 hour'), carrier"
)
QUERY = f"SELECT window.start AS event_time, carrier, {ANSWER}"
_CARRIERS = np.array(["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA", "OO"])
_MONTH = 30 * 86_400


def run(histories: Sequence[int], *, room: Path | None = None, rounds: int = 5, seconds: float = 60) -> Iterator[Table]:
    """Three tables: updates, what Spark SQL takes for the whole, and runs beside their replay.

    ``room``  where histories stay, so that another run need not make them, or goes on where one was stopped
    """
    with ExitStack() as stack:
        if room is None:
            room = Path(stack.enter_context(TemporaryDirectory(prefix="kubothek-transform-")))
        kept = [History.of(room / f"history-{rows}", rows) for rows in histories]
        yield updates(kept, rounds=rounds, seconds=seconds)
        yield anew(kept, seconds=seconds)
        with TemporaryDirectory(prefix="kubothek-replay-") as directory:
            yield replayed(Path(directory), min(REPLAYED, *histories), rounds=min(rounds, 3), seconds=seconds)


def updates(histories: Sequence[History], *, rounds: int, seconds: float) -> Table:
    """The new records on each history."""
    cases = [Case(f"update on {each.records:,}", each.update, each.tidy) for each in histories]
    return compare(f"Windowed aggregate, {NEW:,} new records", cases, rounds=rounds, seconds=seconds)


def anew(histories: Sequence[History], *, seconds: float) -> Table:
    """All records of each history, by Spark SQL as it comes: our own jobs' session is made for a fast start."""
    builder = SparkSession.builder.master("local[*]").config("spark.ui.showConsoleProgress", "false")
    session = builder.config("spark.driver.memory", "4g").getOrCreate()

    def whole(history: History) -> None:
        session.read.parquet(str(history.directory / "records")).createOrReplaceTempView("flights")
        answer = session.sql(f"SELECT window(event_time, '1 hour').start, carrier, {ANSWER}")
        answer.write.format("noop").mode("overwrite").save()

    try:
        cases = [Case(f"Spark SQL, {each.records:,}", partial(whole, each)) for each in histories]
        return compare("The same, made anew", cases, rounds=1, seconds=seconds, cpu=cpu_of_all)
    finally:
        session.stop()


def replayed(directory: Path, records: int, *, rounds: int, seconds: float) -> Table:
    """A derivative of so many records, made in a few runs, and the proof that it is what its SQL makes of them."""
    store = open_store(StoreConfig(directory.as_uri()))
    each = -(-records // RUNS)
    make_source(store, records, each)
    inputs, numbers = inputs_of(store), count()

    def made(name: str) -> Derivative:
        return derived(store, name, QUERY, lambda derivative: derivative.pull(inputs, Limits(records=each)).more)

    kept = made("kept")
    layout, head = Layout(keys.chain("kept")), kept.state.head
    assert head is not None, "it has a seed"

    def proved(threads: int) -> None:
        wrong = verify_runs(store, layout, head, inputs, spread_here(store, threads))
        assert not wrong, wrong

    cases = [
        Case(f"{RUNS} runs", lambda: made(f"anew-{next(numbers)}")),
        Case("their replay, one after the other", partial(proved, 1)),
        Case("their replay", partial(proved, RUNS)),
    ]
    title = f"First run and replay, {records:,} records"
    return compare(title, cases, rounds=rounds, seconds=seconds)


def make_source(store: Store, records: int, each: int) -> None:
    """The ledger ``flights`` with so many records, which are pushed a few at a time."""
    source = AddPushSource(source_name="default", read=ReadStepParquet(), merge=MergeStrategyAppend())
    snapshot = DatasetSnapshot(name="flights", kind=DatasetKind.ROOT, metadata=(source,))
    root = create_root(store, DatasetLog(store, "flights"), snapshot, OwnerKey.new(), table=None)
    for first in range(0, records, each):
        end = min(first + each, records)
        root.push(again(records_of(first, end, np.arange(first, end)).drop_columns(["offset", "op", "system_time"])))


def derived(store: Store, name: str, query: str, pull: Callable[[Derivative], bool]) -> Derivative:
    """A new dataset that a query makes of ``flights``; ``pull`` is one run, and says whether there is more."""
    transform = SetTransform(
        inputs=(EventInput(dataset_ref="flights"),), transform=TransformSql(engine="spark", query=query)
    )
    snapshot = DatasetSnapshot(name=name, kind=DatasetKind.DERIVATIVE, metadata=(transform,))
    derivative = create(store, DatasetLog(store, name), snapshot, OwnerKey.new(), inputs_of(store), table=None)
    while pull(derivative):
        pass
    return derivative


@dataclass
class History:
    """An input and the state that its records left; what was made of it before is there again."""

    directory: Path
    records: int
    checkpoint: Path | None = None

    @classmethod
    def of(cls, directory: Path, records: int) -> History:
        """One with so many records, which stay as Parquet for those who read all."""
        kept = directory / "records"
        kept.mkdir(parents=True, exist_ok=True)
        history = cls(directory, records)
        for first in range(0, records, _AT_ONCE):
            end, file, left = min(records, first + _AT_ONCE), kept / f"{first:012}.parquet", directory / f"{first:012}"
            if not file.exists():
                table = records_of(first, end, np.arange(first, end))
                history.pull(table, left)
                pq.write_table(table, directory / "part")
                (directory / "part").rename(file)
            if history.checkpoint is not None:
                history.checkpoint.unlink(missing_ok=True)
            history.checkpoint = left
        return history

    def update(self) -> None:
        """The new records, on the state of the history."""
        chance = np.random.default_rng(5)
        times = np.sort(self.records - chance.integers(0, 12 * 3600, NEW))
        late = chance.integers(0, NEW, NEW // 100)
        times[late] = np.maximum(times[late] - chance.integers(0, _MONTH, len(late)), 0)
        self.pull(records_of(self.records, self.records + NEW, times), self._new)

    def tidy(self) -> None:
        """Without what an update left: to write over a file takes longer than to write one, and runs never do."""
        self._new.unlink(missing_ok=True)

    @property
    def _new(self) -> Path:
        return self.directory / "checkpoint-new"

    def pull(self, table: pa.Table, checkpoint: Path) -> Path:
        """One run."""
        scratch = self.directory / "scratch"
        scratch.mkdir(exist_ok=True)
        given = TransformInput(
            id=DatasetId(bytes(32)),
            alias="flights",
            query_alias="flights",
            vocabulary=Vocabulary(),
            schema=SCHEMA,
            rows=table.to_reader,
            watermarks=[],
            blocks=[(Timestamp(0), 0, table.num_rows - 1)],
        )
        request = TransformRequest(
            transform=TransformSql(engine="spark", queries=(SqlQueryStep(query=QUERY),)),
            vocabulary=Vocabulary(),
            inputs=[given],
            system_time=Timestamp(0),
            previous_watermark=None,
            checkpoint=self.checkpoint,
            new_checkpoint=checkpoint,
            scratch=scratch,
        )
        for _ in execute(request).rows:
            pass
        return checkpoint


def records_of(first: int, end: int, times: Any) -> pa.Table:
    """Records with these event times, in seconds; what they say depends on these alone."""
    count = end - first
    mixed = (times * 2_654_435_761) % 4_294_967_296
    columns: list[Any] = [
        pa.array(np.arange(first, end)),
        pa.array(np.zeros(count, np.int32)),
        pa.array(np.full(count, _START)).cast(_MS),
        pa.array(times * 1000 + _START).cast(_MS),
        pa.array(_CARRIERS[mixed % 16]),
        pa.array((mixed // 16 % 300 - 30).astype(np.int32)),
        pa.array((mixed // 4800 % 30_000) / 10),
    ]
    return pa.table(columns, schema=SCHEMA)
