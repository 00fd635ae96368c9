"""One commit of source files by Kubothek, as a job runs it, in parts that benchmarks time alone or together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.places import Root
from kubothek.ingest import Format, Ingest, Source, SourceReader, decide_schemas
from kubothek.storage import Store
from kubothek.table.indexes import IndexKind
from kubothek.table.layout import Layout
from kubothek.table.log import DatasetLog, PartitionFile, Transaction
from kubothek.table.operations import Written, append
from kubothek.table.operations.written import Gathered, Gatherer, Gathering

PARTITION_ON: Final = ("year", "month")
INDEXED: Final = ("carrier", "customer")
_NAME: Final = "bulk"

Write = Callable[[Store, Ingest, SourceReader, Gatherer], list[PartitionFile]]


@dataclass(frozen=True)
class SourceFiles:
    """Files of one format and one set of columns. ``names`` are their keys in the store of ``root``."""

    root: Root
    names: tuple[str, ...]
    format: Format = Format.PARQUET

    @property
    def paths(self) -> list[str]:
        """The files as Arrow names them, with the bucket of an S3 store."""
        root = self.root.url.removeprefix("file://").removeprefix("s3://")
        return [f"{root}/{name}" for name in self.names]

    def dataset(self) -> ds.Dataset:
        """Return the files as peers read them."""
        kind: Literal["parquet", "csv"] = "parquet" if self.format is Format.PARQUET else "csv"
        return ds.dataset(self.paths, filesystem=self.root.arrow(), format=kind)


@dataclass(frozen=True)
class Begun:
    """A commit that has begun: its schema is decided, and no row is read."""

    store: Store
    ingest: Ingest
    reader: SourceReader
    transaction: Transaction

    def gatherer(self) -> Gatherer:
        """Return the observer that collects what the commit keeps of its rows."""
        return self.ingest.gatherer(self.store)

    def commit(self, files: Sequence[PartitionFile], gathered: Gathered) -> None:
        """Commit written files with the indices that were collected."""
        ingest = self.ingest
        self.transaction.commit(
            append(
                Written(
                    tuple(files),
                    ingest.stored,
                    ingest.layout.partition_on,
                    ingest.layout.to_json(),
                    gathered=gathered,
                    wanted=dict.fromkeys(ingest.gathering.indexed, IndexKind.NATIVE),
                )
            )
        )


@contextmanager
def begun(
    target: Root,
    source: SourceFiles,
    partition_on: Sequence[str] = PARTITION_ON,
    indexed: Sequence[str] = INDEXED,
) -> Iterator[Begun]:
    """Begin a commit into an empty dataset: list the files and infer their schema."""
    store = target.lake().store
    files = Source(source.format, source.root.lake().store.config, paths=source.names)
    transaction = DatasetLog(store, _NAME).begin(_NAME, _NAME)
    assert isinstance(transaction, Transaction), "the store is empty"
    with SourceReader(files) as reader:
        plan = reader.plan()
        reading, stored = decide_schemas(
            declared=None,
            table=None,
            contract=None,
            partition_on=partition_on,
            infer=partial(reader.infer_schema, plan),
        )
        ingest = Ingest(
            source=files,
            plan=plan,
            reading=reading,
            store=store.config,
            uuid=_NAME,
            table="table",
            stored=stored,
            layout=Layout(partition_on=tuple(partition_on)),
            gathering=Gathering(tuple(indexed)),
        )
        yield Begun(store, ingest, reader, transaction)


def commit(
    target: Root,
    source: SourceFiles,
    write: Write,
    partition_on: Sequence[str] = PARTITION_ON,
    indexed: Sequence[str] = INDEXED,
) -> None:
    """Do what a Commit does after its checks: read, write, hash, index and commit."""
    with begun(target, source, partition_on, indexed) as started:
        gatherer = started.gatherer()
        files = write(started.store, started.ingest, started.reader, gatherer)
        started.commit(files, gatherer.finish())


def payload(schema: pa.Schema, partition_on: Sequence[str]) -> pa.Schema:
    """Return the columns that files store."""
    return pa.schema([field for field in schema if field.name not in partition_on])
