"""Where the time of a bulk commit goes, stage by stage, in one process and in Spark's tasks, beside physical floors.

Each stage runs alone and on one thread, with the functions of the product and the rows, row groups and files that a
commit of the same source had. Whole commits and those of deltalake-rs are in the same rounds. Stages overlap in a
commit that has threads, so compare CPU times with those of a whole commit, not wall times. In a directory only.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import count
from typing import Any, Final, TypeAlias, cast
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import bulk
from benchmarks.commits import INDEXED, PARTITION_ON, Begun, SourceFiles, begun, payload
from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Series, compare
from benchmarks.libraries import cpu_by_library
from benchmarks.places import Place, Root
from benchmarks.systems import writers
from kubothek.spark import tasks
from kubothek.spark.fatrows import Packer, Unpacker
from kubothek.spark.session import running
from kubothek.spark.write import READ_TASK_BYTES
from kubothek.storage.sha3_multibuffer import digests
from kubothek.table.files import ParquetPart
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile
from kubothek.table.operations.written import Gathered, Gathering
from kubothek.table.partitioning import Group, split
from kubothek.table.schema import conform, footer_metadata
from kubothek.table.skipping.collect.collectors import Describing
from kubothek.table.skipping.model import IndexDefinition, SkippingState

_HERE: Final = "one process, stage by stage"
_WHOLE: Final = "kubothek, one process"
_UPLOADS: Final = 8
_MIB: Final = 1 << 20
_numbers = count()


StageLine: TypeAlias = tuple[str, float, float, float | None]
"""Stage, wall seconds, CPU seconds, MB."""


@dataclass(frozen=True)
class Stage:
    """One stage of a commit, or something to compare it with.

    ``megabytes``     that come in
    ``less``          another stage that ``run`` contains and whose time is subtracted
    ``prepare``       comes before each run
    ``is_of_commit``  whether the commits that are measured whole have this stage
    """

    name: str
    run: Callable[[], object]
    megabytes: float | None = None
    less: str | None = None
    prepare: Callable[[], object] = lambda: None
    is_of_commit: bool = True


@dataclass(frozen=True)
class Stages:
    """Times of stages. Of each the least: wall and CPU seconds."""

    title: str
    load: float
    lines: Sequence[StageLine]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", f"load {self.load:.1f} a core", ""]
        lines += ["| stage | wall | CPU | MB | MB a second | MB a CPU second |", "|---|---|---|---|---|---|"]
        for name, wall, cpu, size in self.lines:
            rates = ("" if size is None or seconds <= 0 else f"{size / seconds:,.0f}" for seconds in (wall, cpu))
            shown = "" if size is None else f"{size:,.0f}"
            lines.append(f"| {name} | {wall:.2f} s | {cpu:.2f} s | {shown} | {' | '.join(rates)} |")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Libraries:
    """CPU seconds by library of whole commits; None where perf does not run."""

    title: str
    found: Mapping[str, Mapping[str, float] | None]

    def render(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| system | CPU seconds by library |", "|---|---|"]
        for system, seconds in self.found.items():
            cells = (
                "perf does not run here" if seconds is None else ", ".join(f"{k} {v:.2f}" for k, v in seconds.items())
            )
            lines.append(f"| {system} | {cells} |")
        return "\n".join(lines) + "\n"


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 300) -> Iterator[Stages | Libraries]:
    """Tables of stages in one process and in Spark, of floors and whole commits, and CPU time by library."""
    source = place.root("source")
    bulk.make_source(source, rows)
    few = place.root("few")
    bulk.make_source(few, bulk.FILES)
    files = bulk.files_of(source)
    with begun(place.root("recorded"), files) as started, running({"spark.master": "local[*]"}) as session:
        recorded = Recorded.of(started)
        here, delta = partial(bulk.ours, source, place, "here", bulk.here), partial(_delta, place, files)
        parts = {
            _HERE: _here(place, files, started, recorded),
            "Spark's tasks, each kind as one task in this process": _spark(started, recorded),
            "floors": _floors(started, recorded),
            "whole commits": [
                Stage(_WHOLE, here),
                Stage("kubothek, with Spark", partial(_with_spark, session, place, source)),
                Stage(f"kubothek, with Spark, {bulk.FILES} rows", partial(_with_spark, session, place, few)),
                Stage("deltalake-rs, Zstandard", partial(delta, "ZSTD")),
                Stage("deltalake-rs, Snappy", partial(delta, "SNAPPY")),
                Stage("deltalake-rs, uncompressed", partial(delta, "UNCOMPRESSED")),
                Stage("reading alone, as deltalake-rs gets the rows", lambda: _consume(files.dataset().to_batches)),
            ],
        }
        every = [stage for stages in parts.values() for stage in stages]
        cases = [Case(stage.name, stage.run, stage.prepare) for stage in every]
        table = compare("", cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)
        times = {series.name: series for series in table.series}
        for title, stages in parts.items():
            lines = [line_of(stage, times) for stage in stages]
            if title == _HERE:
                lines += _summed([line for stage, line in zip(stages, lines, strict=True) if stage.is_of_commit], times)
            yield Stages(f"{title}: {rows:,} rows, 2 indices, {place.name}", table.load, lines)
        by_library = {
            _WHOLE: cpu_by_library(here),
            "deltalake-rs": cpu_by_library(partial(delta, "ZSTD")),
        }
    yield Libraries(f"CPU time by library of a whole commit of {rows:,} rows, {place.name}", by_library)


def line_of(stage: Stage, times: Mapping[str, Series]) -> StageLine:
    """Return the line of a stage, by the times of all."""
    wall, cpu = min(times[stage.name].wall), min(times[stage.name].cpu)
    if stage.less is not None:
        wall, cpu = wall - min(times[stage.less].wall), cpu - min(times[stage.less].cpu)
    return stage.name, wall, cpu, stage.megabytes


def _summed(lines: Sequence[StageLine], times: Mapping[str, Series]) -> list[StageLine]:
    """Return the sum of all stages, and what a whole commit takes beyond it: copies, buffering, Python."""
    wall, cpu = sum(line[1] for line in lines), sum(line[2] for line in lines)
    whole = times[_WHOLE]
    return [
        ("all stages of the commit, one after the other", wall, cpu, None),
        ("whole commit beyond them", min(whole.wall) - wall, min(whole.cpu) - cpu, None),
    ]


# --- what a commit had -----------------------------------------------------------------------------------------------


@dataclass
class Recorded:
    """Rows as they are read, row groups and files as they are written. It observes a write."""

    batches: list[pa.RecordBatch]
    row_groups: list[tuple[str, Sequence[pa.RecordBatch]]] = field(default_factory=list)
    finished: list[tuple[str, str, pa.Buffer, pq.FileMetaData]] = field(default_factory=list)
    files: list[PartitionFile] = field(default_factory=list)

    @classmethod
    def of(cls, started: Begun) -> Recorded:
        """Read and write once, as a commit does, and keep everything in memory."""
        ingest = started.ingest
        found = cls(list(_read(started)))
        with ingest.writer(started.store, found) as writer:
            for batch in found.batches:
                writer.write(batch)
            found.files = writer.finish()
        return found

    def observe(self, label: str, batches: Sequence[pa.RecordBatch]) -> None:
        """Keep a row group."""
        self.row_groups.append((label, batches))

    def wrote(self, label: str, key: str, content: pa.Buffer, footer: pq.FileMetaData) -> None:
        """Keep a file."""
        self.finished.append((label, key, content, footer))

    @property
    def contents(self) -> list[pa.Buffer]:
        """The bytes of the files."""
        return [content for _, _, content, _ in self.finished]

    def gather(self, started: Begun, gathering: Gathering) -> Gathered:
        """Observe all row groups and files, and store what is collected of them."""
        gatherer = replace(started.ingest, gathering=gathering).gatherer(started.store)
        for label, batches in self.row_groups:
            gatherer.observe(label, batches)
        for label, key, content, footer in self.finished:
            gatherer.wrote(label, key, content, footer)
        return gatherer.finish()

    def encode(self, schema: pa.Schema, layout: Layout) -> list[pa.Buffer]:
        """Return files of the row groups, in this layout."""
        parts: dict[str, ParquetPart] = {}
        metadata = cache(partial(footer_metadata, schema))
        for label, batches in self.row_groups:
            if label not in parts:
                parts[label] = ParquetPart(label, schema, layout, metadata, batches)
            parts[label].write(batches)
        return [part.finish()[0] for part in parts.values()]


def _read(started: Begun) -> Iterator[pa.RecordBatch]:
    for part in started.ingest.plan.unsplit.splits:
        yield from started.ingest.read(started.reader, part)


# --- one process -----------------------------------------------------------------------------------------------------


def _here(place: Place, source: SourceFiles, started: Begun, recorded: Recorded) -> list[Stage]:
    ingest = started.ingest
    schema = payload(ingest.stored, PARTITION_ON)
    indices, minima = Gathering(INDEXED), _minima(schema)
    rows = _megabytes(batch for _, batches in recorded.row_groups for batch in batches)
    read, files = _megabytes(recorded.batches), _megabytes(recorded.contents)
    encoded = {
        "plain": Layout(compression="NONE", dictionary_columns=()),
        "dictionary": Layout(compression="NONE"),
        "compressed": Layout(),
    }
    encode = {name: partial(recorded.encode, schema, layout) for name, layout in encoded.items()}
    pages = _megabytes(encode["dictionary"]())
    fresh: list[tuple[Begun, Gathered]] = []

    def begin(gathering: Gathering) -> None:
        with begun(place.root(f"stage-{next(_numbers)}"), source) as again:
            fresh[:] = [(again, recorded.gather(again, gathering))]

    empty = partial(begin, Gathering())

    def uploads() -> None:
        _uploaded(fresh[0][0], recorded)

    def unsynced() -> None:
        with patch("os.fsync"):
            uploads()

    def commits() -> None:
        fresh[0][0].commit(recorded.files, fresh[0][1])

    return [
        Stage("read and validate", partial(_consume, partial(_read, started)), read),
        Stage(
            "find the partition of each row",
            partial(_divided, ingest.stored, recorded.batches, all_columns=False),
            read,
        ),
        Stage(
            "take the rows of each partition",
            partial(_divided, ingest.stored, recorded.batches, all_columns=True),
            read,
            less="find the partition of each row",
        ),
        Stage("encode plain", encode["plain"], rows),
        Stage("dictionaries, beyond plain", encode["dictionary"], rows, less="encode plain"),
        Stage("compress", encode["compressed"], pages, less="dictionaries, beyond plain"),
        Stage("hash", lambda: digests(recorded.contents), files),
        Stage("indices of two columns", lambda: recorded.gather(fresh[0][0], indices), rows, prepare=empty),
        Stage(
            "skipping metadata, MinMax on all columns (not in these commits)",
            lambda: recorded.gather(fresh[0][0], minima),
            rows,
            prepare=empty,
            is_of_commit=False,
        ),
        Stage("store the files, eight at once, without sync", unsynced, files, prepare=empty),
        Stage("sync", uploads, files, less="store the files, eight at once, without sync", prepare=empty),
        Stage("commit", commits, prepare=partial(begin, indices)),
    ]


def _minima(schema: pa.Schema) -> Gathering:
    state = SkippingState(tuple(IndexDefinition("MinMax", (name,)) for name in schema.names))
    return Gathering(describing=Describing.of(state, 0))


def _divided(stored: pa.Schema, batches: Sequence[pa.RecordBatch], *, all_columns: bool) -> None:
    for batch in batches:
        for piece in conform(pa.Table.from_batches([batch]), stored).to_batches():
            _consume(partial(split, piece if all_columns else piece.select(PARTITION_ON), PARTITION_ON))


def _uploaded(started: Begun, recorded: Recorded) -> None:
    with ThreadPoolExecutor(_UPLOADS) as pool:
        for done in [pool.submit(started.store.put, key, memoryview(data)) for _, key, data, _ in recorded.finished]:
            done.result()


def _consume(items: Callable[[], Iterable[object]]) -> None:
    deque(items(), maxlen=0)


def _megabytes(sized: Iterable[pa.RecordBatch | pa.Buffer]) -> float:
    return sum(each.nbytes if isinstance(each, pa.RecordBatch) else each.size for each in sized) / 1e6


# --- Spark's tasks ---------------------------------------------------------------------------------------------------


class _Total:
    """What tasks report, in place of Spark's accumulator."""

    def __init__(self) -> None:
        self.added: list[Any] = []

    def add(self, some: object) -> None:
        """Keep it."""
        self.added.append(some)


