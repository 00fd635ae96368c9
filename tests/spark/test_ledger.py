"""A ledger's ingest with Spark: the same records under the same offsets as in one process, or nothing at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from kubothek.errors import DataTypeMismatch
from kubothek.ingest import UrlPolicy
from kubothek.odf import verify
from kubothek.odf.dataset import Ingested, Root, Table, create
from kubothek.odf.dataset import base as root_base
from kubothek.odf.dataset.ingesting import Elsewhere
from kubothek.odf.distributed import StoredFile, plan_pieces, plan_ranges
from kubothek.odf.distributed.blobs import blobs_of, is_ordered, order_of, places_of
from kubothek.odf.ingest import poll_source, push_files
from kubothek.odf.sources.fetch import FetchContext
from kubothek.odf.sources.readers import read as read_file
from kubothek.odf.sources.readers.content import ObjectContent
from kubothek.odf.sources.readers.preprocess import is_row_wise
from kubothek.odf.spec.digest import LogicalHash
from kubothek.odf.spec.events import AddPushSource, DatasetKind, DatasetSnapshot, SetPollingSource
from kubothek.odf.spec.identity import OwnerKey
from kubothek.odf.spec.sources import (
    FetchStepFilesGlob,
    MergeStrategy,
    MergeStrategyAppend,
    MergeStrategyLedger,
    ReadStep,
    ReadStepCsv,
    ReadStepNdJson,
    ReadStepParquet,
    Transform,
    TransformSql,
)
from kubothek.odf.spec.timestamps import Timestamp
from kubothek.spark import ledger as spark_ledger
from kubothek.spark.ledger_tasks import WritesSlices
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog
from tests.table.log.hashes import require_hashes

pytestmark = pytest.mark.spark

NOW = Timestamp.parse("2100-01-01T00:00:00Z")
DDL = ("event_time TIMESTAMP", "id BIGINT", "city STRING", "amount DOUBLE", "note STRING")
SLICE = 12 << 10


@pytest.fixture(autouse=True)
def _one_time(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_base, "system_now", lambda _log: NOW)


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Store, Store, Store]:
    """Of files, of a ledger that Spark writes, and of one that it does not."""
    for name in ("inbox", "spark", "here"):
        (tmp_path / name).mkdir()
    inbox, there, here = (open_store(StoreConfig((tmp_path / n).as_uri())) for n in ("inbox", "spark", "here"))
    return inbox, there, here


def rows(seed: int, count: int, *, ordered: bool) -> pa.Table:
    """Event times with ties and without any, keys that come again, NULLs and NaNs."""
    random = np.random.default_rng(seed)
    times = 1_700_000_000_000 + random.integers(0, count // 3, count) * 1000
    absent = random.random(count) < 0.05
    if ordered:
        times, absent = np.sort(times), np.zeros(count, np.bool_)
    amounts = random.normal(size=count).round(2)
    amounts[random.random(count) < 0.02] = np.nan
    ids = random.integers(0, count // 2, count) + 50 * seed
    return pa.table(
        {
            "event_time": pa.array(times, pa.timestamp("ms", "UTC"), mask=absent),
            "id": pa.array(ids, mask=random.random(count) < 0.02),
            "city": pa.array([f"city {n % 5}" for n in ids]),
            "amount": pa.array(amounts),
            "note": pa.array([f"{n:x}" * 3 for n in random.integers(0, 1 << 30, count)]),
        }
    )


def as_file(store: Store, name: str, data: pa.Table | bytes) -> StoredFile:
    if isinstance(data, pa.Table):
        sink = io.BytesIO()
        pq.write_table(data, sink, row_group_size=300)
        data = sink.getvalue()
    store.put(name, data)
    return StoredFile(name, store.config, store.stat(name))


def as_lines(table: pa.Table) -> bytes:
    columns = (table.column(name).to_pylist() for name in ("event_time", "id", "city", "note"))
    return b"".join(
        b'{"event_time": %s, "id": %s, "city": "%s", "note": "%s"}\n'
        % (
            b"null" if time is None else b'"%s"' % time.isoformat().encode(),
            b"null" if number is None else b"%d" % number,
            city.encode(),
            note.encode(),
        )
        for time, number, city, note in zip(*columns, strict=True)
    )


def as_csv(table: pa.Table, quoted: str = "") -> bytes:
    lines = [",".join(DDL[n].split()[0] for n in range(5))]
    for row in table.to_pylist():
        time = "" if row["event_time"] is None else row["event_time"].isoformat()
        lines.append(
            f'{time},{"" if row["id"] is None else row["id"]},{row["city"]},{row["amount"]},"{quoted}{row["note"]}"'
        )
    return ("\n".join(lines) + "\n").encode()


def made(store: Store, read: ReadStep, merge: MergeStrategy, transform: Transform | None, *, view: bool = True) -> Root:
    source = AddPushSource(source_name="default", read=read, merge=merge, preprocess=transform)
    snapshot = DatasetSnapshot(name="trips", kind=DatasetKind.ROOT, metadata=(source,))
    table = Table(layout=Layout(partition_on=("city",))) if view else None
    create(store, DatasetLog(store, "trips"), snapshot, OwnerKey(bytes(range(32))), table=table)
    return Root(store, DatasetLog(store, "trips"), slice_bytes=SLICE)


def by_spark(files: Sequence[StoredFile], source: AddPushSource | SetPollingSource) -> spark_ledger.RowsWithSpark:
    return spark_ledger.RowsWithSpark(
        session=lambda: nullcontext(SparkSession.active()),
        files=files,
        step=source.read,
        preprocess=source.preprocess,
        report=lambda *_: None,
        piece_bytes=files[0].info.size // 3,
    )


def with_spark(root: Root, files: Sequence[StoredFile], commit_id: str | None = None) -> Ingested:
    return root.push(by_spark(files, root.state.push_sources["default"]), commit_id=commit_id)


def here(root: Root, files: Sequence[StoredFile]) -> Ingested:
    return push_files(root, [file.content() for file in files])


def records(root: Root) -> pa.Table:
    schema = root.state.schema
    assert schema is not None
    return pa.Table.from_batches(root.history.scan(schema.names), root.history.as_read(schema.names))


def table_rows(root: Root) -> list[Any]:
    """The table, by offset; NaN as text, so that it is itself."""
    files = root.snapshot.head.files().values()
    found = [row for key in files for row in pq.read_table(io.BytesIO(root.store.get(key))).to_pylist()]
    return sorted(repr(sorted(row.items())) for row in found)


def require_same(one: Root, other: Root) -> None:
    """Whatever was cut where: logically these are one ledger, and both are sound."""
    one.refresh()
    other.refresh()
    assert one.state.schema == other.state.schema
    assert one.state.watermark == other.state.watermark
    assert one.state.next_offset == other.state.next_offset
    hashes = []
    for root in (one, other):
        hasher = LogicalHash(records(root).schema)
        for batch in records(root).to_batches():
            hasher.update(batch)
        hashes.append(hasher.finish())
        verdict = verify(root.store, root.layout)
        assert verdict.sound, verdict.first
    assert hashes[0] == hashes[1]
    if one.snapshot.schema is not None:
        assert one.snapshot.schema == other.snapshot.schema
        assert table_rows(one) == table_rows(other)
        require_hashes(one.log)


APPEND = MergeStrategyAppend()
LEDGER = MergeStrategyLedger(primary_key=("id",))
TIMED = MergeStrategyLedger(primary_key=("event_time", "city"))
ROW_WISE = TransformSql(
    engine="duckdb", query="SELECT event_time, id, upper(city) AS city, note FROM input WHERE id > 3"
)
TOGETHER = TransformSql(
    engine="duckdb",
    query="SELECT min(event_time) AS event_time, city, count(*) AS n FROM input GROUP BY city ORDER BY 2",
)


@pytest.mark.parametrize(
    ("read", "merge", "transform", "ordered", "view"),
    [
        (ReadStepParquet(), APPEND, None, True, True),
        (ReadStepParquet(), APPEND, None, False, True),
        (ReadStepParquet(), LEDGER, None, False, True),
        (ReadStepParquet(), TIMED, None, False, False),
        (ReadStepNdJson(ddl_schema=DDL), LEDGER, ROW_WISE, False, True),
        (ReadStepCsv(header=True, ddl_schema=DDL), APPEND, TOGETHER, True, False),
    ],
    ids=["ordered", "unordered", "ledger", "ledger-by-time", "row-wise", "aggregate"],
)
def test_spark_ingestion_writes_same_ledger_as_process(
    stores: tuple[Store, Store, Store],
    read: ReadStep,
    merge: MergeStrategy,
    transform: Transform | None,
    ordered: bool,
    view: bool,
) -> None:
    """Twice, so that the second time there is something to look keys up in, and offsets to go on from."""
    inbox, *others = stores
    roots = [made(store, read, merge, transform, view=view) for store in others]
    slices = 0
    for turn in range(2):
        given = [rows(7 * turn + n, 600, ordered=ordered) for n in range(2)]
        if ordered:
            given = [pa.concat_tables(given).sort_by("event_time")]
        write = {ReadStepParquet: lambda t: t, ReadStepNdJson: as_lines, ReadStepCsv: as_csv}[type(read)]
        files = [as_file(inbox, f"{turn}-{n}", write(each)) for n, each in enumerate(given)]
        there, here_ = with_spark(roots[0], files), here(roots[1], files)
        assert there.records == here_.records > 0
        slices += there.slices
    assert slices > (3 if transform is not TOGETHER else 1)
    require_same(*roots)


def test_spark_ingestion_reads_file_cut_inside_value_unsplit(stores: tuple[Store, Store, Store]) -> None:
    """Of two files, in one of which every value has line ends, and rows of another width behind them."""
    inbox, *others = stores
    read = ReadStepCsv(header=True, ddl_schema=DDL)
    roots = [made(store, read, APPEND, None) for store in others]
    files = [
        as_file(inbox, "a", as_csv(rows(1, 300, ordered=False))),
        as_file(inbox, "b", as_csv(rows(2, 300, ordered=False), "x\n1,2\n\n")),
    ]
    assert with_spark(roots[0], files).records == here(roots[1], files).records == 600
    require_same(*roots)


def test_spark_ingestion_with_bad_row_names_row_and_leaves_nothing(stores: tuple[Store, Store, Store]) -> None:
    inbox, store, _ = stores
    root = made(store, ReadStepCsv(header=True, ddl_schema=DDL), APPEND, None)
    before = root.snapshot.version, root.state.head
    bad = as_csv(rows(1, 300, ordered=False)) + b"2026-11-22T00:00:00Z,many,x,1,\n"
    files = [as_file(inbox, "a", as_csv(rows(2, 300, ordered=False))), as_file(inbox, "b", bad)]
    with pytest.raises(DataTypeMismatch, match=r"'b', column 'id', row 301 \(line 302\): 'many' is no int64"):
        with_spark(root, files)
    root.refresh()
    assert (root.snapshot.version, root.state.head) == before
    assert not root.history.records


def test_spark_ingestion_that_crashes_is_applied_once_on_rerun(
    stores: tuple[Store, Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's process that ends in the middle of a slice is started again by Spark; a driver that is gone before
    the swap leaves slices that nothing names.
    """
    inbox, store, other = stores
    roots = [made(each, ReadStepParquet(), LEDGER, None) for each in (store, other)]
    files = [as_file(inbox, "a", rows(1, 600, ordered=False))]
    with monkeypatch.context() as patched:
        patched.setattr(spark_ledger._Run, "_whole", gone)
        with pytest.raises(GoneError):
            with_spark(roots[0], files, "once")
    roots[0].refresh()
    assert roots[0].state.next_offset == 0
    assert any(store.list(".kubothek/trips/odf/data/")), "slices that nothing names"
    monkeypatch.setattr(DiesOnce, "note", Path(store.url.removeprefix("file://")) / "died", raising=False)
    monkeypatch.setattr(spark_ledger, "WritesSlices", DiesOnce)
    assert with_spark(roots[0], files, "once").records == here(roots[1], files).records
    assert DiesOnce.note.exists()
    assert with_spark(roots[0], files, "once").repeated
    require_same(*roots)


