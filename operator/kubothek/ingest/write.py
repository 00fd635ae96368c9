"""Ingestion of a source into data files of a table: its description as plain data, and its execution in this process.

:mod:`kubothek.spark.write` does the same on many machines with the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from kubothek.errors import PartitionInvalid, RowsLost, SchemaMismatch, SourceEmpty
from kubothek.ingest.model import Source, SourcePlan, Split
from kubothek.ingest.read_ahead import read_ahead
from kubothek.ingest.reader import SourceReader
from kubothek.storage import Store, StoreConfig
from kubothek.table.expressions import Predicate
from kubothek.table.files import Observer, PartitionedWriter
from kubothek.table.layout import Layout
from kubothek.table.log import PartitionFile
from kubothek.table.operations import require_met
from kubothek.table.operations.written import Gatherer, Gathering
from kubothek.table.partitioning import check_new_columns, check_new_table, check_without_time_zones, joined
from kubothek.table.schema import fitted, merge, normalise, widened, with_nulls, without_time_zones
from kubothek.table.time_zones import declared_zones, expecting, in_zones, zones_in

_PIECE_BYTES: Final = 16 << 20
"""Bytes of rows that are written at once, so that a writer's cost for each piece of each partition does not matter."""
_READERS: Final = 4
"""Maximum files that are read at the same time: reading takes a smaller part of the cores than writing."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """Which rows go into which table; plain data, sent to executors.

    ``reading`` is the schema in which rows are read: declared types, not nullable where values are required, times as
    :func:`~kubothek.table.time_zones.expecting` says. ``stored`` is the stored schema in which they are written;
    columns that are not read are null. Each row must satisfy ``where``, which is bound to ``stored``. ``gathering``
    says what to collect of the rows during the write.
    """

    source: Source
    plan: SourcePlan
    reading: pa.Schema
    store: StoreConfig
    uuid: str
    table: str
    stored: pa.Schema
    layout: Layout
    where: Predicate | None = None
    gathering: Gathering = field(default_factory=Gathering)

    def with_plan(self, plan: SourcePlan) -> Ingest:
        """Return the ingestion with another plan."""
        return replace(self, plan=plan)

    def read(self, reader: SourceReader, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the validated rows of a split, with the columns of ``stored``.

        Raises the errors of :meth:`SourceReader.read`, and FilterNotMet, naming the row if the split knows its number.
        """
        row = 1 if split.start is None and split.row_groups is None else None
        utc = without_time_zones(self.reading)
        for read in reader.read(split, self.reading, self.layout.partition_on):
            batch = with_nulls(in_zones(read, utc), self.stored)
            if self.where is not None:
                require_met(self.where, batch, repr(split.file.name), row)
            yield batch
            row = None if row is None else row + batch.num_rows

    def gatherer(self, store: Store) -> Gatherer:
        """Return the observer of the written rows."""
        return self.gathering.gatherer(store, self.uuid, self.table, self.stored, self.layout.partition_on)

    def writer(self, store: Store, observer: Observer | None = None, *, cores: int = 1) -> PartitionedWriter:
        """Return a writer of the table's files that uses this many cores."""
        return PartitionedWriter(
            store, self.uuid, self.stored, self.layout, table=self.table, observer=observer, cores=cores
        )


def decide_schemas(
    *,
    declared: pa.Schema | None,
    table: pa.Schema | None,
    contract: pa.Schema | None,
    partition_on: Sequence[str],
    infer: Callable[[], pa.Schema],
    evolve: bool = False,
    zones: Mapping[str, str] | None = None,
) -> tuple[pa.Schema, pa.Schema]:
    """Return the schema to read a source in, and the stored one to write.

    A column's type is that of ``declared`` (the source's own), else of ``table`` (what is stored), else of
    ``contract`` (what the dataset promises); where none has one, or it is null, ``infer`` is asked. To ``evolve`` the
    table, ``infer`` is asked which columns the source has at all; those that it lacks are written as null. With
    ``zones``, those of the table, the schema to read in expects times of their kind; in new columns, of the zone that
    their type declares, or of the kind that ``infer`` found (:func:`~kubothek.table.time_zones.expecting`); without,
    any time is read as naive UTC. Raises SchemaMismatch if they contradict each other, and PartitionInvalid for columns
    that cannot partition a new table.
    """
    for given in filter(None, (declared, contract)):
        check_without_time_zones(given, partition_on)
    promised = None if contract is None else normalise(without_time_zones(contract), partition_on)
    known = declared or _known(table, promised, evolve=evolve)
    if known is None:
        found = infer()
    elif declared is None and evolve:
        found = _as_known(infer(), known)
    elif declared is None and any(pa.types.is_null(field.type) for field in known):
        found = _filled(known, infer())
    else:
        found = known
    if missing := [column for column in partition_on if column not in found.names]:
        raise PartitionInvalid(
            f"no column {', '.join(map(repr, missing))} to partition on; the source has "
            f"{', '.join(map(repr, found.names))}; correct the file, or table.partitionOn"
        )
    source = normalise(without_time_zones(found), partition_on)
    stored = source
    for other in (table, promised):
        if other is not None:
            fit = fitted(other, stored, evolve=evolve)
            merged = merge(other, fit, evolve=evolve)
            stored = merged if evolve else fit
    if evolve and promised is not None:
        merge(promised, stored)
    if table is None:
        check_new_table(stored, partition_on)
    else:
        check_new_columns(table, stored)
    required = {f.name for s in (declared, contract) if s is not None for f in s if not f.nullable}
    if absent := sorted(required - set(source.names)):
        raise SchemaMismatch(
            f"column {', '.join(map(repr, absent))} must not be null, and the source does not have it; correct the file"
        )
    types = without_time_zones(found)
    reading = [pa.field(name, types.field(name).type, nullable=name not in required) for name in source.names]
    if zones is None:
        return pa.schema(reading), stored
    untyped = found.names if known is None else [field.name for field in found if _is_untyped(known, field.name)]
    inferred = {name: zone for name, zone in zones_in(found).items() if name in untyped}
    new = {name: zone for name, zone in inferred.items() if not (zone and name in partition_on)}
    new |= {name: zone for name, zone in declared_zones(contract, declared).items() if name in source.names}
    return expecting(pa.schema(reading), _zones(zones, table, new)), stored


