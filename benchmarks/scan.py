"""Five kinds of scan of flights, beside delta-rs (DataFusion), DuckDB over all files, and a floor, in one table.

All systems return all columns of the rows as Arrow. DuckDB and the floor read the files of Kubothek's table; delta-rs
has its own files of the same rows, cut in the same way. The floor is pyarrow that knows the row groups with a match and
decodes them, without a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from benchmarks.harness import Case, Table, compare
from benchmarks.places import Place
from benchmarks.skipping import PART, flights_tables
from kubothek.catalog import Dataset
from kubothek.in_memory_database import in_memory_database
from kubothek.table.expressions import parse

QUERIES = {
    "point": "ticket = '{ticket}'",
    "range": "time_hour >= TIMESTAMP '2013-03-01' AND time_hour < TIMESTAMP '2013-03-04'",
    "prefix": "ticket LIKE '{prefix}%'",
    "third of the files": "tailnum = 'N24633'",
    "two columns": "carrier = 'OO' AND dep_delay > 60",
}
OURS = "kubothek"


@dataclass(frozen=True)
class Scans:
    """What the queries took: for each, its rows, the files that match, and the series of all systems."""

    title: str
    queries: Mapping[str, tuple[int, int, Table]]

    def render(self) -> str:
        """As Markdown; ratios are to Kubothek's."""
        head = [
            "| query | rows | files that match | system | min | median | CPU min | min × | CPU × |",
            "|---" * 9 + "|",
        ]
        lines = []
        for name, (rows, files, table) in self.queries.items():
            base = table.series[0]
            for found in table.series:
                wall, cpu = min(found.wall), min(found.cpu)
                lines.append(
                    f"| {name} | {rows:,} | {files:,} | {found.name} | {wall * 1000:.1f} ms "
                    f"| {median(found.wall) * 1000:.1f} ms | {cpu * 1000:.1f} ms | {wall / min(base.wall):.2f} "
                    f"| {cpu / min(base.cpu):.2f} |"
                )
        load = max((table.load for _, _, table in self.queries.values()), default=0.0)
        return "\n".join([f"### {self.title}", "", f"load {load:.1f} a core", "", *head, *lines]) + "\n"


def run(place: Place, copies: int, *, rounds: int, seconds: float) -> Iterator[Scans]:
    """One table. Raises RuntimeError if a system's rows are not those of the others."""
    dataset, delta, words = flights_tables(place, copies)
    files = len(dataset.snapshot().head.partitions)
    queries = {}
    for name, text in QUERIES.items():
        where = text.format(**words)
        systems, matching = _systems(dataset, delta, where)
        counts = {system: query() for system, query in systems.items()}
        rows = counts[OURS]
        if any(count != rows for count in counts.values()):
            raise RuntimeError(f"{name}: {counts}")
        cases = [Case(system, query) for system, query in systems.items()]
        cases.append(Case("floor", partial(_decode, matching)))
        queries[name] = (rows, len(matching), compare(name, cases, rounds=rounds, seconds=seconds))
    yield Scans(f"scan flights × {copies} ({dataset.rows:,} rows, {files} files), {place.name}", queries)


def _systems(
    dataset: Dataset, delta: DeltaTable, where: str
) -> tuple[dict[str, Callable[[], int]], Mapping[str, Sequence[int]]]:
    """The systems' queries, and the row groups with matches by path."""
    arrow = dataset.arrow_dataset()
    filesystem: Any = arrow.filesystem
    root: str = filesystem.base_path
    paths = [root + file for file in arrow.files]
    database = in_memory_database(enable_external_access=True)
    source = f"read_parquet($1, hive_partitioning=true, hive_types={{'{PART}': BIGINT}})"

    def ours() -> int:
        return dataset.scan(where=where).read_all().num_rows

    def deltas() -> int:
        return QueryBuilder().register("t", delta).execute(f"SELECT * FROM t WHERE {where}").read_all().num_rows

    def duckdb() -> int:
        found: pa.Table = database.sql(f"SELECT * FROM {source} WHERE {where}", params=[paths]).to_arrow_table()
        return found.num_rows

    systems = {OURS: ours, "delta-rs": deltas, "DuckDB, all files": duckdb}
    return systems, dict(_matching(arrow, root, parse(where).bind(dataset.schema).expression()))


def _matching(arrow: ds.FileSystemDataset, root: str, where: ds.Expression) -> Iterator[tuple[str, list[int]]]:
    for fragment in arrow.get_fragments(where):
        groups = [part for part in fragment.split_by_row_group() if part.count_rows(filter=where)]
        if groups:
            yield root + fragment.path, [each.id for part in groups for each in part.row_groups]


def _decode(row_groups: Mapping[str, Sequence[int]]) -> None:
    for path, groups in row_groups.items():
        with pq.ParquetFile(path, pre_buffer=False) as file:
            file.read_row_groups(list(groups))