def _spark(started: Begun, recorded: Recorded) -> list[Stage]:
    """The functions that Spark's Python workers run, without what Spark does between them."""
    ingest = started.ingest
    bundles = ingest.plan.bundles(READ_TASK_BYTES)
    numbers = [pa.record_batch({"id": pa.array(range(len(bundles)), pa.int64())})]
    failures: Any = _Total()
    reads = tasks.Reads(ingest, bundles, failures, cast("Any", _Total()), tasks.Timed(None))
    writes = tasks.Writes(ingest, failures, tasks.Timed(None))
    pieces = [each for batch in recorded.batches for each in split(batch, PARTITION_ON)]
    moved = list(reads(numbers))
    shuffled = _shuffled(moved, os.cpu_count() or 1)
    schema = payload(ingest.stored, PARTITION_ON)
    read, rows = _megabytes(recorded.batches), _megabytes(rows for _, rows in pieces)

    def write() -> None:
        for each in shuffled:
            _consume(partial(writes, each))
        assert not failures.added, failures.added

    def unpack() -> None:
        unpacker = Unpacker(schema)
        for batch in moved:
            _consume(partial(unpacker.unpack, batch))

    return [
        Stage("read tasks", partial(_consume, partial(reads, numbers)), read),
        Stage("of them: pack and compress rows for Spark", partial(_packed, pieces), rows),
        Stage("write tasks", write, rows),
        Stage("of them: unpack", unpack, _megabytes(moved)),
    ]