class GoneError(Exception):
    """The driver is not there any more."""


def gone(*_: object) -> None:
    raise GoneError


class DiesOnce(WritesSlices):
    """Its worker ends when the first slices are stored, before it says so."""

    note: Path

    def _range(self, *args: Any) -> Iterator[pa.RecordBatch]:
        for done in super()._range(*args):
            if not self.note.exists():
                self.note.touch()
                os._exit(1)
            yield done


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not have the tests


def test_spark_ingestion_of_polled_store_files_equals_poll_in_process(stores: tuple[Store, Store, Store]) -> None:
    inbox, *others = stores
    for n in range(2):
        as_file(inbox, f"landing/{n}.parquet", rows(n, 300, ordered=True))  # each with a time of its own
    source = SetPollingSource(
        fetch=FetchStepFilesGlob(path="s3://inbox/landing/*.parquet"), read=ReadStepParquet(), merge=APPEND
    )
    context = FetchContext(policy=UrlPolicy(), now=NOW, locate=lambda url: (inbox, url.removeprefix("s3://inbox/")))
    asked: list[str] = []

    def elsewhere(found: SetPollingSource, stored: ObjectContent) -> Elsewhere:
        asked.append(stored.info.key)
        return by_spark([StoredFile(stored.name, inbox.config, stored.info)], found)

    def nobody(_found: SetPollingSource, _stored: ObjectContent) -> None:
        """This process."""

    roots = []
    for store, who in zip(others, (elsewhere, nobody), strict=True):
        snapshot = DatasetSnapshot(name="trips", kind=DatasetKind.ROOT, metadata=(source,))
        create(store, DatasetLog(store, "trips"), snapshot, OwnerKey(bytes(range(32))), table=Table())
        roots.append(Root(store, DatasetLog(store, "trips"), slice_bytes=SLICE))
        assert poll_source(roots[-1], context, elsewhere=who).records == 600
    assert asked == ["landing/0.parquet", "landing/1.parquet"]
    require_same(*roots)
    assert roots[0].state.source_states == roots[1].state.source_states