def _zones(zones: Mapping[str, str], table: pa.Schema | None, new: Mapping[str, str]) -> dict[str, str]:
    """Those of the table, and those of columns that it does not have, or that were all null."""
    if table is None:
        return {**zones, **new}
    known = [name for name in table.names if not pa.types.is_null(table.field(name).type)]
    old = {name: zone for name, zone in zones.items() if name in table.names}
    return old | {name: zone for name, zone in new.items() if name not in known}


def _is_untyped(known: pa.Schema, name: str) -> bool:
    return name not in known.names or pa.types.is_null(known.field(name).type)


def _known(table: pa.Schema | None, promised: pa.Schema | None, *, evolve: bool) -> pa.Schema | None:
    if table is None:
        return promised
    return table if promised is None else merge(table, promised, evolve=evolve)


def _as_known(inferred: pa.Schema, known: pa.Schema) -> pa.Schema:
    """Return the columns that the source has, in their known types, or wider ones."""
    types = dict(zip(known.names, known.types, strict=True))
    return pa.schema([f.with_type(widened(t, f.type) or t) if (t := types.get(f.name)) else f for f in inferred])


def _filled(known: pa.Schema, inferred: pa.Schema) -> pa.Schema:
    """Return the known columns, those without a type with the type that the source has for them."""
    types = dict(zip(inferred.names, inferred.types, strict=True))
    return pa.schema([f.with_type(types.get(f.name, f.type)) if pa.types.is_null(f.type) else f for f in known])


def ingest_here(
    ingest: Ingest,
    reader: SourceReader,
    store: Store,
    report: Callable[[int, int], None],
    observer: Observer | None = None,
    *,
    cores: int,
) -> list[PartitionFile]:
    """Read, validate and write in this process.

    ``report`` gets the numbers of files and rows written so far; ``observer`` observes the rows during the write.
    ``cores`` is how many to use: with several, reading, dividing and encoding rows run at the same time. Raises the
    errors of :meth:`SourceReader.read` and :class:`PartitionedWriter`. Files written before an error stay unreferenced.
    """
    pieces = _pieces(ingest, reader, min(cores, _READERS))
    rows = 0
    with ingest.writer(store, observer, cores=cores) as writer, closing(pieces):
        for done, table in pieces:
            writer.write(table)
            rows += table.num_rows
            report(done, rows)
        files = writer.finish()
    require_all_rows(ingest, rows, files)
    return files


def _pieces(ingest: Ingest, reader: SourceReader, threads: int) -> Generator[tuple[int, pa.Table], None, None]:
    """Yield the rows in pieces of about ``_PIECE_BYTES``, each with the number of files that were read before.

    With several threads each reads another file, while this one goes on with the pieces.
    """
    done = 0

    def numbered(number: int, split: Split) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in ingest.read(reader, split):
            yield number, batch

    parts = [numbered(number, split) for number, split in enumerate(ingest.plan.unsplit.splits)]
    in_turn = (read for part in parts for read in part)
    reads = read_ahead(parts, _batch_bytes, _PIECE_BYTES, threads) if threads > 1 else in_turn

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal done
        for number, batch in reads:
            done = number
            yield batch

    with closing(reads):
        for table in joined(batches(), _PIECE_BYTES):
            yield done, table


def _batch_bytes(numbered: tuple[int, pa.RecordBatch]) -> int:
    return numbered[1].nbytes


def require_rows(plan: SourcePlan, rows: int) -> None:
    """Raise SourceEmpty if no rows were read."""
    if rows == 0:
        raise SourceEmpty(f"the source has no rows: {plan.describe()}; correct it, or do not commit it")


def require_all_rows(ingest: Ingest, rows: int, files: Sequence[PartitionFile]) -> None:
    """Raise SourceEmpty if no rows were read, RowsLost if the numbers of rows read and written differ."""
    require_rows(ingest.plan, rows)
    written = sum(file.rows for file in files)
    if written != rows:
        raise RowsLost(f"{rows} rows were read from {ingest.plan.describe()}, but {written} were written; try again")
