"""Ingestion in this process: the same files with any number of cores, and errors of the source."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kubothek.errors import SourceCorrupt
from kubothek.ingest import Ingest, SourceReader, ingest_here, write
from kubothek.ingest.model import Format, Source, SourcePlan
from kubothek.storage import Store, StoreConfig, open_store
from kubothek.table import ordered_calls
from kubothek.table.layout import Layout

_TYPES: dict[str, pa.DataType] = {"k": pa.int64(), "x": pa.string()}
SCHEMA = pa.schema(_TYPES)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a source of 5 files; rows are handed on in small pieces, and all encoded in threads."""
    monkeypatch.setattr(write, "_PIECE_BYTES", 4000)
    monkeypatch.setattr(ordered_calls, "_SMALL", 0)
    store = open_store(StoreConfig(tmp_path.as_uri()))
    for number in range(5):
        rows = pa.table({"k": [n % 3 for n in range(1000)], "x": [f"{number}-{n}" for n in range(1000)]}, schema=SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, row_group_size=300)
        store.put(f"source/{number}.parquet", memoryview(sink.getvalue()))
    return store


def ingested(store: Store, uuid: str, cores: int) -> tuple[dict[str, bytes], list[tuple[int, int]]]:
    """Return the contents of the files by partition, and what was reported."""
    source = Source(Format.PARQUET, store.config, paths=tuple(f"source/{number}.parquet" for number in range(5)))
    with SourceReader(source) as reader:
        return written_files(store, source, reader.plan(), reader, uuid, cores)


def written_files(
    store: Store, source: Source, plan: SourcePlan, reader: SourceReader, uuid: str, cores: int
) -> tuple[dict[str, bytes], list[tuple[int, int]]]:
    """Write the rows of a source; return what :func:`ingested` does."""
    reported: list[tuple[int, int]] = []
    ingest = Ingest(
        source=source,
        plan=plan,
        reading=SCHEMA,
        store=store.config,
        uuid=uuid,
        table="table",
        stored=SCHEMA,
        layout=Layout(partition_on=("k",)),
    )
    files = ingest_here(ingest, reader, store, lambda done, rows: reported.append((done, rows)), cores=cores)
    return {file.label.partition("/")[0]: store.get(file.key) for file in files}, reported


def test_files_and_reports_are_the_same_with_any_number_of_cores(store: Store) -> None:
    files, reported = ingested(store, "one", 1)
    assert files.keys() == {"k=0", "k=1", "k=2"}
    assert ingested(store, "several", 3) == (files, reported)
    assert len(reported) > 5
    assert reported[-1] == (4, 5000)
    rows = pq.read_table(pa.BufferReader(files["k=1"]))["x"].to_pylist()
    assert rows == [f"{number}-{n}" for number in range(5) for n in range(1, 1000, 3)]


@pytest.mark.parametrize("cores", [1, 3])
def test_damaged_source_file_fails_ingestion_and_leaves_no_file(store: Store, cores: int) -> None:
    content = bytearray(store.get("source/3.parquet"))
    content[4:400] = bytes(396)
    store.put("source/3.parquet", bytes(content))
    before = set(threading.enumerate())
    with pytest.raises(SourceCorrupt, match=r"source/3\.parquet"):
        ingested(store, "damaged", cores)
    assert list(store.list("damaged/")) == []
    remaining = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in remaining if name.startswith(("encode", "read-ahead", "upload"))]


def test_one_core_reads_in_the_thread_of_the_caller(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    read = Ingest.read

    def noted(ingest: Ingest, reader: SourceReader, split: object) -> object:
        threads.append(threading.get_ident())
        return read(ingest, reader, split)  # type: ignore[arg-type]

    monkeypatch.setattr(Ingest, "read", noted)
    ingested(store, "one", 1)
    assert set(threads) == {threading.get_ident()}
    threads.clear()
    ingested(store, "several", 2)
    assert threading.get_ident() not in threads


def test_files_are_the_same_whether_inference_or_the_read_parsed_rows(store: Store) -> None:
    names = tuple(f"source/{number}.csv" for number in range(5))
    for number, name in enumerate(names):
        store.put(name, b"k,x\n" + b"".join(b"%d,%d-%d\n" % (n % 3, number, n) for n in range(1000)))
    source = Source(Format.CSV, store.config, paths=names)
    files = []
    for infers, cores in ((True, 1), (True, 3), (False, 1), (False, 3)):
        with SourceReader(source) as reader:
            plan = reader.plan()
            schema = reader.infer_schema(plan) if infers else SCHEMA
            assert schema == SCHEMA
            written = written_files(store, source, plan, reader, f"{infers}-{cores}", cores)[0]
        files.append(written)
    assert files[0].keys() == {"k=0", "k=1", "k=2"}
    assert files[1:] == files[:1] * 3