def test_file_pieces_joined_equal_complete_file(stores: tuple[Store, Store, Store]) -> None:
    """Wherever files are cut, also in the middle of a header's or a line's bytes."""
    inbox, *_ = stores
    table = rows(1, 50, ordered=False)
    given: list[tuple[ReadStep, pa.Table | bytes]] = [
        (ReadStepCsv(header=True, ddl_schema=DDL), as_csv(table)),
        (ReadStepCsv(header=True), as_csv(table)),
        (ReadStepNdJson(ddl_schema=DDL), as_lines(table)),
        (ReadStepParquet(), table),
    ]
    for number, (step, data) in enumerate(given):
        file = as_file(inbox, f"{number}", data)
        whole = read_file(step, file.content())
        assert whole is not None
        expected = whole.read_all()
        for size in range(17, file.info.size, file.info.size // 7):
            pieces = plan_pieces(step, [file], size=size)
            found = [part.rows(step) for piece in pieces for part in piece.parts]
            assert pa.Table.from_batches(b for each in found if each is not None for b in each).equals(expected)


def test_transform_that_depends_on_other_rows_is_not_row_wise() -> None:
    schema = pa.table({"a": [1], "b": ["x"]}).schema
    for query, row_wise in {
        "SELECT a + 1 AS a, upper(b) AS b FROM input WHERE a > 1": True,
        "SELECT unnest([a, a + 1]) AS a FROM input": True,
        "SELECT DISTINCT b FROM input": False,
        "SELECT a, row_number() OVER () AS n FROM input": False,
        "SELECT a, lag(a) OVER (ORDER BY a) AS n FROM input": False,
        "SELECT * FROM input ORDER BY a": False,
        "SELECT * FROM input LIMIT 3": False,
        "SELECT * FROM input UNION ALL SELECT * FROM input": False,
        "SELECT x.a FROM input x JOIN input y ON x.a = y.a": False,
        "SELECT a - (SELECT min(a) FROM input) AS a FROM input": False,
    }.items():
        assert is_row_wise(TransformSql(engine="duckdb", query=query), schema) is row_wise, query


def test_sort_ranges_hold_each_row_once_in_order() -> None:
    """Also where many rows have one event time, or none."""
    random = np.random.default_rng(3)
    schema = pa.schema([("__at", pa.int64()), ("event_time", pa.timestamp("ms", "UTC"))])
    for spread in (1, 3, 1000):
        times = pa.array(random.integers(0, spread, 4000), schema.field(1).type, mask=random.random(4000) < 0.1)
        at = random.permutation(4000)
        batches = pa.Table.from_arrays([pa.array(at), times], schema=schema).to_batches(max_chunksize=250)
        blobs = [blob for batch in batches for blob in blobs_of([batch], schema)]
        ranges = plan_ranges([blob.summary for blob in blobs], 16 * 400)
        assert ranges.counts is None
        assert len(ranges) > 5
        counts = sum(ranges.counts_of(batch) for batch in batches)
        assert counts.max() < 4 * 400  # type: ignore[union-attr]
        parts: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for number, some in ranges.divided(batch):
                parts.setdefault(number, []).append(some)
        found = [pa.Table.from_batches(parts[n]).sort_by([("__at", "ascending")]) for n in sorted(parts)]
        assert [t.num_rows for t in found] == [n for n in counts.tolist() if n]  # type: ignore[union-attr]
        order = [order_of(*places_of(t)) for t in found]
        everything = pa.concat_tables(t.take(o) for t, o in zip(found, order, strict=True))
        assert is_ordered(*places_of(everything))
