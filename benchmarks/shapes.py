"""Bulk commits of other shapes than that of ``bulk``, beside the writers of deltalake-rs, pyiceberg, DuckDB and Arrow.

Each shape differs from the first in one property: the order of its rows, the number of partitions, the number or types
of columns, the format of its files. Kubothek commits in one process with two indices and hashes, as always. The others
do less (:mod:`benchmarks.systems.writers`). In a directory only: DuckDB writes to S3 by an extension not in its wheel.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from benchmarks import bulk
from benchmarks.commits import PARTITION_ON, SourceFiles, commit
from benchmarks.cpu import cpu_of_all
from benchmarks.harness import Case, Series, Table, compare
from benchmarks.places import Place, Root
from benchmarks.systems.writers import DIRECTORY, WRITERS, Writer
from kubothek.ingest import Format

OURS: Final = "kubothek, one process"
_CUSTOMERS: Final = 100_000
_WIDE: Final = 200
_numbers = count()


@dataclass(frozen=True)
class Shape:
    """Rows of one kind.

    ``columns``  ``narrow``, ``wide``, ``few texts`` (20 to 1,000 values a column), ``many texts`` (a value a row) or
                 ``nested`` (lists and structs)
    ``share``    the rows are the asked number divided by this, so that all shapes take about as long
    """

    name: str
    columns: str = "narrow"
    partitions: int = 120
    is_sorted: bool = False
    format: Format = Format.PARQUET
    share: int = 1


SHAPES: Final = (
    Shape("unsorted"),
    Shape("sorted by partition", is_sorted=True),
    Shape("12 partitions", partitions=12),
    Shape("5,000 partitions", partitions=5_000, share=4),
    Shape("200 columns", "wide", share=25),
    Shape("texts of low cardinality", "few texts"),
    Shape("texts of high cardinality", "many texts", share=2),
    Shape("lists and structs", "nested", share=2),
    Shape("CSV.gz", format=Format.CSV, share=2),
)


@dataclass(frozen=True)
class Summary:
    """Least times by shape and system, and what each wrote."""

    title: str
    lines: Sequence[tuple[Shape, int, Sequence[Series], Mapping[str, float]]]
    """Shape, rows, series of the systems, MB that each wrote."""

    def render(self) -> str:
        """As Markdown. A ratio above 1 means that Kubothek takes less time than that system."""
        names = [OURS, *WRITERS]
        lines = [f"### {self.title}", "", f"| shape | rows | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
        for shape, rows, series, written in self.lines:
            found = {each.name: each for each in series}
            cells = [self._cell(name, found, written) for name in names]
            lines.append(f"| {shape.name} | {rows:,} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _cell(name: str, found: Mapping[str, Series], written: Mapping[str, float]) -> str:
        wall, cpu = min(found[name].wall), min(found[name].cpu)
        ratio = "" if name == OURS else f" **{wall / min(found[OURS].wall):.1f} ×**"
        return f"{wall:.2f} s ({cpu:.2f}){ratio}, {written[name]:.0f} MB"


def run(place: Place, rows: int, *, rounds: int = 3, seconds: float = 15) -> Iterator[Table | Summary]:
    """A table a shape, then all of them in one."""
    lines = []
    for shape in SHAPES:
        size = rows // shape.share
        source = make_source(place.root(f"source-{next(_numbers)}"), shape, size)
        targets: dict[str, Root] = {}
        cases = [Case(OURS, partial(_ours, source, place, targets))]
        for name, writer in WRITERS.items():
            cases.append(Case(name, partial(_theirs, name, writer, source, place, targets)))
        title = f"commit of {size:,} rows: {shape.name}, {place.name}"
        table = compare(title, cases, rounds=rounds, seconds=seconds, cpu=cpu_of_all)
        yield table
        written = {name: _megabytes(target) for name, target in targets.items()}
        lines.append((shape, size, table.series, written))
    yield Summary(f"least times (CPU), ratios to ours, and bytes of Parquet, by shape, {place.name}", lines)


def _ours(source: SourceFiles, place: Place, targets: dict[str, Root]) -> None:
    targets[OURS] = place.root(f"ours-{next(_numbers)}")
    commit(targets[OURS], source, bulk.here)


def _theirs(name: str, write: Writer, source: SourceFiles, place: Place, targets: dict[str, Root]) -> None:
    targets[name] = place.root(f"{write.__name__}-{next(_numbers)}")
    write(source, targets[name], PARTITION_ON)


def _megabytes(target: Root) -> float:
    """The Parquet files of a table, without what indices take."""
    directories = (target.scratch / DIRECTORY, target.scratch / "bulk" / "table")
    return sum(path.stat().st_size for each in directories for path in each.rglob("*.parquet")) / 1e6


# --- rows ------------------------------------------------------------------------------------------------------------


def make_source(root: Root, shape: Shape, rows: int) -> SourceFiles:
    """Write files of rows in no order, so that each has rows of every partition, or sorted by partition."""
    random = np.random.default_rng(1)
    parts = random.integers(0, shape.partitions, rows)
    if shape.is_sorted:
        parts.sort()
    suffix = "parquet" if shape.format is Format.PARQUET else "csv.gz"
    names = tuple(f"source/{number}.{suffix}" for number in range(bulk.FILES))
    store = root.lake().store
    for name, some in zip(names, np.array_split(parts, bulk.FILES), strict=True):
        store.put(name, _encoded(shape, _rows(shape, random, some)))
    return SourceFiles(root, names, shape.format)


def _rows(shape: Shape, random: np.random.Generator, parts: np.ndarray[Any, Any]) -> pa.Table:
    size = len(parts)
    columns: dict[str, Any] = {
        "year": 2000 + parts // 12,
        "month": 1 + parts % 12,
        "carrier": _texts(random, "C", 20, size),
        "customer": random.integers(0, _CUSTOMERS, size),
    }
    match shape.columns:
        case "wide":
            columns |= {f"c{n}": _value(random, n, size) for n in range(_WIDE - len(columns))}
        case "few texts":
            columns |= {f"text{n}": _texts(random, "value ", n, size) for n in (20, 100, 1000)}
        case "many texts":
            columns |= {f"text{n}": pa.array(random.integers(0, 1 << 62, size)).cast(pa.string()) for n in range(3)}
        case "nested":
            columns |= {"tags": _lists(random, size), "place": _structs(random, size)}
        case _:
            columns |= {"amount": random.normal(100, 30, size).round(2), "distance": random.integers(0, 5000, size)}
    return pa.table(columns)


def _value(random: np.random.Generator, number: int, size: int) -> Any:
    """Prices, counts and names in turn."""
    if number % 3 == 0:
        return random.normal(100, 30, size).round(2)
    return random.integers(0, 5000, size) if number % 3 == 1 else _texts(random, "name ", 500, size)


def _texts(random: np.random.Generator, prefix: str, distinct: int, size: int) -> pa.Array[Any]:
    return pa.array([f"{prefix}{n:02d}" for n in range(distinct)]).take(random.integers(0, distinct, size))


def _lists(random: np.random.Generator, size: int) -> pa.Array[Any]:
    """Lists of 0 to 4 texts."""
    lengths = random.integers(0, 5, size)
    offsets: Any = pa.array(np.concatenate([[0], lengths.cumsum()]), pa.int32())
    lists: pa.Array[Any] = pa.ListArray.from_arrays(offsets, _texts(random, "tag ", 200, int(lengths.sum())))
    return lists


def _structs(random: np.random.Generator, size: int) -> pa.Array[Any]:
    fields: list[Any] = [pa.array(random.normal(0, 40, size).round(4)), _texts(random, "town ", 3000, size)]
    return pa.StructArray.from_arrays(fields, names=["latitude", "town"])


def _encoded(shape: Shape, rows: pa.Table) -> memoryview | bytes:
    sink = pa.BufferOutputStream()
    if shape.format is Format.PARQUET:
        pq.write_table(rows, sink)
        return memoryview(sink.getvalue())
    pcsv.write_csv(rows, sink)
    return gzip.compress(memoryview(sink.getvalue()), compresslevel=1)
