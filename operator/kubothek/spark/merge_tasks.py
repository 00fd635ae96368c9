"""Tasks of Spark's Python workers for a merge by key. Spark moves fat rows and never decodes them.

1. *Read.* A task divides rows of the source by a hash of their key (:class:`ReadFrame`, :class:`ReadSplits`).
2. *Check.* A task gets all rows of some keys and refuses keys that occur twice (:class:`CheckKeys`).
3. *Join.* A task gets the same rows, and from :class:`ReadKeys` where the files of the table have these keys. It sends
   source rows with a match to the files, and makes the rows that are inserted (:class:`JoinKeys`).
4. *Write.* A task rewrites some files (:class:`RewriteBundles`), or writes inserted rows (:class:`WriteInserts`).
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain, groupby, pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
from pyspark.accumulators import Accumulator

from kubothek.errors import LakeError
from kubothek.ingest import Source, SourceReader, Split
from kubothek.spark import tasks
from kubothek.spark.fatrows import SPARK_SCHEMA, Packer, Unpacker, fat_rows
from kubothek.spark.tasks import Failure, report
from kubothek.storage import StoreConfig, open_store
from kubothek.table.bucketing import Bucketing
from kubothek.table.carried import Carrier
from kubothek.table.expressions.computed import Evaluator
from kubothek.table.key_buckets import KeyBuckets
from kubothek.table.operations.copying import Copying
from kubothek.table.operations.merging.files import MergedFiles, merge_files
from kubothek.table.operations.merging.rows import Rules, inserted_rows
from kubothek.table.operations.merging.search import (
    PLACE,
    KeyValues,
    Matches,
    join_keys,
    key_rows,
    keys_schema,
)
from kubothek.table.operations.merging.source import MergeSource
from kubothek.table.partitioning import Group, split
from kubothek.table.scan.plan import PlannedFile
from kubothek.table.schema import conform
from kubothek.table.scratch import ROW, Scratch, gathered

ROWS: Final = f"kind int, {SPARK_SCHEMA}"
"""Fat rows of several kinds. Within a task they are sorted by kind."""
SUMMARY: Final = "payload binary"
"""A pickled :class:`Summary`, from our own workers."""

_FEW: Final = 256
"""The most values of a key column that a task sends to the driver."""
_INSERTS_AT_ONCE: Final = 1 << 18

Batches: TypeAlias = Iterable[pa.RecordBatch]
Failures: TypeAlias = "Accumulator[list[Failure]]"


class Kind(IntEnum):
    """What a fat row has."""

    SOURCE = 0
    """Rows of the source, by bucket of their key."""
    READ = 1
    """The number of source rows that a task has read, or received; no payload."""
    KEYS = 2
    """Keys of files, and their places."""
    BUNDLE = 3
    """No payload: there is a bundle of files."""
    MATCHED = 4
    """Source rows, each with the place of a match, by bundle of files."""
    INSERTED = 5
    """Rows of the table, by partition and bucket."""
    INSERTS = 6
    """The number of inserted rows that a task has sent; no payload."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The rows of a source: their schema and key, and into how many buckets they are divided."""

    schema: pa.Schema
    key: tuple[str, ...]
    buckets: int

    @property
    def carrier(self) -> Carrier:
        """The conversion of the key for databases."""
        return Carrier(pa.schema([self.schema.field(name) for name in self.key]))


