"""Read a table: the planned files as Arrow batches of the stored schema.

Data of other writers is read as kartothek and plateau read it (Kartothek specification, "Data files of partitions"). A
data file may have narrower types, either string type, another column order, extra columns (ignored) or missing columns
(null). The partition columns come from the path, even where a file contradicts it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from difflib import get_close_matches
from functools import cache, partial, reduce
from itertools import chain
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from kubothek.errors import InputError, LakeError, StoreError, VersionIncomplete
from kubothek.storage.base import Store
from kubothek.table.expressions import Predicate
from kubothek.table.filesystem import arrow_filesystem
from kubothek.table.log.history.snapshot import Snapshot
from kubothek.table.log.model.head import Head
from kubothek.table.log.model.paths import parse_path
from kubothek.table.scan.local_filter import LocalFilter, Part, ahead, unreadable
from kubothek.table.scan.plan import Plan, plan

_BATCHES_AHEAD = 8
_FILES_AHEAD = 4
_FILES_AT_ONCE = 1024
"""Files given to Arrow at a time: it keeps the footers of those that it has read."""
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
_NOT_FOUND = ("No such file or directory", "Path does not exist")


def arrow_dataset(store: Store, head: Head, schema: pa.Schema) -> ds.FileSystemDataset:
    """Return the files of a head as an Arrow dataset of the stored schema; nothing is read or listed yet.

    Filters on partition columns skip files by their path, others skip row groups by their statistics.
    """
    return open_files(store, head.files().values(), schema)


def open_files(
    store: Store,
    keys: Collection[str],
    schema: pa.Schema,
    filesystem: fs.FileSystem | None = None,
    dictionaries: Collection[str] = (),
    constants: Iterable[pc.Expression] | None = None,
) -> ds.FileSystemDataset:
    """Return data files as an Arrow dataset of the stored schema; ``filesystem``: the store's, if already at hand.

    ``dictionaries``  names of text columns to have as dictionaries
    ``constants``     for each file, further columns of the schema that are constant in it, as equalities

    Raises PartitionInvalid for a path that does not fit the schema, AccessDenied for a symbolic link.
    """
    store.check_no_links(keys)
    filesystem = filesystem or arrow_filesystem(store)
    form = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(dictionary_columns=list(dictionaries)))
    partitions = _Partitions(schema)
    known = [partitions.of(key) for key in keys]
    if constants is not None:
        known = [own if path is None else path & own for path, own in zip(known, constants, strict=True)]
    fragments = [
        form.make_fragment(key, filesystem, partition_expression=each) for key, each in zip(keys, known, strict=True)
    ]
    read = pa.schema([field.with_type(_DICTIONARY) if field.name in dictionaries else field for field in schema])
    return ds.FileSystemDataset(fragments, read, form, filesystem)


def scan(
    store: Store,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
) -> pa.RecordBatchReader:
    """Return the rows in the order of the head's files, as a stream; a few batches are in memory at a time.

    ``columns``  names, in the order wanted; None = all
    ``where``    only rows for which this is TRUE

    Raises, before any batch, InputError for an unknown column, and the errors of :func:`~.plan.plan`. The stream raises
    VersionIncomplete if a file is missing, StoreError if one cannot be read.
    """
    schema = pa.schema([]) if snapshot.schema is None else snapshot.schema
    names = schema.names if columns is None else list(columns)
    for name in names:
        if name not in schema.names:
            raise _unknown_column(name, schema)
    bound = None if where is None else where.bind(schema)
    planned = plan(store, snapshot, bound)
    batches = _batches(store, planned, schema, names, bound)
    return pa.RecordBatchReader.from_batches(pa.schema([schema.field(name) for name in names]), batches)


def read_failure(store: Store, dataset: ds.FileSystemDataset, error: Exception) -> LakeError:
    """Return the error to raise for a read that failed inside Arrow, which reports only text.

    A request to the store shows whether the store itself fails.
    """
    if any(sign in str(error) for sign in _NOT_FOUND):
        return VersionIncomplete(
            f"a file that the version needs no longer exists in {store.url}; read a newer version, or restore the "
            f"file: {error}"
        )
    try:
        store.stat(dataset.files[0])
    except StoreError as failure:
        return failure
    return StoreError(f"cannot read the table in {store.url}: {error}")


def _batches(
    store: Store, planned: Plan, schema: pa.Schema, names: list[str], where: Predicate | None
) -> Iterator[pa.RecordBatch]:
    filesystem = cache(partial(arrow_filesystem, store))
    starts = range(0, len(planned.files), _FILES_AT_ONCE)
    chunks = (planned.files[start : start + _FILES_AT_ONCE] for start in starts)
    local = None if where is None else LocalFilter.of(store, schema, names, where)
    if local is None:
        for files in chunks:
            yield from _by_arrow(store, Part(files), schema, names, where, filesystem())
        return
    parts = chain.from_iterable(map(local.parts, chunks))
    with closing(ahead(parts, local.start)) as started:
        for part, selected in started:
            rows = 0
            if selected is not None:
                try:
                    for batch in selected:
                        yield batch
                        rows += batch.num_rows
                    continue
                except unreadable():
                    pass  # Arrow reads the rows that are left, or names the file that it cannot read
            yield from _after(rows, _by_arrow(store, part, schema, names, where, filesystem()))


def _by_arrow(
    store: Store, part: Part, schema: pa.Schema, names: list[str], where: Predicate | None, filesystem: fs.FileSystem
) -> Iterator[pa.RecordBatch]:
    dataset = open_files(store, [file.key for file in part.files], schema, filesystem)
    everything = where is None or all(file.all_rows for file in part.files)
    try:
        if part.row_groups is not None:
            fragments = [each.subset(row_group_ids=list(part.row_groups)) for each in dataset.get_fragments()]
            dataset = ds.FileSystemDataset(fragments, dataset.schema, dataset.format, filesystem)
        yield from dataset.scanner(
            columns=names,
            filter=None if everything or where is None else where.expression(),
            batch_readahead=_BATCHES_AHEAD,
            fragment_readahead=_FILES_AHEAD,
        ).to_batches()
    except (OSError, pa.ArrowException) as error:
        raise read_failure(store, dataset, error) from error


def _after(rows: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the first rows."""
    for batch in batches:
        skipped = min(rows, batch.num_rows)
        rows -= skipped
        yield batch.slice(skipped) if skipped else batch


class _Partitions:
    """The partition values of all rows of a file, from its key: ``<uuid>/<table>/<column>=<value>/…/<file>``.

    Directories repeat from file to file, so each is parsed once.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parsed: dict[str, list[pc.Expression]] = {}

    def of(self, key: str) -> pc.Expression | None:
        directories = key.split("/")[2:-1]
        equalities = [equality for directory in directories for equality in self._parse(directory)]
        return reduce(and_, equalities) if equalities else None

    def _parse(self, directory: str) -> list[pc.Expression]:
        if (known := self._parsed.get(directory)) is None:
            known = self._parsed[directory] = [
                pc.field(name) == pa.scalar(value, self._schema.field(name).type)
                for name, value in parse_path(directory, self._schema).items()
            ]
        return known


def _unknown_column(name: str, schema: pa.Schema) -> InputError:
    near = get_close_matches(name, schema.names, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(schema.names)}"
    return InputError(f"no column {name!r}; {hint}")