def _packed(pieces: Sequence[tuple[Group, pa.RecordBatch]]) -> None:
    packer = Packer()
    for group, rows in pieces:
        _consume(partial(packer.add, group, rows))
    _consume(packer.finish)


def _shuffled(moved: Sequence[pa.RecordBatch], count: int) -> list[list[pa.RecordBatch]]:
    """Return the input of so many write tasks: each has all rows of its partitions."""
    table = pa.Table.from_batches(moved).combine_chunks()
    codes = table["path"].combine_chunks().dictionary_encode("encode").indices
    tasks_of_rows = np.asarray(codes) % count
    return [table.filter(pa.array(tasks_of_rows == number)).to_batches() for number in range(count)]


# --- floors, and others ----------------------------------------------------------------------------------------------


def _floors(started: Begun, recorded: Recorded) -> list[Stage]:
    """The least that any commit does with as many bytes, on one thread and on two."""
    schema = payload(started.ingest.stored, PARTITION_ON)
    rows = [pa.py_buffer(batch.serialize()) for _, batches in recorded.row_groups for batch in batches]
    pages = [
        data.slice(at, min(_MIB, data.size - at))
        for data in recorded.encode(schema, Layout(compression="NONE"))
        for at in range(0, data.size, _MIB)
    ]
    works: dict[str, tuple[Callable[[Sequence[pa.Buffer]], object], list[pa.Buffer]]] = {
        "copy the rows in memory": (_copied, rows),
        "compress the pages, Zstandard level 1": (_compressed, pages),
        "SHA3-256 of the files, in lanes": (digests, recorded.contents),
    }
    return [
        Stage(f"{name}, {cores} core{'s' * (cores > 1)}", partial(_on_cores, work, data, cores), _megabytes(data))
        for name, (work, data) in works.items()
        for cores in (1, 2)
    ]


def _on_cores(work: Callable[[Sequence[pa.Buffer]], object], data: Sequence[pa.Buffer], cores: int) -> None:
    with ThreadPoolExecutor(cores) as pool:
        _consume(partial(pool.map, work, [data[number::cores] for number in range(cores)]))


def _copied(data: Sequence[pa.Buffer]) -> None:
    target = np.empty(max((each.size for each in data), default=0), np.uint8)
    for each in data:
        np.copyto(target[: each.size], np.frombuffer(memoryview(each), np.uint8))


def _compressed(data: Sequence[pa.Buffer]) -> None:
    codec = pa.Codec("zstd", 1)
    for each in data:
        codec.compress(each)


def _with_spark(session: SparkSession, place: Place, source: Root) -> None:
    bulk.ours(source, place, "spark", partial(bulk.with_spark, session))


def _delta(place: Place, source: SourceFiles, compression: writers.Compression) -> None:
    writers.delta(source, place.root(f"stage-delta-{next(_numbers)}"), PARTITION_ON, compression)