@dataclass(frozen=True, slots=True)
class Bundles:
    """Files in bundles of ``size`` consecutive ones."""

    files: Sequence[PlannedFile]
    size: int

    def __len__(self) -> int:
        return -(-len(self.files) // self.size)

    def __getitem__(self, number: int) -> Sequence[PlannedFile]:
        return self.files[number * self.size : (number + 1) * self.size]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a task found of the rows of some keys.

    ``read``    rows that tasks have read, as far as this task got their reports
    ``there``   rows of this task
    ``values``  values of their keys
    """

    read: int
    there: int
    values: KeyValues


class _Task(ABC):
    """A task that reports errors to the driver; ``order`` and ``split`` say where an error is."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self.order = 0
        self.split: Split | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.run(batches)
        except LakeError as error:
            report(error, self.failures, self.order, self.split)

    @abstractmethod
    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the output of the task. Raises LakeError."""


# --- fat rows of several kinds ----------------------------------------------------------------------------------------


def _of_kind(kind: Kind, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kinds = pa.array(np.full(batch.num_rows, kind, np.int32))
        yield pa.RecordBatch.from_arrays([kinds, *batch.columns], names=["kind", *batch.schema.names])


def _counted(kind: Kind, rows: int) -> Iterator[pa.RecordBatch]:
    return _of_kind(kind, [fat_rows([(None, rows, None)])])


def _received(
    batches: Batches, schemas: Mapping[Kind, pa.Schema]
) -> Iterator[tuple[Kind, Group, int, pa.RecordBatch | None]]:
    """Yield kind, group, number of rows and rows of each fat row; ``schemas`` are those of the payloads."""
    unpackers = {kind: Unpacker(schemas.get(kind, pa.schema([]))) for kind in Kind}
    for batch in batches:
        fat = batch.select(["path", "bucket", "rows", "payload"])
        kinds: list[Any] = batch.column("kind").to_pylist()
        for at, kind in enumerate(map(Kind, kinds)):
            for group, rows, content in unpackers[kind].unpack(fat.slice(at, 1)):
                yield kind, group or Group(""), rows, content


# --- the source -------------------------------------------------------------------------------------------------------


class ReadFrame(_Task):
    """Rows of a DataFrame in, fat rows by bucket out. ``given`` is their schema, with time zones."""

    def __init__(self, failures: Failures, keyed: Keyed, given: pa.Schema) -> None:
        super().__init__(failures)
        self.keyed = keyed
        self.given = given

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        rows = gathered((batch.cast(self.given) for batch in batches), self.given)
        yield from _divided(self.keyed, rows)


class ReadSplits(_Task):
    """Numbers of bundles of splits in, fat rows by bucket out. ``reading`` is the schema to read in."""

    def __init__(
        self,
        failures: Failures,
        keyed: Keyed,
        source: Source,
        bundles: Sequence[tuple[Split, ...]],
        reading: pa.Schema,
        rows_read: Accumulator[int],
    ) -> None:
        super().__init__(failures)
        self.keyed = keyed
        self.source = source
        self.bundles = bundles
        self.reading = reading
        self.rows_read = rows_read

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        with SourceReader(self.source) as reader:
            yield from _divided(self.keyed, self._rows(reader, batches))

    def _rows(self, reader: SourceReader, batches: Batches) -> Iterator[pa.RecordBatch]:
        for number in (value.as_py() for batch in batches for value in batch.column(0)):
            self.order = number
            for piece in self.bundles[number]:
                self.split = piece
                for rows in reader.read(piece, self.reading):
                    self.rows_read.add(rows.num_rows)
                    yield rows
            self.split = None


def _divided(keyed: Keyed, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    buckets = KeyBuckets(keyed.schema, keyed.key, keyed.buckets)
    packer, rows = Packer(), 0
    for given in batches:
        rows += given.num_rows
        for batch in conform(pa.Table.from_batches([given]), keyed.schema).to_batches():
            for number, part in buckets.split(batch):
                yield from _of_kind(Kind.SOURCE, packer.add(Group("", number), part))
    yield from _of_kind(Kind.SOURCE, packer.finish())
    yield from _counted(Kind.READ, rows)


class CheckKeys(_Task):
    """All rows of some keys in, a :class:`Summary` out. A key that occurs twice is an error."""

    def __init__(self, failures: Failures, keyed: Keyed) -> None:
        super().__init__(failures)
        self.keyed = keyed

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        read = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for kind, _, count, content in _received(batches, {Kind.SOURCE: self.keyed.schema}):
                read += count if kind is Kind.READ else 0
                if content is not None:
                    yield content

        with Scratch() as scratch:
            source = MergeSource(scratch.hold(rows(), self.keyed.schema), self.keyed.key, scratch)
            source.require_distinct()
            found = Summary(read, source.count, KeyValues.of(source, _FEW))
        payload: list[Any] = [pickle.dumps(found)]
        yield pa.RecordBatch.from_arrays([pa.array(payload, pa.binary())], names=["payload"])


# --- matches ----------------------------------------------------------------------------------------------------------


class ReadKeys(_Task):
    """Numbers of bundles of files in, keys of their rows by bucket out. ``schema`` is the table's."""

    def __init__(self, failures: Failures, keyed: Keyed, store: StoreConfig, bundles: Bundles, schema: pa.Schema):
        super().__init__(failures)
        self.keyed = keyed
        self.store = store
        self.bundles = bundles
        self.schema = schema

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        carrier, store = self.keyed.carrier, open_store(self.store)
        buckets = KeyBuckets(carrier.inside, tuple(carrier.inside.names), self.keyed.buckets)
        packer = Packer()
        for number in (value.as_py() for batch in batches for value in batch.column(0)):
            first, files = number * self.bundles.size, self.bundles[number]
            for rows in key_rows(store, files, self.schema, self.keyed.key, carrier, first):
                for bucket, part in buckets.split(rows):
                    yield from _of_kind(Kind.KEYS, packer.add(Group("", bucket), part))
        yield from _of_kind(Kind.KEYS, packer.finish())


class _Joins(_Task):
    """Source rows of some keys in, then the places of these keys."""

    def __init__(self, failures: Failures, keyed: Keyed) -> None:
        super().__init__(failures)
        self.keyed = keyed

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        schemas = {Kind.SOURCE: self.keyed.schema, Kind.KEYS: keys_schema(self.keyed.carrier)}
        received = _received(batches, schemas)
        first: list[pa.RecordBatch] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for kind, _, _, content in received:
                if content is None:
                    continue
                if kind is Kind.KEYS:
                    first.append(content)
                    return
                yield content

        with Scratch() as scratch:
            source = MergeSource(scratch.hold(rows(), self.keyed.schema), self.keyed.key, scratch)
            if source.count:
                yield from _counted(Kind.READ, source.count)
                keys = chain(first, (content for _, _, _, content in received if content is not None))
                yield from self.joined(source, Matches([], join_keys(source, keys), scratch))

    @abstractmethod
    def joined(self, source: MergeSource, matches: Matches) -> Iterator[pa.RecordBatch]:
        """Yield the output for these rows and their matches."""


class CountMatches(_Joins):
    """One row without payload if there are matches."""

    def joined(self, source: MergeSource, matches: Matches) -> Iterator[pa.RecordBatch]:
        if matches.any:
            yield from _counted(Kind.MATCHED, 1)


class JoinKeys(_Joins):
    """Source rows with a match go to the bundle of its file, and the rows that are inserted to their partition."""

    def __init__(self, failures: Failures, keyed: Keyed, copying: Copying, rules: Rules, bundle: int) -> None:
        super().__init__(failures, keyed)
        self.copying = copying
        self.rules = rules
        self.bundle = bundle

    def joined(self, source: MergeSource, matches: Matches) -> Iterator[pa.RecordBatch]:
        if self.rules.changes_matches or self.rules.changes_others:
            yield from _of_kind(Kind.MATCHED, self._matched(source, matches))
        if self.rules.inserts:
            yield from self._inserted(source, matches)

    def _matched(self, source: MergeSource, matches: Matches) -> Iterator[pa.RecordBatch]:
        packer = Packer()
        for files, at, numbers in matches.batches():
            if not len(files):
                continue
            taken = source.take(numbers)
            places = [pa.array(files % self.bundle, pa.int32()), pa.array(at, pa.int64())]
            columns: list[Any] = [*taken.combine_chunks().columns, *places]
            (rows,) = pa.table(columns, schema=placed(self.keyed.schema)).combine_chunks().to_batches()
            bundles = files // self.bundle
            bounds = [0, *(np.flatnonzero(np.diff(bundles)) + 1).tolist(), len(bundles)]
            for start, end in pairwise(bounds):
                yield from packer.add(Group("", int(bundles[start])), rows.slice(start, end - start))
        yield from packer.finish()

    def _inserted(self, source: MergeSource, matches: Matches) -> Iterator[pa.RecordBatch]:
        packer, count = Packer(), 0
        bucketing = Bucketing.of(self.copying.layout, self.rules.schema)
        with closing(Evaluator()) as evaluator:
            for numbers in matches.missing(source, _INSERTS_AT_ONCE):
                for rows in inserted_rows(self.rules, source.take(numbers), evaluator):
                    count += rows.num_rows
                    for batch in conform(rows, self.rules.schema).to_batches():
                        for group, part in split(batch, self.copying.layout.partition_on, bucketing):
                            yield from _of_kind(Kind.INSERTED, packer.add(group, part))
        yield from _of_kind(Kind.INSERTED, packer.finish())
        yield from _counted(Kind.INSERTS, count)


def placed(schema: pa.Schema) -> pa.Schema:
    """Return the schema of source rows with the places of their matches."""
    return pa.schema([*schema, *PLACE])


# --- files ------------------------------------------------------------------------------------------------------------


class RewriteBundles(_Task):
    """Source rows with places in, sorted by bundle; a manifest of the rewritten files of each bundle out."""

    def __init__(self, failures: Failures, keyed: Keyed, copying: Copying, rules: Rules, bundles: Bundles) -> None:
        super().__init__(failures)
        self.keyed = keyed
        self.copying = copying
        self.rules = rules
        self.bundles = bundles

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        received = _received(batches, {Kind.MATCHED: placed(self.keyed.schema)})
        for number, some in groupby(received, key=lambda row: row[1].bucket):
            assert number is not None, "each row belongs to a bundle"
            done = self._rewritten(number, (content for _, _, _, content in some if content is not None))
            yield manifest(done, bundles=1)

    def _rewritten(self, number: int, content: Iterator[pa.RecordBatch]) -> MergedFiles:
        with Scratch() as scratch:
            held = scratch.hold(content, placed(self.keyed.schema))
            if not held.num_rows and not self.rules.changes_others:
                return MergedFiles()
            first = held.num_columns - len(PLACE) - 1
            numbers = [*range(first, held.num_columns)]
            places = held.select(numbers).rename_columns([*(field.name for field in PLACE), ROW])
            rows = held.select([*range(first), held.num_columns - 1])
            source = MergeSource(rows, self.keyed.key, scratch)
            matches = Matches(self.bundles[number], scratch.register("places", places), scratch)
            store = open_store(self.copying.store)
            all_files = self.rules.changes_others
            return merge_files(self.copying, store, self.rules, source, matches, all_files=all_files, threads=1)


class WriteInserts(_Task):
    """Inserted rows in, a manifest of their files out."""

    def __init__(self, failures: Failures, copying: Copying) -> None:
        super().__init__(failures)
        self.copying = copying

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        store = open_store(self.copying.store)
        schema, partition_on = self.copying.schema, self.copying.layout.partition_on
        stored = pa.schema([field for field in schema if field.name not in partition_on])
        done, gatherer = MergedFiles(), self.copying.gatherer(store)
        with self.copying.writer(store, gatherer) as writer:
            for _, group, rows, content in _received(batches, {Kind.INSERTED: stored}):
                if content is None:
                    done.expected += rows
                else:
                    writer.write_group(group, content)
            done.added, done.gathered = writer.finish(), gatherer.finish()
        yield manifest(done, bundles=0)


def manifest(done: MergedFiles, bundles: int) -> pa.RecordBatch:
    """Return the files as lines for the driver; the last one has the number of expected rows, and of bundles."""
    entries = orjson.dumps(done.gathered.to_json()).decode()
    return tasks.batch_of(
        [
            *map(tasks.written, done.added),
            *({"label": label} for label in done.removed),
            {"rows": done.expected, "bytes": bundles, "indexed": entries},
        ]
    )
