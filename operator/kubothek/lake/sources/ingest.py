"""From a source to data files of a table: what is to be done, as plain data, and doing it in this process.

:mod:`kubothek.spark.write` does the same on many machines with the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from kubothek.lake.commits import PartitionFile
from kubothek.lake.errors import PartitionInvalid, RowsLost, SourceEmpty
from kubothek.lake.schema import merge, normalise, without_time_zones
from kubothek.lake.sources.model import Source, SourcePlan, Split
from kubothek.lake.sources.reader import SourceReader
from kubothek.lake.store import Store, StoreConfig
from kubothek.lake.table.files import PartitionedWriter
from kubothek.lake.table.partitioning import check_new_table


@dataclass(frozen=True, slots=True)
class Ingest:
    """Which rows go into which table; travels to executors.

    ``reading`` is the schema in which rows are read: types as declared, not nullable where values are required.
    ``stored`` is the stored schema in which they are written.
    """

    source: Source
    plan: SourcePlan
    reading: pa.Schema
    store: StoreConfig
    uuid: str
    table: str
    stored: pa.Schema
    partition_on: tuple[str, ...]
    target_file_bytes: int
    compression: str

    def with_plan(self, plan: SourcePlan) -> Ingest:
        """The same, cut up in another way."""
        return replace(self, plan=plan)

    def read(self, reader: SourceReader, split: Split) -> Iterator[pa.RecordBatch]:
        """The validated rows of a split, in the columns and order of ``stored``."""
        return reader.read(split, self.reading, self.partition_on)

    def writer(self, store: Store) -> PartitionedWriter:
        """A writer of the table's files."""
        return PartitionedWriter(
            store,
            self.uuid,
            self.stored,
            self.partition_on,
            table=self.table,
            target_file_bytes=self.target_file_bytes,
            compression=self.compression,
        )


def decide_schemas(
    *,
    declared: pa.Schema | None,
    table: pa.Schema | None,
    contract: pa.Schema | None,
    partition_on: Sequence[str],
    infer: Callable[[], pa.Schema],
) -> tuple[pa.Schema, pa.Schema]:
    """The schema to read a source in, and the stored one to write.

    A column's type is that of ``declared`` (the source's own), else of ``table`` (what is stored), else of
    ``contract`` (what the dataset promises); where none has one, or it is null, ``infer`` is asked. Raises
    SchemaMismatch if they contradict each other, and PartitionInvalid for columns that cannot partition a new table.
    """
    known = declared or _known(table, contract, partition_on)
    if known is None:
        found = infer()
    elif declared is None and any(pa.types.is_null(field.type) for field in known):
        found = _filled(known, infer())
    else:
        found = known
    if missing := [column for column in partition_on if column not in found.names]:
        raise PartitionInvalid(
            f"no column {', '.join(map(repr, missing))} to partition on; the source has "
            f"{', '.join(map(repr, found.names))}; correct the file, or table.partitionOn"
        )
    stored = normalise(without_time_zones(found), partition_on)
    for other in (table, None if contract is None else normalise(contract, partition_on)):
        if other is not None:
            merge(other, stored)
    if table is None:
        check_new_table(stored, partition_on)
    required = {f.name for s in (declared, contract) if s is not None for f in s if not f.nullable}
    reading = [
        pa.field(name, without_time_zones(found).field(name).type, nullable=name not in required)
        for name in stored.names
    ]
    return pa.schema(reading), stored


def _known(table: pa.Schema | None, contract: pa.Schema | None, partition_on: Sequence[str]) -> pa.Schema | None:
    promised = None if contract is None else normalise(contract, partition_on)
    if table is None:
        return promised
    return table if promised is None else merge(table, promised)


def _filled(known: pa.Schema, inferred: pa.Schema) -> pa.Schema:
    """Columns without a type take the one that the source has for them."""
    types = dict(zip(inferred.names, inferred.types, strict=True))
    return pa.schema([f.with_type(types.get(f.name, f.type)) if pa.types.is_null(f.type) else f for f in known])


def ingest_here(
    ingest: Ingest, reader: SourceReader, store: Store, told: Callable[[int, int], None]
) -> list[PartitionFile]:
    """Read, validate and write in this process; ``told`` hears how many files and rows have been read.

    Raises what :meth:`SourceReader.read` and :class:`PartitionedWriter` raise. Files that were written before an error
    are referenced by nothing.
    """
    rows = 0
    whole = ingest.plan.with_whole_files([file.name for file in ingest.plan.files])
    with ingest.writer(store) as writer:
        for done, split in enumerate(whole.splits):
            for batch in ingest.read(reader, split):
                writer.write(batch)
                rows += batch.num_rows
                told(done, rows)
        files = writer.finish()
    require_all_rows(ingest, rows, files)
    return files


def require_all_rows(ingest: Ingest, rows: int, files: Sequence[PartitionFile]) -> None:
    """Raises SourceEmpty if nothing was read, RowsLost if not exactly what was read was written."""
    if rows == 0:
        raise SourceEmpty(f"the source has no rows: {ingest.plan.describe()}; correct it, or do not commit it")
    written = sum(file.rows for file in files)
    if written != rows:
        raise RowsLost(f"{rows} rows were read from {ingest.plan.describe()}, but {written} were written; try again")
