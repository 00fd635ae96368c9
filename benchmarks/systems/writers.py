"""Other systems' bulk writes of the same source files, partitioned, in Zstandard-compressed Parquet of level 1.

None keeps an index or hashes its files. deltalake-rs and pyiceberg commit; DuckDB's and Arrow's writers have no
transaction. All use the cores of the machine as they do by default, and sync nothing to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import WriterProperties, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.commits import SourceFiles
from benchmarks.places import Root
from kubothek.ingest import Format

Writer = Callable[[SourceFiles, Root, Sequence[str]], None]
"""Writes source files into an empty directory, partitioned on columns."""

Compression = Literal["ZSTD", "SNAPPY", "UNCOMPRESSED"]

DIRECTORY: Final = "written"
"""Where each writer's files are, below its root."""
_LEVEL: Final = 1
"""Parquet's default in Arrow, and so in Kubothek's files."""
_MOST_PARTITIONS: Final = 100_000


def delta(source: SourceFiles, target: Root, partition_on: Sequence[str], compression: Compression = "ZSTD") -> None:
    """Rows come as a stream from Arrow's scanner. SNAPPY is its default."""
    properties = WriterProperties(compression=compression, compression_level=_LEVEL if compression == "ZSTD" else None)
    write_deltalake(
        f"{target.url}/{DIRECTORY}",
        source.dataset().scanner().to_reader(),
        partition_by=list(partition_on),
        writer_properties=properties,
    )


def iceberg(source: SourceFiles, target: Root, partition_on: Sequence[str]) -> None:
    """Append one table in memory: pyiceberg takes no stream for a partitioned table. The catalog is in SQLite."""
    catalog = SqlCatalog("bulk", uri=f"sqlite:///{target.scratch}/iceberg.sqlite", warehouse=target.url)
    catalog.create_namespace("bulk")
    rows = source.dataset().to_table()
    properties = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": str(_LEVEL)}
    table = catalog.create_table("bulk.bulk", rows.schema, f"{target.url}/{DIRECTORY}", properties=properties)
    with table.update_spec() as spec:
        for name in partition_on:
            spec.add_identity(name)
    table.append(rows)


def duck(source: SourceFiles, target: Root, partition_on: Sequence[str]) -> None:
    """Run ``COPY``: DuckDB reads and writes by itself."""
    read = "read_parquet" if source.format is Format.PARQUET else "read_csv"
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * FROM {read}({source.paths!r})) TO '{target.scratch}/{DIRECTORY}' (FORMAT parquet, "
            f"PARTITION_BY ({', '.join(partition_on)}), COMPRESSION zstd, COMPRESSION_LEVEL {_LEVEL})"
        )


def arrow(source: SourceFiles, target: Root, partition_on: Sequence[str]) -> None:
    """Scan and write with Arrow's datasets."""
    rows = source.dataset()
    form: Any = ds.ParquetFileFormat()  # the stubs know no options
    ds.write_dataset(
        rows,
        f"{target.scratch}/{DIRECTORY}",
        format=form,
        file_options=form.make_write_options(compression="zstd", compression_level=_LEVEL),
        partitioning=ds.partitioning(pa.schema([rows.schema.field(name) for name in partition_on]), flavor="hive"),
        max_partitions=_MOST_PARTITIONS,
    )


WRITERS: Final[Mapping[str, Writer]] = {
    "deltalake-rs": delta,
    "pyiceberg": iceberg,
    "DuckDB COPY": duck,
    "pyarrow.write_dataset": arrow,
}
